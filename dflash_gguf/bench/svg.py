"""Charts as SVG, with the colours of the page that holds them.

Comes in: charts. Goes out: markup. Every text from outside is escaped. Knows nothing of what the numbers mean.
"""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

from dflash_gguf.bench.charts import Bars, Lines, Stacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dflash_gguf.bench.charts import Chart, Series

WIDTH: Final = 560
LEFT: Final = 120
"""Where the labels end and the drawing begins."""
RIGHT: Final = 60
ROW: Final = 34
N_COLORS: Final = 8
LABEL_SHOWN: Final = 16
NAME_SHOWN: Final = 32
NARROW: Final = 0.07
"""Share of the width below which a part of a stack has no room for its number."""

_HEIGHT: Final = 220
_LEFT_OF_LINES: Final = 44
_TOP: Final = 14
_BOTTOM: Final = 30


def chart(drawn: Chart) -> str:
    """One chart: a figure with its title, legend and drawing."""
    match drawn:
        case Bars():
            legend, picture = "", _bars(drawn)
        case Lines():
            legend, picture = _legend([s.name for s in drawn.series], drawn.series), _lines(drawn)
        case Stacks():
            legend, picture = _legend(drawn.parts), _stacks(drawn)
    head = f"<figcaption><b>{escape(drawn.title)}</b> <span>{escape(drawn.note)}</span></figcaption>"
    return f"<figure>{head}{legend}{picture}</figure>"


def number(value: float) -> str:
    """Three digits, no more than two of them behind the point."""
    if value and abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def ticks(top: float) -> list[float]:
    """Round numbers from 0 to the first that is not below ``top``, at most seven of them."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10.0 ** floor(log10(top / 5))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if top / (step * factor) <= 6)
    return [i * step for i in range(ceil(top / step - 1e-9) + 1)]


def _bars(drawn: Bars) -> str:
    places = ticks(max([row.high for row in drawn.rows] + [drawn.reference or 0.0]))
    height = _TOP + ROW * len(drawn.rows) + _BOTTOM
    body = _axis_x(places, height)
    for i, row in enumerate(drawn.rows):
        y = _TOP + ROW * i + ROW / 2
        x, low, high = (_across(value / places[-1]) for value in (row.value, row.low, row.high))
        width = max(0.0, x - LEFT)
        body += [
            _label(row.label, y),
            f'<rect class="{row.tone}" x="{LEFT}" y="{y - 9:.1f}" width="{width:.1f}" height="18" rx="2"/>',
            _line("whisker", low, y, high, y),
            *(_line("whisker", edge, y - 5, edge, y + 5) for edge in (low, high)),
            _text(WIDTH - 4, y, number(row.value), "end value"),
        ]
    if drawn.reference is not None:
        x = _across(drawn.reference / places[-1])
        body.append(_line("reference", x, _TOP - 8, x, height - _BOTTOM))
    return _svg(drawn.title, height, body)


def _stacks(drawn: Stacks) -> str:
    height = _TOP + ROW * len(drawn.rows) + _BOTTOM
    body = _axis_x([0.0, 0.25, 0.5, 0.75, 1.0], height, percent=True)
    for i, row in enumerate(drawn.rows):
        y, begin = _TOP + ROW * i + ROW / 2, 0.0
        body.append(_label(row.label, y))
        for number_, share in enumerate(row.parts):
            x, width = _across(begin), _across(begin + share) - _across(begin)
            tip = f"<title>{escape(drawn.parts[number_])}: {share:.1%}</title>"
            body.append(
                f'<rect class="c{number_}" x="{x:.1f}" y="{y - 11:.1f}" width="{width:.1f}" height="22">{tip}</rect>'
            )
            if share >= NARROW:
                body.append(_text(x + width / 2, y, f"{share:.0%}", "middle inside"))
            begin += share
    return _svg(drawn.title, height, body)


def _lines(drawn: Lines) -> str:
    values = [value for series in drawn.series for value in series.values if value is not None]
    places = ticks(drawn.top or max([*values, drawn.reference or 0.0, 0.0]))
    left, body = _LEFT_OF_LINES, []
    for place in places:
        y = _up(place / places[-1])
        body += [_line("grid", left, y, WIDTH, y), _text(left - 8, y, f"{place:g}", "end tick")]
    step = (WIDTH - left) / max(1, len(drawn.places))
    xs = [left + step * (i + 0.5) for i in range(len(drawn.places))]
    body += [_text(x, _HEIGHT - 12, name, "middle tick") for x, name in zip(xs, drawn.places, strict=True)]
    if drawn.reference is not None:
        y = _up(drawn.reference / places[-1])
        body.append(_line("reference", left, y, WIDTH, y))
    for i, series in enumerate(drawn.series):
        ys = [None if v is None else _up(v / places[-1]) for v in series.values]
        body += _series(color(i, series), xs, ys, series.values)
    return _svg(drawn.title, _HEIGHT, body)


def color(i: int, series: Series) -> str:
    """The letters by which the page's style knows a line's colour."""
    return "w" if series.whole else str(i % N_COLORS)


def _series(name: str, xs: Sequence[float], ys: Sequence[float | None], values: Sequence[float | None]) -> list[str]:
    lines: list[list[str]] = [[]]
    dots = []
    for x, y, value in zip(xs, ys, values, strict=True):
        if y is None or value is None:
            lines.append([])
            continue
        lines[-1].append(f"{x:.1f},{y:.1f}")
        tip = f"<title>{number(value)}</title>"
        dots.append(f'<circle class="c{name}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">{tip}</circle>')
    return [*(f'<polyline class="s{name}" points="{" ".join(points)}"/>' for points in lines if points[1:]), *dots]


def _axis_x(places: Sequence[float], height: float, *, percent: bool = False) -> list[str]:
    body = []
    for place in places:
        x = _across(place / places[-1])
        text = f"{place:.0%}" if percent else f"{place:g}"
        body += [_line("grid", x, _TOP - 4, x, height - _BOTTOM), _text(x, height - 14, text, "middle tick")]
    return body


def _across(share: float) -> float:
    return LEFT + share * (WIDTH - RIGHT - LEFT)


def _up(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _label(text: str, y: float) -> str:
    return _text(LEFT - 8, y, _cut(text, LABEL_SHOWN), "end label", f"<title>{escape(text)}</title>")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}\u2026"


def _text(x: float, y: float, text: str, classes: str, more: str = "") -> str:
    return f'<text class="{classes}" x="{x:.1f}" y="{y + 4:.1f}">{escape(text)}{more}</text>'


def _line(name: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _legend(names: Sequence[str], series: Sequence[Series] = ()) -> str:
    colors = [color(i, one) for i, one in enumerate(series)] or [str(i % N_COLORS) for i in range(len(names))]
    pairs = zip(colors, names, strict=True)
    items = "".join(f'<li><i class="c{mark}"></i>{escape(_cut(name, NAME_SHOWN))}</li>' for mark, name in pairs)
    return f"<ul>{items}</ul>"


def _svg(title: str, height: float, body: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">{"".join(body)}</svg>'
