"""What the speeds mean in money, at a price an hour.

Comes in: pairs, or tokens and seconds, and a price. Goes out: one frozen record. Knows nothing of currencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.bench.measure import Measured, Pair

MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Price of a million tokens written, prompts read included, one request after another; and how many users one
    machine serves as soon as it serves one without the drafter (see `users`).
    """

    plain_per_million: float
    drafted_per_million: float
    users: float


def per_million(price_per_hour: float, seconds: float, tokens: int) -> float:
    """Price of a million tokens when ``tokens`` take ``seconds``."""
    return price_per_hour / 3600 * seconds / tokens * MILLION


def users(pairs: Sequence[Pair]) -> float:
    """Seconds of a request without the drafter over seconds with it, for answers of the same length.

    A machine answers one request at a time. Who asks again as soon as an answer is there gets one every T seconds
    without the drafter; with it, an answer takes T', and T / T' users get one every T seconds.
    """
    length = sum(pair.plain.stats.predicted_n for pair in pairs) / len(pairs)
    plain = _request_seconds([pair.plain for pair in pairs], length)
    return plain / _request_seconds([pair.drafted for pair in pairs], length)


def costs(pairs: Sequence[Pair], price_per_hour: float) -> Costs | None:
    """None when nothing was written."""
    sides = [[pair.plain for pair in pairs], [pair.drafted for pair in pairs]]
    if not all(sum(one.stats.predicted_n for one in side) for side in sides):
        return None
    plain, drafted = (
        per_million(price_per_hour, sum(map(_seconds, side)), sum(one.stats.predicted_n for one in side))
        for side in sides
    )
    return Costs(plain, drafted, users(pairs))


def _seconds(one: Measured) -> float:
    return (one.first_token_ms + one.stats.predicted_ms) / 1e3


def _request_seconds(side: Sequence[Measured], length: float) -> float:
    """Of a mean request: its first token, and ``length`` - 1 more at the speed of all."""
    first = sum(one.first_token_ms for one in side) / len(side)
    n = sum(max(0, one.stats.predicted_n - 1) for one in side)
    each = sum(one.stats.predicted_ms for one in side) / n if n else 0.0
    return (first + (length - 1) * each) / 1e3
