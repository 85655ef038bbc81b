"""The curve of a training: as text for a terminal, and as charts for a picture.

Comes in: measured points. Goes out: lines of text, or a report of one chart or two. Knows nothing of terminals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.bench.charts import Lines, Series
from dflash_gguf.bench.report import Report
from dflash_gguf.train.batches import SPAN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dflash_gguf.train.trainer import Point

BARS: Final = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
WIDTH: Final = 60
NAMED: Final = 8
"""Places of a chart that a number is written under."""
_PLAIN: Final = " .:-=+*#@"


def lines(points: Sequence[Point], *, ascii_only: bool = False) -> list[str]:
    """Two rows of bars over the steps, each with its first, lowest or highest, and last value."""
    if not points:
        return []
    rows = (("loss", [p.loss for p in points]), ("acceptance length", accepted_lengths(points)))
    wide = max(len(name) for name, _ in rows)
    last = (
        f"after {_span([f'{p.step}' for p in points])} steps, {points[-1].n_anchors:,} blocks; "
        f"acceptance in PyTorch, along at most {SPAN} tokens an answer"
    )
    return [
        f"{name.ljust(wide)}  {_bars(values, _PLAIN if ascii_only else BARS)}  {_span([f'{v:.2f}' for v in values])}"
        for name, values in rows
    ] + [f"{''.ljust(wide)}  {last}"]


def _span(values: Sequence[str]) -> str:
    """The first and the last, or the only one."""
    return f"{values[0]} to {values[-1]}" if len(values) > 1 else values[0]


def accepted_lengths(points: Sequence[Point]) -> list[float]:
    """Those of measured points."""
    return [p.accepted.acceptance_length for p in points if p.accepted is not None]


def _bars(values: Sequence[float], bars: str) -> str:
    """One character a value, or for several where there are more than `WIDTH`: their mean."""
    groups = min(WIDTH, len(values))
    cut = [values[len(values) * i // groups : len(values) * (i + 1) // groups] for i in range(groups)]
    means = [sum(part) / len(part) for part in cut]
    low, high = min(means), max(means)
    span = high - low or 1.0
    return "".join(bars[1 + round((mean - low) / span * (len(bars) - 2))] for mean in means)


def report(points: Sequence[Point], facts: Mapping[str, str]) -> Report:
    """Loss and acceptance length over the steps."""
    measured = [point for point in points if point.accepted is not None]
    every = max(1, -(-len(measured) // NAMED))
    places = tuple(f"{p.step}" if i % every == 0 else "" for i, p in enumerate(measured))
    charts = (
        Lines("Loss", "by steps", places, (Series("loss", tuple(p.loss for p in measured), whole=True),)),
        Lines(
            "Acceptance length of held-out answers",
            f"by steps; along at most {SPAN} tokens of each",
            places,
            (Series("acceptance length", tuple(accepted_lengths(measured)), whole=True),),
        ),
    )
    return Report("Training", facts, (), (), charts)
