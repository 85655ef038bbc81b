"""Families of targets: how each is told to think, and how it is sampled, as their authors advise.

Comes in: the name of a target. Goes out: its row. Source: the model cards, and z-lab's client (dflash 0.1.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Family:
    """``effort`` is the argument of the chat template that says how much to think (empty: there is none known).

    ``trained`` says whether NeMo's DFlash recipes take such a target.
    """

    pattern: str
    effort: str = ""
    levels: tuple[str, ...] = ()
    default: str = ""
    sampling: tuple[tuple[str, str], ...] = ()
    trained: bool = False


_TOP: Final = (("--temperature", "1"), ("--top-p", "0.95"))

FAMILIES: Final = (
    Family(
        r"qwen-?3\.8",
        "reasoning_effort",
        ("low", "medium", "xhigh"),
        "xhigh",
        (*_TOP, ("--top-k", "20")),
        trained=True,
    ),
    Family(
        r"muse",
        "reasoning_strength",
        ("low", "medium", "high", "xhigh"),
        "high",
        (*_TOP, ("--top-k", "64")),
    ),
    Family(r"qwen-?3", trained=True),
    Family(r""),
)
"""The first row whose pattern is in a name; the last fits every name."""


def family_of(name: str) -> Family:
    """The row of a target's name."""
    return next(row for row in FAMILIES if re.search(row.pattern, name, re.IGNORECASE))
