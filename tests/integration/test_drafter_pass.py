"""A converted drafter in the native core proposes what the NumPy reference proposes, block after block."""

import numpy as np
import pytest
import reference
import tiny
from libllama import Model
from test_reference import PRECISE, PROMPT, VARIANTS

from dflash_gguf import _core
from dflash_gguf.convert.api import convert

TAPS = [1, 2, 3]


@pytest.fixture(scope="module")
def target_path(tmp_path_factory):
    return tiny.write_target(tmp_path_factory.mktemp("target") / "target.gguf", type="F32")


def numpy_drafter(dims):
    weights = tiny.target_values(type="F32")
    config = tiny.drafter_config(tiny.replace(tiny.DRAFTER, **dims))
    values = tiny.checkpoint_values(dtype="F32", **dims)
    return reference.Drafter(values, config, weights["token_embd.weight"], weights["output.weight"])


def check_block(core, expected, last, pos, n):
    """Candidate ids equal, scores within 1e-3, the same walk."""
    ids, scores = core.lattice(last, pos, n)
    lattice = expected.lattice(last)
    before = None
    for i in range(n):
        candidates = list(lattice.candidates[i])
        assert sorted(ids[i]) == sorted(candidates)
        order = [candidates.index(token) for token in ids[i]]
        rows = lattice.scores[i] if before is None else lattice.scores[i][before]
        np.testing.assert_allclose(scores[i], rows[:, order], atol=1e-3)
        before = order
    assert core.draft(last, pos, n) == reference.walk(lattice)


@pytest.mark.parametrize("name", VARIANTS)
def test_blocks_equal_the_reference(name, target_path, tmp_path):
    dims = VARIANTS[name]
    checkpoint = tiny.write_checkpoint(tmp_path / "checkpoint", dtype="F32", **dims)
    path = convert(checkpoint, target_path, "F32", tmp_path / "drafter.gguf").path
    block = dims.get("block", tiny.DRAFTER.block)
    expected = numpy_drafter(dims)
    with (
        Model(target_path, n_ubatch=64) as target,
        Model(path, other=target, n_batch=64, n_ubatch=64, **PRECISE) as drafter,
    ):
        core_target = _core.LlamaTarget(target.context, 1 << 20, TAPS, 1)
        core = _core.LlamaDrafter(drafter.context, _core.Kind.dflash2, anchor_first=False)
        assert core.n_max == block - 1
        core_target.decode(PROMPT, 0, 1)
        features = core_target.features(0, len(PROMPT))
        core.inject(features, 0)
        expected.inject(features)
        check_block(core, expected, 123, len(PROMPT), block - 1)

        core_target.decode([123, 45, 67], len(PROMPT), 3)
        more = core_target.features(0, 2)
        core.inject(more, len(PROMPT))
        expected.inject(more)
        check_block(core, expected, 67, len(PROMPT) + 2, block - 1)


@pytest.mark.parametrize(
    ("dims", "extra_keys", "length"),
    [
        ({}, {"dflash.rope.dimension_sections": [32, 0, 0, 0]}, 22),
        ({"window": 9}, {}, 700),
        ({"window": 128}, {}, 700),
    ],
    ids=["sections of positions", "window wrapped", "wide window wrapped"],
)
def test_positions_and_windows_of_long_prompts(dims, extra_keys, length, target_path, tmp_path):
    """More context than a windowed cache holds, and the position rows of an M-RoPE drafter; also a block cut short."""
    path = tiny.write_drafter(tmp_path / "drafter.gguf", extra_keys=extra_keys, **dims)
    expected = numpy_drafter(dims)
    prompt = np.random.default_rng(5).integers(6, 500, length).tolist()
    with (
        Model(target_path, n_ctx=1024, n_batch=64, n_ubatch=64) as target,
        Model(path, other=target, n_ctx=1024, n_batch=64, n_ubatch=64, swa_full=False, **PRECISE) as drafter,
    ):
        core_target = _core.LlamaTarget(target.context, 1 << 20, TAPS, 1)
        core = _core.LlamaDrafter(drafter.context, _core.Kind.dflash2, anchor_first=False)
        for start in range(0, length, 64):
            piece = prompt[start : start + 64]
            core_target.decode(piece, start, 0)
            features = core_target.features(0, len(piece))
            core.inject(features, start)
            expected.inject(features)
        check_block(core, expected, 123, length, 7)
        ids, _ = core.lattice(123, length, 3)
        assert [sorted(row) for row in ids] == [sorted(row) for row in expected.lattice(123, 4).candidates]


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
@pytest.mark.parametrize("anchor_first", [False, True])
@pytest.mark.parametrize("window", [0, 9])
def test_rows_equal_the_reference(kind, anchor_first, window, target_path, tmp_path):
    dims = {"kind": kind, "window": window}
    path = tiny.write_drafter(tmp_path / "drafter.gguf", **dims, extra_keys={"dflash.sample_from_anchor": anchor_first})
    expected = numpy_drafter(dims)
    with (
        Model(target_path, n_ubatch=64) as target,
        Model(path, other=target, n_batch=64, n_ubatch=64, n_outputs_max=8, **PRECISE) as drafter,
    ):
        core_target = _core.LlamaTarget(target.context, 1 << 20, TAPS, 1)
        core = _core.LlamaDrafter(drafter.context, getattr(_core.Kind, kind), anchor_first)
        assert core.n_max == (8 if anchor_first else 7)
        core_target.decode(PROMPT, 0, 1)
        features = core_target.features(0, len(PROMPT))
        core.inject(features, 0)
        expected.inject(features)
        for n in (core.n_max, 3):
            rows = expected.rows(123, n, anchor_first=anchor_first)
            np.testing.assert_allclose(core.rows(123, len(PROMPT), n), rows, atol=1e-3)
            assert core.draft(123, len(PROMPT), n) == rows.argmax(axis=1).tolist()


def test_a_drafter_of_another_kind_is_refused(target_path, tiny_drafter):
    from dflash_gguf import DflashError

    with Model(target_path) as target, Model(tiny_drafter, other=target, n_batch=64, n_ubatch=64) as drafter:
        with pytest.raises(DflashError, match="another kind"):
            _core.LlamaDrafter(drafter.context, _core.Kind.dflash, anchor_first=False)
        core = _core.LlamaDrafter(drafter.context, _core.Kind.dflash2, anchor_first=False)
        with pytest.raises(DflashError, match="not logits"):
            core.rows(1, 0, 3)
        with pytest.raises(DflashError, match=r"1 to 7 tokens, not 8"):
            core.draft(1, 0, 8)


def test_features_of_another_width_are_refused(target_path, tiny_drafter):
    from dflash_gguf import DflashError

    with Model(target_path) as target, Model(tiny_drafter, other=target, n_batch=64, n_ubatch=64) as drafter:
        core = _core.LlamaDrafter(drafter.context, _core.Kind.dflash2, anchor_first=False)
        with pytest.raises(DflashError, match="another width"):
            core.inject(np.zeros((1, 7), np.float32), 0)
