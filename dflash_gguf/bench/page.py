"""A report as one self-contained HTML page: no script, no font, no picture from elsewhere.

Comes in: the parts of a report. Goes out: a text. Every text from outside is escaped. Light or dark as the reader's
system is.
"""

from __future__ import annotations

from html import escape
from string import Template
from typing import TYPE_CHECKING, Final

from dflash_gguf.bench.svg import chart

if TYPE_CHECKING:
    from dflash_gguf.bench.report import Report, Table

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #ffffff; --card: #f6f7f9; --rule: #dfe3e8;
  --good: #2f7d5b; --bad: #c2553a; --c0: #3b6fd4; --c1: #b86e12; --c2: #2f8f6b; --c3: #b14aa8; --c4: #8a94a3;
  --c5: #c2453f; --c6: #3aa0b8; --c7: #8a6d3b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa5b4; --paper: #14181e; --card: #1c222b;
  --rule: #333c48; --good: #4fb286; --bad: #e2795c; --c0: #5b8fee; --c1: #c07f22; --c2: #3fa57f; --c3: #c56cbd;
  --c4: #7d8899; --c5: #dd6a64; --c6: #4fb5cd; --c7: #ad8d55; } }
body { margin: 0 auto; max-width: 78rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; color: var(--soft); margin: 0 0 1rem; }
dd { margin: 0; overflow-wrap: anywhere; color: var(--ink); }
.verdict { border-left: 4px solid var(--c0); background: var(--card); padding: .6rem 1rem; margin: 1rem 0; }
.verdict p { margin: .1rem 0; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: 1rem; background: var(--card); border-radius: 6px; }
figcaption span { display: block; color: var(--soft); font-size: .875rem; }
figure ul { display: flex; flex-wrap: wrap; gap: .1rem 1rem; list-style: none; padding: 0; margin: .5rem 0 0;
  font-size: .875rem; }
figure i { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px; margin-right: .4rem; }
svg { display: block; width: 100%; height: auto; margin-top: .5rem; font: 13px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .tick { fill: var(--soft); font-size: 12px; }
svg .inside { fill: #fff; font-size: 12px; }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; } svg .value { font-weight: 600; }
svg .grid { stroke: var(--rule); } svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
svg .reference { stroke: var(--ink); stroke-dasharray: 4 3; }
svg .good { fill: var(--good); } svg .bad { fill: var(--bad); }
svg .even { fill: var(--c4); }
polyline { fill: none; stroke-width: 2; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .875rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
"""

_COLORS: Final = (
    "".join(
        f".c{i} {{ fill: var(--c{i}); background: var(--c{i}); }} .s{i} {{ stroke: var(--c{i}); }}\n" for i in range(8)
    )
    + ".cw { fill: var(--ink); background: var(--ink); } .sw { stroke: var(--ink); }\n"
)

_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
<dl>$facts</dl>
<div class="verdict">$verdicts</div>
<main>$charts</main>
$tables
</body>
</html>
""")


def page(report: Report) -> str:
    """The whole page."""
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.facts.items())
    return _PAGE.substitute(
        title=escape(report.title),
        style=f"{_STYLE}{_COLORS}",
        facts=facts,
        verdicts="".join(f"<p>{escape(line)}</p>" for line in report.verdicts),
        charts="\n".join(map(chart, report.charts)),
        tables="\n".join(map(_table, report.tables)),
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
