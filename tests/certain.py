"""A pair whose every proposal is accepted: the target always writes one token, and so does the drafter.

Comes in: a folder. Goes out: two files. The token follows from the sign of one number of each row, which the table of
embeddings sets: a drafter whose mask token has the wrong sign proposes another token, and nothing is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tiny

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN = 40
"""The token that the target writes."""
WRONG_MASK = 7
"""The only token whose sign is the wrong one."""
SMALL = {"hidden": 64, "ffn": 64, "layers": 1, "heads": 1, "kv_heads": 1, "vocab": 300, "taps": (0, 1)}
TARGET_SMALL = {"hidden": 64, "ffn": 64, "layers": 4, "heads": 1, "kv_heads": 1, "vocab": 300}


def write_certain_target(path: Path, **options: object) -> Path:
    embeddings = np.random.default_rng(5).standard_normal((300, 64)).astype(np.float32) * 0.1
    embeddings[:, 0] = 8.0
    embeddings[WRONG_MASK, 0] = -8.0
    head = np.zeros((300, 64), np.float32)
    head[WRITTEN, 0] = 1.0
    tensors = {"token_embd.weight": embeddings, "output.weight": head} | _quiet(4)
    return tiny.write_target(path, tensors=tensors, **TARGET_SMALL, **options)


def write_certain_drafter(path: Path, **overrides: object) -> Path:
    return tiny.write_drafter(path, kind="dflash", tensors=_quiet(1), **SMALL | overrides)


def _quiet(layers: int) -> dict[str, np.ndarray]:
    """Layers that add nothing, and a last norm that keeps the first number of a row."""
    zeros = np.zeros((64, 64), np.float32)
    norm = np.zeros(64, np.float32)
    norm[0] = 1.0
    quiet = {f"blk.{i}.{name}.weight": zeros for i in range(layers) for name in ("attn_output", "ffn_down")}
    # an output of 64 values comes from one head of 64
    return quiet | {"output_norm.weight": norm}
