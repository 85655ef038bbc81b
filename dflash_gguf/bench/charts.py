"""What is drawn, apart from how: the page and the picture show the same charts.

Comes in: summaries. Goes out: frozen charts. Knows nothing of SVG nor of matplotlib.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dflash_gguf.bench.summary import PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.bench.load import LoadSummary
    from dflash_gguf.bench.summary import Setting, Summary, Verdict


Tone = Literal["good", "even", "bad"]

_TONES: Final[dict[Verdict, Tone]] = {"faster": "good", "as fast": "even", "slower": "bad", "unknown": "even"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its spread, and whether it is a good one."""

    label: str
    value: float
    low: float
    high: float
    tone: Tone = "good"


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar a row; ``reference`` is a value to compare with, drawn as a line."""

    title: str
    note: str
    rows: tuple[Bar, ...]
    reference: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """A named line; None is a gap. ``whole`` is the line of all others together."""

    name: str
    values: tuple[float | None, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Several lines over the same places."""

    title: str
    note: str
    places: tuple[str, ...]
    series: tuple[Series, ...]
    reference: float | None = None
    top: float | None = None


@dataclass(frozen=True, slots=True)
class Stack:
    """Parts that make up 1."""

    label: str
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Stacks:
    """One stack a row."""

    title: str
    note: str
    parts: tuple[str, ...]
    rows: tuple[Stack, ...]


Chart = Bars | Lines | Stacks


def of_settings(settings: Sequence[Setting], chosen: Setting) -> tuple[Chart, ...]:
    """Of ``chosen``: ratios by kind, acceptance by position, where the time goes. Of a sweep: ratios by depth, too."""
    charts: list[Chart] = [_by_depth(settings)] if len(settings) > 1 else []
    charts.append(_ratios(chosen.rows))
    if chosen.all.drafts.accepted_per_position:
        charts.append(_acceptance(chosen.kinds))
    return (*charts, _time(chosen.rows))


def of_load(found: LoadSummary) -> tuple[Chart, ...]:
    """Speeds and first tokens of a server, by kind."""
    speeds = tuple(
        Bar(k.kind, k.per_second.middle, k.per_second.low, k.per_second.high) for k in found.kinds if k.per_second
    )
    first = tuple(
        Bar(k.kind, k.first_token.middle, k.first_token.low, k.first_token.high) for k in found.kinds if k.first_token
    )
    spread = "medians; whiskers: lowest and highest"
    charts = (
        Bars("Tokens per second of a request", spread, speeds),
        Bars("Milliseconds to the first token", spread, first),
    )
    return tuple(chart for chart in charts if chart.rows)


def _ratios(rows: Sequence[Summary]) -> Bars:
    found = [(row, row.speed) for row in rows if row.speed is not None]
    return Bars(
        "Speed with the drafter over without",
        "whiskers: lowest and highest of a single prompt of a single run",
        tuple(Bar(row.kind, s.ratio, s.lowest, s.highest, _TONES[row.verdict]) for row, s in found),
        reference=1.0,
    )


def _acceptance(rows: Sequence[Summary]) -> Lines:
    rates = {row.kind: row.drafts.accepted_per_position for row in rows}
    deepest = max(map(len, rates.values()))
    series = tuple(Series(kind, (*found, *[None] * (deepest - len(found)))) for kind, found in rates.items() if found)
    without = ", ".join(kind for kind, found in rates.items() if not found)
    note = "accepted / verified of the 1st, 2nd, ... drafted token" + (f"; none verified: {without}" if without else "")
    return Lines("Acceptance by position", note, tuple(str(i + 1) for i in range(deepest)), series, top=1.0)


def _time(rows: Sequence[Summary]) -> Stacks:
    parts = (*PARTS, "other")
    stacks = tuple(Stack(row.kind, tuple(row.shares[part] for part in parts)) for row in rows)
    return Stacks("Where the time goes", "behind the first token, with the drafter", parts, stacks)


def _by_depth(settings: Sequence[Setting]) -> Lines:
    names = [row.kind for row in settings[0].rows]
    series = []
    for name in names:
        rows = [next(row for row in each.rows if row.kind == name) for each in settings]
        ratios = [row.speed.ratio if row.speed else None for row in rows]
        # Depth control is no point on the axis of depths: a gap behind it.
        series.append(Series(name, (ratios[0], None, *ratios[1:]), whole=rows[0] is settings[0].all))
    places = (settings[0].name, "", *(each.name for each in settings[1:]))
    return Lines("Speed over plain decoding, by depth", "tokens drafted a round", places, tuple(series), reference=1.0)
