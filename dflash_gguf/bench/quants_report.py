"""One drafter in several types, as it is shown.

Comes in: results. Goes out: a report, as of every other measurement. Knows nothing of terminals, HTML nor matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.bench.charts import Bar, Bars, Lines, Series
from dflash_gguf.bench.report import Report, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dflash_gguf.bench.charts import Chart
    from dflash_gguf.bench.quants import TypeResult

ENOUGH: Final = 0.99
"""Share of the best acceptance length at which a smaller file is as good."""


def of_types(found: Sequence[TypeResult], facts: Mapping[str, str]) -> Report:
    """A row a type, in the order in which they were asked for; charts by size."""
    return Report("A drafter in several types", facts, (_verdict(found),), (_table(found),), _charts(found))


def _table(found: Sequence[TypeResult]) -> Table:
    kinds = [kind.kind for kind in found[0].kinds]
    head = ("type", "MB", "bits a weight", *kinds, "tokens/s", "rows that fit no block")
    rows = tuple(
        (
            each.name,
            f"{each.n_bytes / 1e6:.1f}",
            f"{each.bits_per_weight:.2f}",
            *(f"{kind.acceptance_length:.3f}" for kind in each.kinds),
            f"{each.all.tokens_per_second:.1f}",
            f"in {each.fallbacks} tensors: other types" if each.fallbacks else "none",
        )
        for each in found
    )
    return Table("Acceptance length, by kind of prompt", head, rows)


def _verdict(found: Sequence[TypeResult]) -> str:
    best = max(each.all.acceptance_length for each in found)
    enough = [each for each in found if each.all.acceptance_length >= ENOUGH * best]
    least = min(enough, key=lambda each: each.n_bytes)
    return (
        f"the smallest within {1 - ENOUGH:.0%} of the longest acceptance length, {best:.3f}: {least.name}, "
        f"{least.n_bytes / 1e6:.1f} MB and {least.all.acceptance_length:.3f}"
    )


def _charts(found: Sequence[TypeResult]) -> tuple[Chart, ...]:
    by_size = sorted(found, key=lambda each: each.n_bytes)
    places = tuple(each.name for each in by_size)
    kinds = [kind.kind for kind in by_size[0].kinds]
    series = tuple(
        Series(name, tuple(each.kinds[i].acceptance_length for each in by_size), whole=i == len(kinds) - 1)
        for i, name in enumerate(kinds)
    )
    return (
        Lines("Acceptance length", "tokens that a pass of the target yields; types by size", places, series),
        Bars("Size", "MB", tuple(_bar(each.name, each.n_bytes / 1e6) for each in by_size)),
        Bars("Speed", "tokens per second", tuple(_bar(each.name, each.all.tokens_per_second) for each in by_size)),
    )


def _bar(name: str, value: float) -> Bar:
    return Bar(name, value, value, value)
