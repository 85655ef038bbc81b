"""What the pairs of a measurement say: speeds, what the drafts were worth, where the time went, and a verdict.

Comes in: pairs. Goes out: frozen records, one a kind of prompt and one of all. Knows nothing of terminals.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

from dflash_gguf.bench.spread import Cost, balanced, interval, ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dflash_gguf.bench.measure import Pair

Verdict = Literal["faster", "as fast", "slower", "unknown"]

ALL: Final = "all"
"""The name of the record over all kinds."""
MARGIN: Final = 0.02
"""A ratio this near to 1 is no difference."""
PARTS: Final = ("draft", "verify", "accept", "inject")


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second behind the first token. ``ratio`` is drafted over plain; ``lowest`` and ``highest`` are ratios
    of a single prompt of a single run; ``low`` and ``high`` the 95 % bootstrap interval, None with too few prompts
    of a kind.
    """

    plain: float
    drafted: float
    ratio: float
    lowest: float
    highest: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Drafts:
    """What was drafted, in llama.cpp's names; ``acceptance_length`` is 1 + accepted / verification passes."""

    draft_n: int
    draft_n_accepted: int
    verify_calls: int
    acceptance_length: float
    accepted_per_position: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one kind of prompts. ``shares`` are parts of the time behind the first token, ``other`` the rest of it.

    ``first_token_ms`` are medians, without the drafter and with it. ``n_same`` of ``n`` pairs had the same tokens.
    """

    kind: str
    n: int
    n_same: int
    n_tokens: int
    speed: Speed | None
    drafts: Drafts
    shares: dict[str, float]
    first_token_ms: tuple[float, float]

    @property
    def verdict(self) -> Verdict:
        """Faster or slower only where the ratio is beyond the margin, and the interval beyond 1.

        Where there is no interval, all single ratios of a kind must be; kinds may differ from each other.
        """
        speed = self.speed
        if speed is None:
            return "unknown"
        low, high = (speed.ratio, speed.ratio) if self.kind == ALL else (speed.lowest, speed.highest)
        if speed.low is not None and speed.high is not None:
            low, high = speed.low, speed.high
        if speed.ratio > 1 + MARGIN and low > 1:
            return "faster" if self.drafts.draft_n > 0 else "as fast"
        return "slower" if speed.ratio < 1 - MARGIN and high < 1 else "as fast"


@dataclass(frozen=True, slots=True)
class Setting:
    """The drafter at one fixed ``depth``, or, where that is None, under depth control."""

    depth: int | None
    kinds: tuple[Summary, ...]
    all: Summary

    @property
    def name(self) -> str:
        """The depth as it is shown."""
        return depth_name(self.depth)

    @property
    def rows(self) -> tuple[Summary, ...]:
        """The kinds and, when there are several, the record of all."""
        return (*self.kinds, self.all) if len(self.kinds) > 1 else self.kinds


def depth_name(depth: int | None) -> str:
    """A depth in words; None: under depth control."""
    return "auto" if depth is None else str(depth)


def setting(depth: int | None, pairs: Sequence[Pair]) -> Setting:
    """The records of ``pairs``, which hold one at least."""
    by_kind: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_kind[pair.kind].append(pair)
    kinds = tuple(_summary(kind, [found]) for kind, found in by_kind.items())
    return Setting(depth, kinds, _summary(ALL, list(by_kind.values())))


def best(settings: Iterable[Setting]) -> Setting:
    """The setting with the highest ratio over all kinds, the same number of tokens of each."""
    return max(settings, key=lambda found: found.all.speed.ratio if found.all.speed else 0.0)


def best_for(settings: Sequence[Setting], kind: str) -> tuple[Setting, Summary]:
    """The setting with the highest ratio for one kind, and its record."""
    found = [(each, row) for each in settings for row in each.kinds if row.kind == kind]
    return max(found, key=lambda pair: pair[1].speed.ratio if pair[1].speed else 0.0)


def slower(chosen: Setting) -> tuple[str, ...]:
    """The kinds for which the drafter costs more than it gains."""
    return tuple(row.kind for row in chosen.rows if row.verdict == "slower")


def _summary(kind: str, groups: Sequence[Sequence[Pair]]) -> Summary:
    pairs = [pair for group in groups for pair in group]
    return Summary(
        kind,
        len(pairs),
        sum(pair.same for pair in pairs),
        sum(pair.drafted.stats.predicted_n for pair in pairs),
        _speed(groups),
        drafts(pairs),
        shares(pairs),
        (
            median(pair.plain.first_token_ms for pair in pairs),
            median(pair.drafted.first_token_ms for pair in pairs),
        ),
    )


def _speed(groups: Sequence[Sequence[Pair]]) -> Speed | None:
    """None where no pair wrote two tokens both ways."""
    costs = [list(prompt_costs(group).values()) for group in groups]
    costs = [group for group in costs if group]
    if not costs:
        return None
    plain, drafted = balanced(costs)
    single = [pair.ratio for group in groups for pair in group if pair.ratio is not None]
    low, high = interval(costs) or (None, None)
    return Speed(1 / plain, 1 / drafted, ratio(costs), min(single), max(single), low, high)


def prompt_costs(pairs: Iterable[Pair]) -> dict[int, Cost]:
    """Seconds and tokens of each prompt over its turns and runs; pairs without a ratio are left out."""
    found: dict[int, Cost] = {}
    for pair in pairs:
        if pair.ratio is None:
            continue
        before = found.get(pair.prompt, Cost(0.0, 0, 0.0, 0))
        plain, drafted = pair.plain.stats, pair.drafted.stats
        found[pair.prompt] = Cost(
            before.plain_seconds + plain.predicted_ms / 1e3,
            before.plain_tokens + plain.predicted_n - 1,
            before.drafted_seconds + drafted.predicted_ms / 1e3,
            before.drafted_tokens + drafted.predicted_n - 1,
        )
    return found


def drafts(pairs: Sequence[Pair]) -> Drafts:
    """Sums over requests, and the rates that follow from the sums."""
    stats = [pair.drafted.stats for pair in pairs]
    accepted, verified = sum(s.draft_n_accepted for s in stats), sum(s.verify_calls for s in stats)
    drafted_at = _added(pair.drafted.drafted_at for pair in pairs)
    accepted_at = _added(pair.drafted.accepted_at for pair in pairs)
    rates = tuple(kept / n for n, kept in zip(drafted_at, accepted_at, strict=True) if n)
    length = 1.0 + (accepted / verified if verified else 0.0)
    return Drafts(sum(s.draft_n for s in stats), accepted, verified, length, rates)


def shares(pairs: Sequence[Pair]) -> dict[str, float]:
    """Parts of the time behind the first token, with the drafter; their sum is 1."""
    stats = [pair.drafted.stats for pair in pairs]
    total = sum(s.predicted_ms for s in stats)
    found = {part: sum(getattr(s, f"{part}_ms") for s in stats) / total if total else 0.0 for part in PARTS}
    return found | {"other": max(0.0, 1.0 - sum(found.values())) if total else 0.0}


def _added(rows: Iterable[tuple[int, ...]]) -> list[int]:
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]
