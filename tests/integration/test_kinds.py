"""Every kind and shape of drafter in the loop, on a real target: some drafts are right, and the text stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from certain import (
    WRITTEN,
    own_tables,
    reduced_head,
    write_alternating_target,
    write_half_right_drafter,
)
from test_session import ids_of

from dflash_gguf import Session

if TYPE_CHECKING:
    from pathlib import Path

CONFIDENCE = {"conf_proj.weight": np.zeros((1, 64 + 32), np.float32), "conf_proj.bias": np.zeros(1, np.float32)}
SINKS = {"blk.0.attn_sinks.weight": np.zeros(1, np.float32)}

SHAPES: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any]]] = {
    "DFlash": ("dflash", {}, {}),
    "DFlash, anchor first": ("dflash", {}, {"extra_keys": {"dflash.sample_from_anchor": True}}),
    "DFlash, causal": ("dflash", {}, {"extra_keys": {"dflash.attention.causal": True}}),
    "DFlash, window": ("dflash", {}, {"window": 16}),
    "DFlash, sinks": ("dflash", SINKS, {}),
    "DFlash, sections": ("dflash", {}, {"extra_keys": {"dflash.rope.dimension_sections": [32, 0, 0, 0]}}),
    "DFlash, own tables": ("dflash", own_tables(), {}),
    "DFlash, reduced vocabulary": (
        "dflash",
        {name: array for name, array in reduced_head().items() if "markov" not in name},
        {},
    ),
    "DFlash 2": ("dflash2", {}, {}),
    "DFlash 2, window": ("dflash2", {}, {"window": 16}),
    "DFlash 2, sections": ("dflash2", {}, {"extra_keys": {"dflash.rope.dimension_sections": [32, 0, 0, 0]}}),
    "DFlash 2, own tables": ("dflash2", own_tables(), {}),
    "DSpark, anchor first": ("dspark", {}, {"extra_keys": {"dflash.sample_from_anchor": True}}),
    "DSpark, bonus anchor": ("dspark", {}, {"extra_keys": {"dflash.sample_from_anchor": False}}),
    "DSpark, confidence head": ("dspark", CONFIDENCE, {"extra_keys": {"dflash.has_confidence_head": True}}),
    "DSpark, reduced vocabulary": ("dspark", reduced_head(), {"extra_keys": {"dflash.sample_from_anchor": False}}),
    "DSpark, causal with a window": ("dspark", {}, {"window": 16, "extra_keys": {"dflash.attention.causal": True}}),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_alternating_target(tmp_path_factory.mktemp("alternating") / "target.gguf")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_drafter_of_each_shape_drafts_and_leaves_the_text_alone(shape: str, target: Path, tmp_path: Path) -> None:
    kind, changes, overrides = SHAPES[shape]
    draft = write_half_right_drafter(tmp_path / "d.gguf", kind, changes, **overrides)
    with Session(target, draft, n_ctx=256, n_threads=1, depth="fixed") as session:
        for length in (1, 20, 70):
            prompt = [50 + i % 7 for i in range(length)]
            ids, stats = ids_of(session, prompt, 60)
            assert ids == [WRITTEN + i % 2 for i in range(60)]
            assert stats.drafter == shape.split(",", maxsplit=1)[0]
            # The first proposal of a block is right, but for the anchor's own row, and the one behind it is not.
            assert 0 < stats.draft_n_accepted < stats.draft_n
            assert stats.injected_n == stats.prompt_n + 59
