"""An importance matrix of a tiny pair: drafted along a text, written, read back, and used."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import tiny

from dflash_gguf import _core
from dflash_gguf.errors import OutputError, PairError, SessionError
from dflash_gguf.quantize.api import quantize
from dflash_gguf.quantize.imatrix import read_imatrix
from dflash_gguf.quantize.imatrix_make import make_imatrix
from dflash_gguf.runner.along import Text, draft_along
from dflash_gguf.runner.session import Session
from dflash_gguf.runner.settings import Settings

TEXT = "the tides of the sea and the hills of the land " * 12


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_target, tiny_drafter):
    out = tmp_path_factory.mktemp("made") / "imatrix.gguf"
    return make_imatrix(tiny_target, tiny_drafter, Text(TEXT, 64), out, dataset="text.txt", n_threads=1)


def test_it_is_llama_cpps_form(made):
    reader = gguf.GGUFReader(made.path)
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert keys == {
        "general.type": "imatrix",
        "imatrix.datasets": ["text.txt"],
        "imatrix.chunk_count": made.drafted.n_chunks,
        "imatrix.chunk_size": 64,
    }
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert list(tensors) == [f"{name}{end}" for name in sorted(made.names) for end in (".in_sum2", ".counts")]
    assert all(tensor.tensor_type == gguf.GGMLQuantizationType.F32 for tensor in tensors.values())
    assert tensors["fc.weight.in_sum2"].data.shape == (1536,)
    drafts = made.drafted
    assert drafts.n_chunks >= 2
    # Every row of a block goes through the queries; every row that was kept through fc.
    assert tensors["blk.0.attn_q.weight.counts"].data[0] == 8 * drafts.n_drafts
    assert drafts.n_tokens - 9 * drafts.n_chunks <= tensors["fc.weight.counts"].data[0] < drafts.n_tokens
    keys_seen = tensors["blk.1.attn_k.weight.counts"].data[0]
    assert keys_seen == tensors["blk.0.attn_q.weight.counts"].data[0] + tensors["fc.weight.counts"].data[0]


def test_what_is_only_looked_up_has_no_entry(made):
    assert made.unseen == ("selector_predecessor.weight", "selector_successor.weight")
    assert "selector_hidden.weight" in made.names
    assert made.unused == 0
    found = read_imatrix(made.path)
    assert tuple(found.entries) == made.names
    assert (found.dataset, found.n_chunks) == ("text.txt", made.drafted.n_chunks)


def test_it_makes_a_file_that_drafts(tmp_path, made, tiny_target, tiny_drafter):
    plain = quantize(tiny_drafter, tmp_path / "plain.gguf", "Q4_0", n_threads=1)
    weighed = quantize(tiny_drafter, tmp_path / "weighed.gguf", "Q4_0", imatrix=made.path, n_threads=1)
    assert plain.n_bytes != 0
    assert plain.path.read_bytes() != weighed.path.read_bytes()
    with Session(tiny_target, weighed.path, n_ctx=256, n_threads=1, depth="fixed") as session:
        list(session.generate("hi", max_tokens=8, temperature=0))
        assert session.stats.draft_n > 0


def test_rounds_are_those_of_a_session(tiny_target, tiny_drafter):
    """Along what the target writes, as many tokens are accepted as when it wrote them."""
    options = {"n_ctx": 256, "n_threads": 1, "depth": "fixed", "flash_attention": "on", "n_ubatch": 48}
    with Session(tiny_target, tiny_drafter, **options) as session:
        ids = session.tokenize("hello", raw=True)
        for event in session.generate(ids, max_tokens=40, temperature=0):
            ids = ids + list(getattr(event, "tokens", ()))
        stats = session.stats
        text = "".join(session.token_text(token) for token in ids)
    counts = draft_along(
        tiny_target,
        tiny_drafter,
        Text(text, 200, None, parse_special=True),
        Settings.of({**options, "n_ctx": 220}),
        _core.Activations(),
    )
    assert counts.n_drafts >= stats.verify_calls
    assert counts.draft_n_accepted >= stats.draft_n_accepted - 8


def test_what_cannot_be_measured(tmp_path, tiny_target, tiny_drafter):
    with pytest.raises(SessionError, match=r"tokens of the text: got 1, expected at least 16"):
        make_imatrix(tiny_target, tiny_drafter, Text("a"), tmp_path / "m", n_threads=1)
    with pytest.raises(PairError):
        make_imatrix(tiny.write_target(tmp_path / "t.gguf", hidden=256), tiny_drafter, Text(TEXT), tmp_path / "m")
    with pytest.raises(OutputError, match=r"is one of the inputs|exists already"):
        make_imatrix(tiny_target, tiny_drafter, Text(TEXT), tiny_drafter)
    nan = tiny.write_drafter(tmp_path / "d.gguf", tensors={"enc.output_norm.weight": np.full(512, np.nan, np.float32)})
    with pytest.raises(SessionError, match=r"not finite"):
        make_imatrix(tiny_target, nan, Text(TEXT, 64), tmp_path / "m", n_threads=1)
    assert not (tmp_path / "m").exists()


def test_an_interrupt_leaves_nothing(tmp_path, tiny_target, tiny_drafter):
    def stop(_done, _total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_imatrix(tiny_target, tiny_drafter, Text(TEXT, 64), tmp_path / "m", progress=stop, n_threads=1)
    assert not list(tmp_path.iterdir())
