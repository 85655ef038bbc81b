"""The drafter's copy of its target's head: it is used, changes no text, and nothing fails for want of it."""

from __future__ import annotations

import tempfile
from math import prod

import numpy as np
import pytest
from certain import own_tables, write_certain_drafter, write_certain_target
from ggml import quantize
from gguf import GGUFReader

from dflash_gguf import Session
from dflash_gguf.errors import OutputError, QuantizeError, SessionError
from dflash_gguf.ggml_types import BY_NAME
from dflash_gguf.gguf_header import read_header
from dflash_gguf.runner import head
from dflash_gguf.runner.estimate import estimate
from dflash_gguf.runner.head import HeadCopy, head_copy
from dflash_gguf.runner.settings import Settings

PROMPT = [5, 6, 7, 8]
OPTIONS = {"n_ctx": 256, "n_threads": 1, "depth": "fixed"}


@pytest.fixture
def pair(tmp_path):
    return write_certain_target(tmp_path / "target.gguf"), write_certain_drafter(tmp_path / "draft.gguf")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def copy_of(target, draft, **options):
    return head_copy(read_header(target), None if draft is None else read_header(draft), Settings.of(options))


def text_and_accepted(target, draft, **options):
    with Session(target, draft, **OPTIONS, **options) as session:
        text = [t for e in session.generate(PROMPT, max_tokens=20, temperature=0.0) for t in getattr(e, "tokens", ())]
        return text, session.stats.draft_n_accepted, session.notes


def zeros(self, folder, n_threads):
    """Another copy in the right place: all tokens are as likely."""
    path = HeadCopy.true_write(self, folder, n_threads)
    data = path.read_bytes()
    path.write_bytes(data[: -self.nbytes] + bytes(self.nbytes))
    return path


def test_the_copy_is_what_the_drafter_uses(pair, temporary, monkeypatch):
    own, accepted, _ = text_and_accepted(*pair, draft_head="target")
    copied, as_many, notes = text_and_accepted(*pair, draft_head="copy")
    assert (copied, as_many, notes) == (own, accepted, ())
    assert accepted > 10
    assert list(temporary.iterdir()) == [], "the file is gone once it is loaded"
    monkeypatch.setattr(HeadCopy, "true_write", HeadCopy.write, raising=False)
    monkeypatch.setattr(HeadCopy, "write", zeros)
    text, accepted, _ = text_and_accepted(*pair, draft_head="copy")
    assert (text, accepted) == (own, 0)


def test_the_file_is_a_second_shard_in_ggmls_own_bytes(pair, tmp_path):
    copy = copy_of(*pair, draft_head="copy")
    (tmp_path / "out").mkdir()
    path = copy.write(tmp_path / "out", n_threads=1)
    reader = GGUFReader(path)
    assert reader.get_field("split.no").contents() == 1
    (tensor,) = reader.tensors
    assert (tensor.name, list(tensor.shape)) == ("output.weight", [64, 300])
    values = next(t.data for t in GGUFReader(pair[0]).tensors if t.name == "output.weight")
    assert tensor.data.tobytes() == quantize(np.array(values, np.float32), BY_NAME["Q4_0"].id)
    assert copy.nbytes == tensor.n_bytes
    assert copy.overrides["split.tensors.count"] == len(GGUFReader(pair[1]).tensors) + 1


def test_tied_embeddings_are_the_head(pair, tmp_path):
    target = write_certain_target(tmp_path / "tied.gguf", drop_tensors=("output.weight",))
    assert "output.weight" not in read_header(target).tensors
    assert copy_of(target, pair[1], draft_head="copy").source.name == "token_embd.weight"


def test_what_cannot_be_copied_is_refused_and_nothing_else(pair, tmp_path):
    target, draft = pair
    own = write_certain_drafter(tmp_path / "own.gguf", own_tables())
    with pytest.raises(SessionError, match="the drafter has one of its own"):
        copy_of(target, own, draft_head="copy")
    assert copy_of(target, own) is None
    assert copy_of(target, None, draft_head="copy") is None
    with pytest.raises(SessionError, match=r"`draft_head`.*one of auto, target, copy"):
        copy_of(target, draft, draft_head="none")
    scaled = write_certain_target(tmp_path / "scaled.gguf", {"output.scale": np.ones(1, np.float32)})
    with pytest.raises(SessionError, match=r"scaled by `output\.scale`"):
        copy_of(scaled, draft, draft_head="copy")


def test_auto_copies_where_it_pays(pair, monkeypatch):
    """Not a head that stays in the processor's cache, nor a huge one, nor one that is fast, nor beside a GPU."""
    import llama_cpp

    monkeypatch.setattr(llama_cpp, "llama_print_system_info", lambda: b"CPU : AVX2 = 1 | REPACK = 1 | ")
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: False)
    assert copy_of(*pair) is None
    weights = prod((64, 300))
    monkeypatch.setattr(head, "WEIGHTS", range(weights, weights + 1))
    assert copy_of(*pair) is not None
    monkeypatch.setattr(head, "SLOWER", frozenset({BY_NAME["BF16"].id}))
    assert copy_of(*pair) is None
    monkeypatch.undo()
    monkeypatch.setattr(head, "WEIGHTS", range(weights, weights + 1))
    monkeypatch.setattr(llama_cpp, "llama_print_system_info", lambda: b"CPU : SSE3 = 1 | ")
    assert copy_of(*pair) is None
    monkeypatch.setattr(llama_cpp, "llama_print_system_info", lambda: b"CPU : NEON = 1 | DOTPROD = 1 | REPACK = 1 | ")
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: True)
    assert copy_of(*pair) is None
    assert copy_of(*pair, n_gpu_layers=0) is not None
    assert copy_of(*pair, device="none") is not None


def test_without_room_for_the_copy_the_targets_head_does(pair, temporary, monkeypatch):
    import llama_cpp

    monkeypatch.setattr(head, "WEIGHTS", range(1 << 29))
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: False)
    monkeypatch.setattr(llama_cpp, "llama_print_system_info", lambda: b"CPU : AVX2 = 1 | REPACK = 1 | ")
    temporary.rmdir()
    temporary.write_bytes(b"no folder")
    _, accepted, notes = text_and_accepted(*pair)
    assert accepted > 10
    (note,) = notes
    assert "its target's own head, which is slower" in note
    assert str(temporary) in note
    with pytest.raises(OutputError, match="could not be written"):
        text_and_accepted(*pair, draft_head="copy")


def test_a_head_that_holds_no_numbers_is_said(tmp_path, pair):
    rows = np.zeros((300, 64), np.float32)
    rows[3, 3] = np.nan
    target = write_certain_target(tmp_path / "broken.gguf", {"output.weight": rows})
    with pytest.raises(QuantizeError, match=r"output\.weight"):
        text_and_accepted(target, pair[1], draft_head="copy")


def test_an_estimate_counts_the_copy(pair):
    """It takes memory, and has no file to be read from again."""
    without, beside = (
        estimate(*pair, n_ctx=256, n_threads=1, draft_head=which).draft[0] for which in ("target", "copy")
    )
    assert beside.weights - without.weights == copy_of(*pair, draft_head="copy").nbytes
    assert beside.mapped == without.mapped
