"""A fork's file, re-keyed, holds the fork's tensor data, loads, and drafts what the native conversion drafts."""

from __future__ import annotations

import forks
import gguf
import pytest
import tiny
import zoo
from families import target_of
from libllama import Model
from test_reference import PRECISE, PROMPT

from dflash_gguf import _core
from dflash_gguf.convert.api import convert
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.gguf_header import read_header
from dflash_gguf.rekeying.answers import Answers
from dflash_gguf.rekeying.api import planned, rekey

TAPS = [1, 2, 3]
ASKED = {
    "pulsar": Answers(context_length=2048, rms_eps=1e-6),
    "lucebox": Answers(),
    "buun": Answers(),
    "prism": Answers(),
}
CASES = [
    ("dflash", "buun"),
    ("dflash", "lucebox"),
    ("dflash", "pulsar"),
    ("dflash2", "pulsar"),
    ("dspark", "lucebox"),
    ("dspark", "prism"),
    ("dspark", "pulsar"),
]


@pytest.fixture(scope="module")
def target_path(tmp_path_factory):
    return tiny.write_target(tmp_path_factory.mktemp("target") / "target.gguf", type="F32")


@pytest.fixture(scope="module")
def native(tmp_path_factory, target_path):
    """Kind -> the native conversion of its checkpoint."""
    made = {}
    for kind, window in (("dflash", 9), ("dflash2", 0), ("dspark", 0)):
        folder = tmp_path_factory.mktemp(kind)
        checkpoint = tiny.write_checkpoint(folder / "checkpoint", kind=kind, window=window)
        overrides = Overrides(sample_from_anchor=True) if kind == "dspark" else Overrides()
        made[kind] = convert(checkpoint, target_path, "Q8_0", folder / "native.gguf", overrides=overrides).path
    return made


def proposals(target_path, path, kind):
    """What one pass over the block drafts after `PROMPT`, and the block after it."""
    with (
        Model(target_path, n_ubatch=64) as target,
        Model(path, other=target, n_batch=64, n_ubatch=64, n_outputs_max=8, **PRECISE) as drafter,
    ):
        core_target = _core.LlamaTarget(target.context, 1 << 20, TAPS, 1)
        core = _core.LlamaDrafter(drafter.context, getattr(_core.Kind, kind), anchor_first=kind == "dspark")
        core_target.decode(PROMPT, 0, 1)
        core.inject(core_target.features(0, len(PROMPT)), 0)
        first = core.draft(123, len(PROMPT), core.n_max)
        core_target.decode([123, *first[:2]], len(PROMPT), 3)
        core.inject(core_target.features(0, 3), len(PROMPT))
        return first, core.draft(first[2], len(PROMPT) + 3, core.n_max)


@pytest.mark.parametrize(("kind", "style"), CASES)
def test_a_forks_file_becomes_the_native_one(kind, style, native, target_path, tmp_path):
    fork = forks.write_fork(native[kind], tmp_path / "fork.gguf", forks.STYLES[style])
    with pytest.raises(ValueError, match="did not load"), Model(fork):
        pass
    answers = ASKED[style]
    if kind == "dspark":
        answers = Answers(sample_from_anchor=True, context_length=answers.context_length, rms_eps=answers.rms_eps)
    done = rekey(fork, tmp_path / "new.gguf", target_path, answers)

    assert forks.tensor_bytes(done.path) == forks.tensor_bytes(fork) == forks.tensor_bytes(native[kind])
    ours, theirs = read_header(done.path), read_header(native[kind])
    assert list(ours.tensors) == list(theirs.tensors)
    assert set(ours.keys) == set(theirs.keys)
    differing = [key for key in theirs.keys if ours.raw(key) != theirs.raw(key)]
    assert differing == []
    assert proposals(target_path, done.path, kind) == proposals(target_path, native[kind], kind)

    again = rekey(done.path, tmp_path / "again.gguf", target_path)
    assert not again.plan.changed
    assert again.path.read_bytes() == done.path.read_bytes()


@pytest.mark.parametrize("kind", ["dflash", "dflash2", "dspark"])
def test_the_native_file_stays_as_it_is(kind, native, target_path, tmp_path):
    for name, target in (("alone.gguf", None), ("paired.gguf", target_path)):
        done = rekey(native[kind], tmp_path / name, target)
        assert not done.plan.changed
        assert done.path.read_bytes() == native[kind].read_bytes()


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_no_familys_conversion_needs_rekeying(name, tmp_path):
    checkpoint = zoo.write_checkpoint(name, tmp_path)
    overrides = Overrides(**zoo.FAMILIES[name].options)
    path = convert(checkpoint, target_of(name), "BF16", tmp_path / "native.gguf", overrides=overrides).path
    assert not planned(path).changed
    assert not planned(path, target_of(name)).changed


def test_an_old_upstream_file_for_positions_in_sections(native, target_path, tmp_path):
    """Without sections, pattern and causality, as files of June 2026; the target counts positions in sections."""
    drop = ("dflash.attention.causal", "dflash.attention.sliding_window_pattern")
    old = forks.write_fork(
        native["dflash"], tmp_path / "old.gguf", forks.Style("dflash", {}, {}, drop, tap=0, vocabulary=True)
    )
    with pytest.raises(ValueError, match="did not load"), Model(old):
        pass
    sections = ([16, 8, 8, 0], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32)
    sectioned = tiny.write_target(tmp_path / "target.gguf", extra_keys={"qwen3.rope.dimension_sections": sections})
    done = rekey(old, tmp_path / "new.gguf", sectioned, Answers(sliding_layers="all"))
    header = read_header(done.path)
    assert header.integers("dflash.rope.dimension_sections") == [32, 0, 0, 0]
    assert header.booleans("dflash.attention.sliding_window_pattern") == [True, True]
    assert header.boolean("dflash.attention.causal") is False
    assert header.integers("dflash.target_layers") == TAPS
    assert forks.tensor_bytes(done.path) == forks.tensor_bytes(old)
    assert proposals(target_path, done.path, "dflash") == proposals(target_path, native["dflash"], "dflash")
