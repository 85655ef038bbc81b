"""The pair check: every mismatch, with both values and a remedy, from headers alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import forks
import gguf_bytes
import numpy as np
import pytest
import tiny
from tiny_vocab import tokenizer_keys

from dflash_gguf import pair
from dflash_gguf.errors import GGUFError, PairError
from dflash_gguf.facts import DrafterFacts, drafter_facts, target_facts
from dflash_gguf.gguf_header import read_header
from dflash_gguf.rekeying.forks import FORKS
from dflash_gguf.schema import TAP_TARGETS

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, Any] = {"hidden": 288, "ffn": 64, "layers": 1, "heads": 2, "kv_heads": 1, "vocab": 300}
"""A drafter's dims; its target has four layers."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_target(tmp_path_factory.mktemp("target") / "target.gguf", **SMALL | {"layers": 4})


def texts(report: pair.PairReport) -> list[str]:
    return [str(finding) for finding in report.findings]


def draft(tmp_path: Path, **overrides: Any) -> Path:
    return tiny.write_drafter(tmp_path / "drafter.gguf", **SMALL | overrides)


@pytest.mark.parametrize("kind", ["dflash2", "dflash", "dspark"])
def test_a_good_pair(kind: str, target: Path, tmp_path: Path) -> None:
    report = pair.check(target, draft(tmp_path, kind=kind))
    assert report.ok
    assert report.findings == ()
    assert report.facts == DrafterFacts(kind, 288, (1, 2, 3), 8, 3, 300)
    report.raise_if_bad()


def test_headers_do_as_well_as_paths(target: Path, tmp_path: Path) -> None:
    path = draft(tmp_path)
    report = pair.check(read_header(target), read_header(path))
    assert report == pair.check(str(target), path)
    assert (report.target, report.draft) == (str(target), str(path))


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("hidden", {"hidden": 576}, "hidden sizes differ (target 288, drafter 576); use the drafter that was"),
    ("no hidden", {"drop_keys": ["dflash.embedding_length"]}, "`dflash.embedding_length` is missing (drafter none)"),
    ("vocabulary", {"vocab": 301}, "vocabularies differ in length (target 300, drafter 301)"),
    ("no tokens", {"drop_keys": ["tokenizer.ggml.tokens"]}, "`tokenizer.ggml.tokens` is missing (drafter none)"),
    (
        "mask out of range",
        {"mask": 300},
        "the drafter's `tokenizer.ggml.mask_token_id` is not within 0 to 299 (drafter 300)",
    ),
    (
        "no mask",
        {"drop_keys": ["tokenizer.ggml.mask_token_id"]},
        "`tokenizer.ggml.mask_token_id` is missing (drafter none); mend the file with `dflash-gguf rekey` and",
    ),
    ("last layer", {"taps": (0, 3)}, "last layer of a `qwen3` target (target 4 layers, drafter tap 4)"),
    ("far tap", {"taps": (0, 4, 5)}, "does not have (target 4 layers, drafter taps 5, 6)"),
    ("negative tap", {"taps": (-3, 1)}, "`dflash.target_layers` is not within 0 to 2147483647 (drafter -2)"),
    ("tap twice", {"taps": (1, 1)}, "`dflash.target_layers` names a layer twice (drafter 2)"),
    ("no taps", {"drop_keys": ["dflash.target_layers"]}, "`dflash.target_layers` is missing (drafter none)"),
    (
        "fc of another width",
        {"extra_keys": {"dflash.target_layers": [1, 2]}},
        "tensor `fc.weight` is not 576 (taps x hidden) x 288 (hidden) (drafter 864 x 288)",
    ),
    ("block of one", {"block": 1}, "`dflash.block_size` is not within 2 to 1024 (drafter 1)"),
    ("no block size", {"drop_keys": ["dflash.block_size"]}, "`dflash.block_size` is missing (drafter none); mend"),
    (
        "block size in words",
        {"extra_keys": {"dflash.block_size": "eight"}},
        "`dflash.block_size` is not of the type that libllama reads, uint32 (drafter string)",
    ),
    (
        "embeddings without a head",
        {"tensors": {"token_embd.weight": np.zeros((300, 288), np.float32)}},
        "libllama takes them for it, but the target's head is another (target `output.weight`,",
    ),
]


