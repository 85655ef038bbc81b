"""What settings may be, once: the command line's ranges and the library's checks read them.

Comes in: a name and a value. Goes out: nothing, or an error. Whole numbers are in limits.py. Knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dflash_gguf.errors import SessionError, brief

LONGEST_GRAMMAR: Final = 1 << 18
"""Bytes of a grammar; libllama's parser recurses as deep as its text nests."""
LONGEST_SCHEMA: Final = 4 * LONGEST_GRAMMAR
"""Characters of a JSON schema; its grammar leaves out descriptions, and one of this length takes about a second."""

SEEDS: Final = 1 << 64

ARGMAX: Final = "argmax"
KEYED: Final = "keyed"
AUTO: Final = "auto"
FIXED: Final = "fixed"
DRAFT_RULES: Final = (ARGMAX, KEYED, AUTO)
"""As `_core.DraftRule` names them."""
DEPTHS: Final = (AUTO, FIXED)
"""Who decides how many tokens are drafted and verified: depth control, or nobody."""
TARGET: Final = "target"
COPY: Final = "copy"
DRAFT_HEADS: Final = (AUTO, TARGET, COPY)
"""Which head a drafter without one uses: its target's, a smaller copy of that, or whichever pays."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Both ends are allowed."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"


_LARGEST: Final = 1e6
"""Beyond it lies what single precision cannot tell apart."""
SHARE: Final = Bounds(0, 1)
SIGNED: Final = Bounds(-_LARGEST, _LARGEST)
_NOT_NEGATIVE: Final = Bounds(0, _LARGEST)
_POSITIVE: Final = Bounds(1 / _LARGEST, _LARGEST)

BOUNDS: Final[dict[str, Bounds]] = {
    "temperature": _NOT_NEGATIVE,
    "dynatemp_range": _NOT_NEGATIVE,
    "dynatemp_exponent": _NOT_NEGATIVE,
    "top_p": SHARE,
    "min_p": SHARE,
    "typical_p": SHARE,
    "top_n_sigma": SIGNED,
    "xtc_probability": SHARE,
    "xtc_threshold": SHARE,
    "repeat_penalty": _POSITIVE,
    "frequency_penalty": SIGNED,
    "presence_penalty": SIGNED,
    "dry_multiplier": _NOT_NEGATIVE,
    "dry_base": _NOT_NEGATIVE,
}
"""Setting -> its bounds; whole numbers are in limits.py."""


def check_bounds(name: str, value: object, bounds: Bounds) -> None:
    """Raises SessionError when ``value`` is no number within ``bounds``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not bounds.least <= value <= bounds.most:
        raise SessionError(f"`{name}`", value=brief(value), expected=str(bounds))
