"""What runs through a drafter's matrices, as the native core sums it up: the NumPy reference's, and by identities."""

from __future__ import annotations

import ctypes

import llama_cpp
import numpy as np
import pytest
import tiny
import tiny_targets
from libllama import Model
from test_drafter_pass import numpy_drafter
from test_reference import PRECISE, PROMPT

from dflash_gguf import _core
from dflash_gguf.errors import SessionError

TAPS = [1, 2, 3]


def watching(activations):
    """Settings of a context that ``activations`` sees every pass of."""
    callback = ctypes.cast(activations.callback, llama_cpp.ggml_backend_sched_eval_callback)
    return {"cb_eval": callback, "cb_eval_user_data": activations.address}


class Watched(np.ndarray):
    """A matrix that keeps what it is multiplied with: a sum of squares a column, and a count of rows."""

    def __array_finalize__(self, base):
        self.seen = getattr(base, "seen", None)

    def __rmatmul__(self, rows):
        rows = np.asarray(rows)
        self.seen["sums"] = self.seen.get("sums", 0) + np.square(rows).reshape(-1, rows.shape[-1]).sum(axis=0)
        self.seen["count"] = self.seen.get("count", 0) + rows.size // rows.shape[-1]
        return rows @ np.asarray(self)


def watched(array, seen):
    view = np.asarray(array).view(Watched)
    view.seen = seen
    return view


@pytest.mark.parametrize("kind", ["dflash", "dflash2", "dspark"])
def test_sums_equal_the_references(kind, tmp_path):
    target_path = tiny.write_target(tmp_path / "target.gguf", type="F32")
    keys = {"dflash.sample_from_anchor": False}
    path = tiny.write_drafter(tmp_path / "drafter.gguf", kind=kind, layers=1, extra_keys=keys)
    expected = numpy_drafter({"kind": kind, "layers": 1})
    seen = {name: {} for name, array in expected.arrays.items() if array.ndim == 2}
    expected.arrays |= {name: watched(expected.arrays[name], seen[name]) for name in seen}
    activations = _core.Activations()
    for name in seen:
        activations.add(tiny.gguf_name(name), expected.arrays[name].shape[1], 1)
    with (
        Model(target_path, n_ubatch=64) as target,
        Model(
            path, other=target, n_batch=64, n_ubatch=64, n_outputs_max=8, **PRECISE, **watching(activations)
        ) as drafter,
    ):
        core_target = _core.LlamaTarget(target.context, 1 << 20, TAPS, 1)
        core = _core.LlamaDrafter(drafter.context, getattr(_core.Kind, kind), anchor_first=False)
        core_target.decode(PROMPT, 0, 1)
        features, before = core_target.features(0, len(PROMPT)), []
        for start in (0, 9):
            end = 9 if start == 0 else len(PROMPT)
            core.inject(features[start:end], start)
            expected.inject(features[start:end])
            before += [PROMPT[3], *core.draft(PROMPT[3], end, 7)[:-1]]
            expected.lattice(PROMPT[3]) if kind == "dflash2" else expected.rows(PROMPT[3], 7)
    activations.check()
    for name, found in seen.items():
        ours = activations.sums(tiny.gguf_name(name))[0]
        (count,) = activations.counts(tiny.gguf_name(name))
        if name.endswith(("codebook", "markov_w1.weight")):  # only looked up
            assert (count, ours.any()) == (0, False)
        elif name.endswith("hidden_projection.weight"):  # the reference leaves the anchor's row out: nobody reads it
            assert count == found["count"] + 2
        elif name.endswith("markov_w2.weight"):  # multiplied with the rows of the tokens before
            rows = np.asarray(expected.arrays["markov_head.markov_w1.weight"])[before]
            assert count == len(before) == 14
            np.testing.assert_allclose(ours, np.square(rows).sum(axis=0), rtol=1e-4)
        else:
            assert count == found["count"], name
            np.testing.assert_allclose(ours, found["sums"], rtol=2e-3, err_msg=name)


def test_experts_are_counted_one_by_one(tmp_path):
    path = tiny_targets.write_gpt_oss(tmp_path / "target.gguf")
    names = {"blk.0.ffn_gate_inp.weight": 1, "blk.0.ffn_gate_exps.weight": 4, "blk.0.ffn_down_exps.weight": 4}
    activations = _core.Activations()
    from dflash_gguf.gguf_header import read_header

    shapes = {name: read_header(path).tensors[name].shape for name in names}
    for name in names:
        activations.add(name, shapes[name][0], int(np.prod(shapes[name][2:])))
    with Model(path, n_ubatch=64, **watching(activations)) as target:
        core = _core.LlamaTarget(target.context, 1 << 20, [], 1)
        core.decode(PROMPT, 0, 1)
    activations.check()
    used = read_header(path).integer("gpt-oss.expert_used_count")
    router, gates, downs = (activations.sums(name) for name in names)
    counts = [activations.counts(name) for name in names]
    assert counts[0][0] >= len(PROMPT) - 1
    assert sum(counts[1]) == sum(counts[2]) == used * counts[0][0]
    assert len(gates) == len(counts[1]) == shapes["blk.0.ffn_gate_exps.weight"][2]
    np.testing.assert_allclose(gates.sum(axis=0), used * router[0], rtol=1e-3)
    assert (downs.sum(axis=1) > 0).tolist() == [count > 0 for count in counts[2]]


def drafted(tmp_path, activations, **changes):
    target_path = tiny.write_target(tmp_path / "target.gguf", type="F32")
    path = tiny.write_drafter(tmp_path / "drafter.gguf", kind="dflash", layers=1, **changes)
    with (
        Model(target_path, n_ubatch=64) as target,
        Model(path, other=target, n_batch=64, n_ubatch=64, **watching(activations)) as drafter,
    ):
        core_target = _core.LlamaTarget(target.context, 1 << 20, TAPS, 1)
        core = _core.LlamaDrafter(drafter.context, _core.Kind.dflash, anchor_first=False)
        core_target.decode(PROMPT, 0, 1)
        core.inject(core_target.features(0, len(PROMPT)), 0)


def test_what_is_not_finite_is_told_by_name(tmp_path):
    activations = _core.Activations()
    activations.add("blk.0.attn_k.weight", 512, 1)
    values = np.full(512, np.nan, np.float32)
    drafted(tmp_path, activations, tensors={"enc.output_norm.weight": values})
    with pytest.raises(SessionError, match=r"an input of `blk.0.attn_k.weight` is not finite"):
        activations.check()


def test_another_width_is_told_by_name(tmp_path):
    activations = _core.Activations()
    activations.add("blk.0.attn_k.weight", 256, 1)
    drafted(tmp_path, activations)
    with pytest.raises(SessionError, match=r"`blk.0.attn_k.weight` has rows of 256 values, its input 512"):
        activations.check()


def test_names_that_were_not_asked_for():
    activations = _core.Activations()
    with pytest.raises(SessionError, match="`x` was not asked for"):
        activations.sums("x")
    with pytest.raises(SessionError, match="has no rows"):
        activations.add("x", 0, 1)