@pytest.mark.parametrize(("overrides", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_thing_wrong(overrides: dict[str, Any], message: str, target: Path, tmp_path: Path) -> None:
    report = pair.check(target, draft(tmp_path, **overrides))
    assert len(report.findings) == 1
    assert message in texts(report)[0]
    assert report.findings[0].remedy
    assert not report.ok


def test_every_mismatch_is_in_one_report(target: Path, tmp_path: Path) -> None:
    path = draft(tmp_path, hidden=576, vocab=301, mask=305, block=1, taps=(0, 8))
    report = pair.check(target, path)
    assert len(report.errors) == 5
    with pytest.raises(PairError) as caught:
        report.raise_if_bad()
    message = str(caught.value)
    assert message.startswith(f"`{path}` does not fit `{target}`: (1) the drafter's `tokenizer.ggml.mask_token_id` is")
    assert all(str(finding) in message for finding in report.errors)
    assert "\n" not in message


def test_the_last_layer_is_exposed_by_some_targets(tmp_path: Path) -> None:
    target = tiny.write_target(tmp_path / "target.gguf", "mimo2", **SMALL | {"layers": 4})
    assert pair.check(target, draft(tmp_path, taps=(0, 3))).ok


@pytest.mark.parametrize("arch", ["gemma3", "qwen4exp", "clip"])
def test_a_target_without_taps(arch: str, tmp_path: Path) -> None:
    target = tiny.write_target(tmp_path / "target.gguf", arch, **SMALL | {"layers": 4})
    (finding,) = pair.check(target, draft(tmp_path)).findings
    assert "does not expose the layer inputs" in finding.what
    assert finding.target_value == f"`{arch}`"
    assert all(name in finding.remedy for name in TAP_TARGETS)


def test_layers_that_predict_further_tokens_do_not_count(tmp_path: Path) -> None:
    keys = {"qwen35.nextn_predict_layers": 1}
    dims = SMALL | {"layers": 5}
    target = tiny.write_target(tmp_path / "target.gguf", "qwen35", extra_keys=keys, **dims)
    (finding,) = pair.check(target, draft(tmp_path, taps=(0, 3))).findings
    assert finding.target_value == "4 layers"


def test_a_target_without_tokens(tmp_path: Path) -> None:
    keys = ["tokenizer.ggml.tokens"]
    target = tiny.write_target(tmp_path / "target.gguf", drop_keys=keys, **SMALL | {"layers": 4})
    (finding,) = pair.check(target, draft(tmp_path)).findings
    assert finding.what == "the target's `tokenizer.ggml.tokens` is missing"
    assert finding.target_value == "none"


def test_an_unstated_causality_is_a_warning(target: Path, tmp_path: Path) -> None:
    report = pair.check(target, draft(tmp_path, drop_keys=["dflash.attention.causal"]))
    assert [finding.level for finding in report.findings] == ["warning"]
    assert "assumes false" in texts(report)[0]
    assert report.ok
    report.raise_if_bad()


def test_sections_that_only_the_target_states_are_a_warning(tmp_path: Path) -> None:
    keys = {"qwen35.rope.dimension_sections": [11, 11, 10, 0]}
    target = tiny.write_target(tmp_path / "target.gguf", "qwen35", extra_keys=keys, **SMALL | {"layers": 4})
    (finding,) = pair.check(target, draft(tmp_path)).findings
    assert finding.level == "warning"
    assert "M-RoPE" in finding.what
    assert "rekey" in finding.remedy
    assert (
        pair.check(target, draft(tmp_path, extra_keys={"dflash.rope.dimension_sections": [32, 0, 0, 0]})).findings == ()
    )


def test_swapped_files(target: Path, tmp_path: Path) -> None:
    report = pair.check(draft(tmp_path), target)
    assert report.facts is None
    assert texts(report) == [
        "the target and the drafter are swapped (target dflash, drafter qwen3); exchange the two files"
    ]


def test_two_drafters(tmp_path: Path) -> None:
    path = draft(tmp_path)
    (finding,) = pair.check(path, path).findings
    assert finding.what == "the target is itself a drafter"


def test_two_targets(target: Path) -> None:
    (finding,) = pair.check(target, target).findings
    assert finding.what == "the drafter is not a DFlash file"
    assert finding.draft_value == "`qwen3`"


@pytest.mark.parametrize("arch", FORKS)
def test_fork_files_are_named(arch: str, target: Path, tmp_path: Path) -> None:
    path = tiny.write_gguf(tmp_path / "fork.gguf", arch, {}, {})
    (finding,) = pair.check(target, path).findings
    assert FORKS[arch].writer in finding.what
    assert finding.draft_value == f"`{arch}`"
    assert "dflash-gguf rekey" in finding.remedy


def test_a_fork_that_cannot_be_rekeyed_is_named(target: Path, tmp_path: Path) -> None:
    path = tiny.write_gguf(tmp_path / "fork.gguf", "deepseek4-dflash-draft", {}, {})
    (finding,) = pair.check(target, path).findings
    assert "a fork of llama.cpp" in finding.what
    assert "convert the drafter's checkpoint again" in finding.remedy


def test_broken_files_are_not_findings(target: Path, tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="absent"):
        pair.check(target, tmp_path / "absent.gguf")


def test_facts_of_a_checkpoint_compare_the_same_way(target: Path, tmp_path: Path) -> None:
    offered = target_facts(read_header(target))
    facts = drafter_facts(read_header(draft(tmp_path)))
    assert pair.compare(offered, facts) == ()
    (finding,) = pair.compare(offered, replace(facts, mask_token_id=300, vocab_size=301, padding_may_differ=True))[1:]
    assert finding.draft_value == 300


@pytest.mark.parametrize(("mask", "role"), [(1, "end"), (2, "end"), (5, "padding")])
def test_a_mask_token_that_text_may_hold(mask: int, role: str, target: Path, tmp_path: Path) -> None:
    (finding,) = pair.check(target, draft(tmp_path, mask=mask)).findings
    assert finding.level == "error"
    assert f"is the target's {role} token, so that acceptance quietly erodes" in finding.what


def test_other_texts_at_the_same_ids(target: Path, tmp_path: Path) -> None:
    tokens = tokenizer_keys(300)["tokenizer.ggml.tokens"]
    tokens[5], tokens[6] = tokens[6], tokens[5]
    path = draft(tmp_path, extra_keys={"tokenizer.ggml.tokens": tokens})
    (text,) = texts(pair.check(target, path))
    assert text.startswith("the tokenizers differ, first at token 5 (target '<|pad|>', drafter '\\u0100'); use the")


def padded(tmp_path: Path, count: int) -> Path:
    """A target of ``count`` tokens, those from 300 on being padding."""
    tokens = [*tokenizer_keys(300)["tokenizer.ggml.tokens"], *(f"[PAD{i}]" for i in range(300, count))]
    keys = {"tokenizer.ggml.tokens": tokens}
    return tiny.write_target(tmp_path / "padded.gguf", extra_keys=keys, **SMALL | {"layers": 4, "vocab": count})


def test_padding_may_differ_when_the_drafter_has_its_own_head(tmp_path: Path) -> None:
    path, target = draft(tmp_path), padded(tmp_path, 308)
    (finding,) = pair.check(target, path).findings
    assert (finding.level, finding.what) == ("error", "vocabularies differ in length")
    table = np.zeros((300, 288), np.float32)
    path = draft(tmp_path, tensors={"output.weight": table, "token_embd.weight": table})
    report = pair.check(target, path)
    assert [finding.level for finding in report.findings] == ["warning"]
    assert texts(report) == [
        "vocabularies differ in length, by padding alone (target 308, drafter 300); nothing needs to be done"
    ]
    assert report.ok
    path = draft(tmp_path, vocab=299, tensors={"output.weight": table[1:], "token_embd.weight": table[1:]})
    assert not pair.check(target, path).ok


def test_nothing_native_is_loaded(target: Path, tmp_path: Path) -> None:
    path = draft(tmp_path)
    code = (
        "import sys; from dflash_gguf.pair import check; from dflash_gguf.modelfile.api import render;"
        "check(*sys.argv[1:]); render(*sys.argv[1:]);"
        "print(sorted({'numpy', 'llama_cpp', 'gguf', 'dflash_gguf._core'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(target), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("style", ["buun", "lucebox"])
def test_a_forks_file_is_compared_as_far_as_it_can_be(style: str, tmp_path: Path) -> None:
    native = forks.small_drafter(tmp_path, taps=(1, 30), mask=3)
    path = forks.write_fork(native, tmp_path / "fork.gguf", forks.STYLES[style])
    target = tiny.write_target(tmp_path / "t.gguf", layers=5, **(forks.SMALL | {"hidden": 128}))
    found = pair.check(target, path).findings
    assert "does not load in llama.cpp" in found[0].what
    told = [finding.what for finding in found[1:]]
    assert "hidden sizes differ" in told
    assert "the drafter reads layers that the target does not have" in told
    fitting = pair.check(forks.small_files()["target"], forks.small_files()[style])
    assert len(fitting.findings) == 1


def test_both_files_are_named_when_neither_is_a_gguf(tmp_path: Path) -> None:
    paths = tmp_path / "a.gguf", tmp_path / "b.gguf"
    for path in paths:
        path.write_bytes(b"no model")
    with pytest.raises(GGUFError) as caught:
        pair.check(*paths)
    assert all(f"`{path}`: not a GGUF file" in str(caught.value) for path in paths)


@pytest.mark.parametrize("arch", ["dflash", "dflash-draft", "x-dflash-draft"])
def test_a_drafter_alone_is_said_to_be_one(arch: str, tmp_path: Path) -> None:
    header = read_header(tiny.write_gguf(tmp_path / "d.gguf", arch, {}, {}))
    with pytest.raises(PairError, match="it is itself a drafter") as caught:
        pair.check_alone(header)
    assert "does not expose" not in str(caught.value)


def test_no_architecture_is_told_once(target: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.gguf"
    bare.write_bytes(gguf_bytes.gguf((("a.count", gguf_bytes.u32(1)),)))
    for files in ((bare, target), (target, bare)):
        (finding,) = pair.check(*files).findings
        assert "`general.architecture` is missing" in finding.what
    with pytest.raises(PairError, match=r"cannot be run: `general.architecture` is missing; "):
        pair.check_alone(read_header(bare))
