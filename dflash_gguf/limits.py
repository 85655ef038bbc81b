"""The largest numbers that a user may ask for, once: the command line's ranges and the session's checks read them.

Comes in: a name and a value. Goes out: the value, or an error. Knows nothing of models.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Final

from dflash_gguf.errors import SessionError, brief


@dataclass(frozen=True, slots=True)
class Range:
    """Both ends are allowed."""

    least: int
    most: int


RANGES: Final[dict[str, Range]] = {
    "n_ctx": Range(0, 1 << 24),
    "n_ubatch": Range(1, 1 << 15),
    "n_threads": Range(1, 512),  # ggml.h: GGML_MAX_N_THREADS
    "n_threads_draft": Range(1, 512),
    "n_batch": Range(1, 1 << 15),
    "parallel": Range(1, 256),  # llama.cpp: LLAMA_MAX_SEQ
    "n_ctx_draft": Range(1, 1 << 24),
    "n_gpu_layers": Range(-1, 1 << 15),
    "main_gpu": Range(0, 255),
    "spec_draft_n_max": Range(1, (1 << 31) - 1),
    "spec_draft_n_min": Range(0, (1 << 31) - 1),
    "max_tokens": Range(-1, (1 << 31) - 1),
    "logprobs": Range(0, 1 << 10),
    "top_k": Range(-(1 << 31), (1 << 31) - 1),
    "min_keep": Range(0, (1 << 31) - 1),
    "repeat_last_n": Range(-1, (1 << 31) - 1),
    "last_n_tokens_size": Range(-1, (1 << 31) - 1),
    "dry_allowed_length": Range(0, (1 << 31) - 1),
    "dry_penalty_last_n": Range(-1, (1 << 31) - 1),
}


def checked(name: str, value: object) -> int:
    """``value`` as an int, or SessionError naming what is allowed."""
    allowed = RANGES[name]
    expected = f"a whole number from {allowed.least} to {allowed.most}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SessionError(f"`{name}`", value=brief(value), expected=expected)
    number = operator.index(value)
    if not allowed.least <= number <= allowed.most:
        raise SessionError(f"`{name}` is out of range", value=number, expected=expected)
    return number
