"""A pair whose every proposal is accepted: the target always writes one token, and so does the drafter.

Comes in: a folder. Goes out: two files. The token follows from the sign of one number of each row, which the table of
embeddings sets: a drafter whose mask token has the wrong sign proposes another token, and nothing is accepted.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import tiny

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WRITTEN = 40
"""The token that the target writes."""
WRONG_MASK = 7
"""The only token whose sign is the wrong one."""
SMALL = {"hidden": 64, "ffn": 64, "layers": 1, "heads": 1, "kv_heads": 1, "vocab": 300, "taps": (0, 1)}
TARGET_SMALL = {"hidden": 64, "ffn": 64, "layers": 4, "heads": 1, "kv_heads": 1, "vocab": 300}


def write_certain_target(path: Path, changes: Mapping[str, np.ndarray] = MappingProxyType({}), **options: Any) -> Path:
    embeddings = np.random.default_rng(5).standard_normal((300, 64)).astype(np.float32) * 0.1
    embeddings[:, 0] = 8.0
    embeddings[WRONG_MASK, 0] = -8.0
    head = np.zeros((300, 64), np.float32)
    head[WRITTEN, 0] = 1.0
    tensors = {"token_embd.weight": embeddings, "output.weight": head} | _quiet(4) | changes
    return tiny.write_target(path, tensors=tensors, **TARGET_SMALL, **options)


def write_certain_drafter(
    path: Path, changes: Mapping[str, np.ndarray] = MappingProxyType({}), kind: str = "dflash", **overrides: Any
) -> Path:
    return tiny.write_drafter(path, kind=kind, tensors=_quiet(1) | changes, **SMALL | overrides)


def _quiet(layers: int) -> dict[str, np.ndarray]:
    """Layers that add nothing, and a last norm that keeps the first number of a row."""
    zeros = np.zeros((64, 64), np.float32)
    norm = np.zeros(64, np.float32)
    norm[0] = 1.0
    quiet = {f"blk.{i}.{name}.weight": zeros for i in range(layers) for name in ("attn_output", "ffn_down")}
    # an output of 64 values comes from one head of 64
    return quiet | {"output_norm.weight": norm}


def write_alternating_target(path: Path) -> Path:
    """It writes the tokens 40 and 41 in turn: what follows 40 shows in the second number of its row."""
    embeddings = np.random.default_rng(5).standard_normal((300, 64)).astype(np.float32) * 0.1
    embeddings[:, :2] = 8.0, 0.0
    embeddings[WRITTEN, 1] = 16.0
    head = np.zeros((300, 64), np.float32)
    head[WRITTEN, 0] = head[WRITTEN + 1, 1] = 1.0
    tensors = {"token_embd.weight": embeddings, "output.weight": head} | _quiet(4) | {"output_norm.weight": FIRST_TWO}
    return tiny.write_target(path, tensors=tensors, **TARGET_SMALL)


FIRST_TWO = np.array([1, 1, *[0] * 62], np.float32)


def write_half_right_drafter(path: Path, kind: str, changes: Mapping[str, np.ndarray], **overrides: Any) -> Path:
    """A drafter for that target whose first proposal is right and whose next ones are 40 as well."""
    own = {"output_norm.weight": FIRST_TWO}
    if kind == "dflash2":
        own |= {
            "selector_predecessor.weight": np.zeros((300, 32), np.float32),
            "selector_successor.weight": np.zeros((300, 32), np.float32),
        }
        overrides |= {"top_k": 4}
    if kind == "dspark":
        own |= {name: np.zeros((300, 32), np.float32) for name in ("markov_w1.weight", "markov_w2.weight")}
    return write_certain_drafter(path, own | changes, kind, **overrides)


def reduced_head() -> dict[str, np.ndarray]:
    """A head of 64 rows for the tokens 0, 4, 8, ..., and the list of these."""
    head = np.zeros((64, 64), np.float32)
    head[WRITTEN // 4, 0] = 1.0
    return {
        "output.weight": head,
        "d2t": np.arange(0, 256, 4, dtype=np.int64),
        "markov_w2.weight": np.zeros((64, 32), np.float32),
    }


def own_tables() -> dict[str, np.ndarray]:
    """Embeddings and a head of the drafter's own."""
    embeddings = np.zeros((300, 64), np.float32)
    embeddings[:, 0] = 8.0
    head = np.zeros((300, 64), np.float32)
    head[WRITTEN, 0] = 1.0
    return {"token_embd.weight": embeddings, "output.weight": head}
