"""The NumPy reference against libllama's own graph, on tiny F32 models, without this package."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import llama_cpp
import numpy as np
import pytest
import reference
import tiny
from libllama import FLOATS, Model, batch, cpp_function

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = [80, 300, 116, 119, 52, 279, 376, 116, 40, 91, 200, 411, 30, 31, 32, 33, 500, 17, 70, 71, 90, 6]
TAPS = [1, 2, 3]
PRECISE = {"type_k": 0, "type_v": 0, "flash_attn_type": 0}
"""F32 cache and plain attention: libllama's CPU flash attention alone moves the scores by up to 0.008."""

VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "window": {"window": 9},
    "wide kernel": {"conv": 3},
    "deeper": {"layers": 3, "block": 5},
}


def layer_inputs(target: Model, ids: list[int]) -> np.ndarray:
    """[len(ids), taps * hidden]: what the target's tapped layers read."""
    enable = cpp_function("llama_set_embeddings_layer_inp", "P13llama_contextjb")
    read = cpp_function("llama_get_embeddings_layer_inp", "P13llama_contextj", FLOATS)
    for tap in TAPS:
        enable(target.context, tap, True)
    target.decode(batch(ids, first=0, outputs=True))
    shape = (len(ids), tiny.TARGET.hidden)
    return np.concatenate([np.ctypeslib.as_array(read(target.context, tap), shape) for tap in TAPS], axis=1)


def packed_lattice(drafter: Model, features: np.ndarray, last: int, mask: int, size: int) -> np.ndarray:
    """[size, hidden] packed rows of the block after the injected ``features``."""
    enable = cpp_function("llama_set_embeddings_nextn", "P13llama_contextbb")
    read = cpp_function("llama_get_embeddings_nextn", "P13llama_context", FLOATS)
    enable(drafter.context, True, False)
    llama_cpp.llama_set_causal_attn(drafter.context, False)
    drafter.decode(batch(features, first=0, outputs=False))
    drafter.decode(batch([last] + [mask] * (size - 1), first=len(features), outputs=False))
    return np.ctypeslib.as_array(read(drafter.context), (size, tiny.DRAFTER.hidden)).copy()


@pytest.fixture(scope="module")
def target_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_target(tmp_path_factory.mktemp("target") / "target.gguf", type="F32")


@pytest.mark.parametrize("name", VARIANTS)
def test_reference_equals_libllama(name: str, target_path: Path, tmp_path: Path) -> None:
    dims = VARIANTS[name]
    path = tiny.write_drafter(tmp_path / "drafter.gguf", **dims)
    config = tiny.drafter_config(replace(tiny.DRAFTER, **dims))
    size, mask, last = config["block_size"], config["dflash_config"]["mask_token_id"], 123
    with Model(target_path) as target, Model(path, other=target, **PRECISE) as drafter:
        features = layer_inputs(target, PROMPT)
        packed = packed_lattice(drafter, features, last, mask, size)

    weights = tiny.target_values(type="F32")
    numpy_drafter = reference.Drafter(
        tiny.checkpoint_values(dtype="F32", **dims),
        config,
        weights["token_embd.weight"],
        weights["output.weight"],
    )
    numpy_drafter.inject(features)
    expected = numpy_drafter.lattice(last)

    top_k = tiny.DRAFTER.top_k
    before = None
    for row, candidates, scores in zip(packed[1:], expected.candidates, expected.scores, strict=True):
        ids = row[:top_k].astype(int)
        assert sorted(ids) == sorted(candidates)
        order = [list(candidates).index(i) for i in ids]
        got = row[top_k : top_k + top_k * top_k].reshape(top_k, top_k)
        want = scores[:, order] if before is None else scores[before][:, order]
        np.testing.assert_allclose(got, want, atol=1e-3)
        before = order
    assert upstream_walk(packed[1:], top_k) == reference.walk(expected)


def upstream_walk(rows: np.ndarray, top_k: int) -> list[int]:
    chosen, path = 0, []
    for row in rows:
        chosen = int(row[top_k + chosen * top_k :][:top_k].argmax())
        path.append(int(row[chosen]))
    return path
