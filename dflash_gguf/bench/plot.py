"""A report's charts as a picture, by matplotlib, which is an extra.

Comes in: a report and the name of a file. Goes out: the file, by way of ``NAME.partial``.
"""

from __future__ import annotations

import os
from math import ceil
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.atomic import replacing
from dflash_gguf.bench.charts import Bars, Lines, Stacks
from dflash_gguf.bench.svg import number
from dflash_gguf.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dflash_gguf.bench.charts import Chart
    from dflash_gguf.bench.report import Report

FORMATS: Final = ("png", "svg", "pdf")
COLORS: Final = ("#3b6fd4", "#b86e12", "#2f8f6b", "#b14aa8", "#8a94a3", "#c2453f", "#3aa0b8", "#8a6d3b")
TONES: Final = {"good": "#2f7d5b", "even": "#8a94a3", "bad": "#c2553a"}
WHOLE: Final = "#1c2430"
LABEL_SHOWN: Final = 18
NARROW: Final = 0.09

_WIDTH: Final = 7.0
_HEIGHT: Final = 3.6
_HEIGHT_OF_ROW: Final = 0.28
_FACTS_SHOWN: Final = 95
"""Characters of a line, for each column of charts."""
_SOFT: Final = "#5b6675"


def check_matplotlib() -> None:
    """Raises MissingDependencyError with the command that installs it."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        why = "" if isinstance(error, ModuleNotFoundError) else f", which does not load: {error}"
        raise MissingDependencyError(
            f"a plot needs matplotlib{why}", remedy="install it: pip install 'dflash-gguf[plot]', or write `--html`"
        ) from None


def plot(report: Report, out: Path, *, force: bool) -> None:
    """Writes all charts into one picture, with the facts below them; its format is what the file's name ends in."""
    from matplotlib.figure import Figure

    charts = report.charts
    columns = 1 if len(charts) == 1 else 2
    rows = ceil(len(charts) / columns)
    most = max((len(drawn.rows) for drawn in charts if isinstance(drawn, Bars | Stacks)), default=0)
    height = max(_HEIGHT, _HEIGHT_OF_ROW * most + 1.2)
    figure = Figure(figsize=(_WIDTH * columns, height * rows + 0.4), layout="constrained")
    figure.suptitle(_plain(report.title), fontsize=13)
    facts = wrap("; ".join(f"{name}: {value}" for name, value in report.facts.items()), _FACTS_SHOWN * columns)
    figure.supxlabel(_plain("\n".join(facts)), fontsize=8.5, color=_SOFT)
    places = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, drawn in zip(places, charts, strict=False):
        _draw(axes, drawn)
    for axes in places[len(charts) :]:
        axes.set_axis_off()
    with replacing(out, force=force) as (fd, _), os.fdopen(os.dup(fd), "wb") as file:
        figure.savefig(file, format=out.suffix[1:].lower(), dpi=150)


def _draw(axes: Any, drawn: Chart) -> None:
    axes.set_title(f"{drawn.title}\n", fontsize=11, loc="left", fontweight="bold")
    axes.text(0, 1.03, drawn.note, transform=axes.transAxes, fontsize=8.5, color=_SOFT)
    axes.spines[["top", "right"]].set_visible(False)
    match drawn:
        case Bars():
            _bars(axes, drawn)
        case Lines():
            _lines(axes, drawn)
        case Stacks():
            _stacks(axes, drawn)


def _bars(axes: Any, drawn: Bars) -> None:
    values = [row.value for row in drawn.rows]
    spread = [[row.value - row.low for row in drawn.rows], [row.high - row.value for row in drawn.rows]]
    colors = [TONES[row.tone] for row in drawn.rows]
    axes.barh(range(len(values)), values, 0.55, color=colors)
    axes.errorbar(values, range(len(values)), xerr=[[max(0.0, v) for v in side] for side in spread], **_WHISKERS)
    top = max([row.high for row in drawn.rows] + [drawn.reference or 0.0])
    for i, value in enumerate(values):
        axes.text(top * 1.18, i, number(value), va="center", ha="right", fontweight="bold")
    if drawn.reference is not None:
        axes.axvline(drawn.reference, color="black", linestyle="--", linewidth=1)
    axes.set_xlim(0, top * 1.2)
    _named(axes, [row.label for row in drawn.rows])
    axes.xaxis.grid(visible=True, color="#dfe3e8")
    axes.set_axisbelow(True)


_WHISKERS: Final[dict[str, Any]] = {"fmt": "none", "ecolor": "#1c2430", "elinewidth": 1.2, "capsize": 4}


def _stacks(axes: Any, drawn: Stacks) -> None:
    begin = [0.0] * len(drawn.rows)
    for i, part in enumerate(drawn.parts):
        shares = [row.parts[i] for row in drawn.rows]
        axes.barh(range(len(shares)), shares, 0.6, left=begin, color=COLORS[i % len(COLORS)], label=part)
        for row, (x, share) in enumerate(zip(begin, shares, strict=True)):
            if share >= NARROW:
                axes.text(x + share / 2, row, f"{share:.0%}", ha="center", va="center", color="white", fontsize=9)
        begin = [x + share for x, share in zip(begin, shares, strict=True)]
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0%", "25%", "50%", "75%", "100%"])
    _named(axes, [row.label for row in drawn.rows])
    axes.legend(**_LEGEND, ncols=len(drawn.parts))


_LEGEND: Final[dict[str, Any]] = {
    "loc": "upper center",
    "bbox_to_anchor": (0.5, -0.1),
    "frameon": False,
    "fontsize": 9,
    "columnspacing": 1.2,
    "handlelength": 1.2,
}


def _lines(axes: Any, drawn: Lines) -> None:
    for i, series in enumerate(drawn.series):
        ys = [float("nan") if value is None else value for value in series.values]
        line = "-" if i < len(COLORS) or series.whole else "--"
        color = WHOLE if series.whole else COLORS[i % len(COLORS)]
        axes.plot(range(len(ys)), ys, marker="o", markersize=4, linestyle=line, color=color, label=_cut(series.name))
    if drawn.reference is not None:
        axes.axhline(drawn.reference, color="black", linestyle="--", linewidth=1)
    named = [i for i, place in enumerate(drawn.places) if place]
    axes.set_xticks(named, [drawn.places[i] for i in named])
    axes.set_ylim(0, drawn.top * 1.05 if drawn.top else None)
    axes.yaxis.grid(visible=True, color="#dfe3e8")
    if drawn.series:
        axes.legend(**_LEGEND, ncols=min(5, len(drawn.series)))


def _named(axes: Any, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [_cut(text) for text in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)


def _cut(text: str) -> str:
    return _plain(text if len(text) <= LABEL_SHOWN else f"{text[: LABEL_SHOWN - 1]}\u2026")


def _plain(text: str) -> str:
    """A dollar would begin a formula, an underscore at its start would keep a line out of the legend."""
    return text.replace("$", r"\$").removeprefix("_")
