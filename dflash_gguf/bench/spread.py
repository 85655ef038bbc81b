"""How sure a ratio of two speeds is.

Comes in: seconds and tokens of requests, in groups. Goes out: a ratio and an interval around it. Knows nothing of
models; the bootstrap is seeded, so the same measurements give the same interval.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES: Final = 2000
LEVEL: Final = 0.95
FEWEST: Final = 3
"""Prompts of a group below which no interval is given: a bootstrap of one or two says nothing."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds and tokens of one prompt's requests, over all runs, without the drafter and with it."""

    plain_seconds: float
    plain_tokens: int
    drafted_seconds: float
    drafted_tokens: int


def seconds_per_token(costs: Sequence[Cost]) -> tuple[float, float]:
    """Over all tokens: without the drafter, and with it."""
    plain = sum(cost.plain_seconds for cost in costs) / sum(cost.plain_tokens for cost in costs)
    drafted = sum(cost.drafted_seconds for cost in costs) / sum(cost.drafted_tokens for cost in costs)
    return plain, drafted


def balanced(groups: Sequence[Sequence[Cost]]) -> tuple[float, float]:
    """Seconds per token when each group writes the same number of tokens: the mean over the groups of each side."""
    each = [seconds_per_token(costs) for costs in groups]
    return sum(plain for plain, _ in each) / len(each), sum(drafted for _, drafted in each) / len(each)


def ratio(groups: Sequence[Sequence[Cost]]) -> float:
    """Tokens per second with the drafter over without, with the same number of tokens of each group."""
    plain, drafted = balanced(groups)
    return plain / drafted


def interval(groups: Sequence[Sequence[Cost]]) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of `ratio`: prompts are drawn anew within their group, with replacement.

    None where some group has fewer than `FEWEST` prompts: it would count as if it were known for certain.
    """
    if min(map(len, groups)) < FEWEST:
        return None
    draw = random.Random(0)  # noqa: S311  not a secret
    found = sorted(ratio([draw.choices(costs, k=len(costs)) for costs in groups]) for _ in range(RESAMPLES))
    return quantile(found, (1 - LEVEL) / 2), quantile(found, (1 + LEVEL) / 2)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` of ``ordered`` lies, between two of them by proportion."""
    place = share * (len(ordered) - 1)
    below, above = ordered[floor(place)], ordered[ceil(place)]
    return below + (above - below) * (place - floor(place))
