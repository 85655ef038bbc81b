"""A measurement as it is shown: the same tables, charts and sentences for a terminal, a page and a picture.

Comes in: summaries. Goes out: one frozen record. Knows nothing of terminals, HTML nor matplotlib.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_gguf.bench import charts
from dflash_gguf.bench.cost import per_million
from dflash_gguf.bench.summary import PARTS
from dflash_gguf.bench.verdict import verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dflash_gguf.bench.charts import Chart
    from dflash_gguf.bench.cost import Costs
    from dflash_gguf.bench.load import KindLoad, LoadSummary, Middle
    from dflash_gguf.bench.summary import Setting, Speed, Summary


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first and the last column are words."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All that is shown of a measurement."""

    title: str
    facts: Mapping[str, str]
    verdicts: tuple[str, ...]
    tables: tuple[Table, ...]
    charts: tuple[Chart, ...]


def of_settings(
    settings: Sequence[Setting], chosen: Setting, facts: Mapping[str, str], costs: Mapping[str, Costs | None]
) -> Report:
    """With and without the drafter; ``chosen`` is the setting that is shown in full, ``costs`` are by kind."""
    tables = [_speeds(chosen), _rates(chosen), _shares(chosen)]
    if len(settings) > 1:
        tables.insert(0, _by_depth(settings))
    if costs:
        tables.append(_costs(costs))
    title = "With the drafter and without"
    return Report(title, facts, verdicts(settings), tuple(tables), charts.of_settings(settings, chosen))


def of_load(found: LoadSummary, facts: Mapping[str, str], price_per_hour: float | None) -> Report:
    """A server under load; the price is of what it runs on."""
    requests = "1 request" if found.all.n == 1 else f"{found.all.n} requests"
    sums = [f"{found.tokens_per_second:.1f} tokens per second in all, {found.seconds:.1f} s for {requests}"]
    if found.all.n_failed:
        sums.append(f"{found.all.n_failed} of {requests} failed: the figures are of the others")
    if not found.counted:
        sums.append("the server does not count its tokens: each piece that it sent was taken for one")
    if price_per_hour is not None and found.all.n_tokens:
        sums.append(f"{per_million(price_per_hour, found.seconds, found.all.n_tokens):.4g} for a million tokens")
    return Report("A server", facts, tuple(sums), (_load_speeds(found),), charts.of_load(found))


def _speeds(chosen: Setting) -> Table:
    head = ("kind", "requests", "tokens", "plain t/s", "drafter t/s", "ratio", "lowest to highest", "95 % interval",
            "acceptance length", "first token ms", "same text")  # fmt: skip
    return Table(f"Speed at depth {chosen.name}", head, tuple(_speed_row(row) for row in chosen.rows))


def _speed_row(row: Summary) -> tuple[str, ...]:
    first = f"{row.first_token_ms[0]:.0f}, {row.first_token_ms[1]:.0f}"
    same = "yes" if row.n_same == row.n else f"{row.n_same} of {row.n}"
    length = f"{row.drafts.acceptance_length:.2f}"
    return (row.kind, str(row.n), str(row.n_tokens), *_speed_cells(row.speed), length, first, same)


def _speed_cells(speed: Speed | None) -> tuple[str, str, str, str, str]:
    if speed is None:
        return ("-", "-", "-", "-", "-")
    interval = f"{speed.low:.2f} to {speed.high:.2f}" if speed.low is not None else "-"
    spread = f"{speed.lowest:.2f} to {speed.highest:.2f}"
    return (f"{speed.plain:.1f}", f"{speed.drafted:.1f}", f"{speed.ratio:.2f}", spread, interval)


def _rates(chosen: Setting) -> Table:
    deepest = max(len(row.drafts.accepted_per_position) for row in chosen.rows)
    rows = []
    for row in chosen.rows:
        rates = [f"{rate:.2f}" for rate in row.drafts.accepted_per_position]
        accepted = f"{row.drafts.draft_n_accepted} of {row.drafts.draft_n}"
        rows.append((row.kind, *rates, *["-"] * (deepest - len(rates)), accepted))
    head = ("kind", *(str(i + 1) for i in range(deepest)), "accepted")
    return Table("Accepted of the verified drafts, by position", head, tuple(rows))


def _shares(chosen: Setting) -> Table:
    parts = (*PARTS, "other")
    rows = tuple((row.kind, *(f"{row.shares[part]:.1%}" for part in parts)) for row in chosen.rows)
    return Table("Where the time goes, with the drafter", ("kind", *parts), rows)


def _by_depth(settings: Sequence[Setting]) -> Table:
    kinds = [row.kind for row in settings[0].rows]
    rows = []
    for each in settings:
        found = {row.kind: row for row in each.rows}
        speeds = [found[kind].speed for kind in kinds]
        width = "-" if each.depth is None else str(each.depth + 1)
        length = f"{each.all.drafts.acceptance_length:.2f}"
        rows.append((each.name, width, *("-" if s is None else f"{s.ratio:.2f}" for s in speeds), length))
    head = ("depth", "verify width", *kinds, "acceptance length")
    return Table("Ratio to plain decoding, by depth", head, tuple(rows))


def _costs(costs: Mapping[str, Costs | None]) -> Table:
    rows = tuple(
        (kind, f"{one.plain_per_million:.4g}", f"{one.drafted_per_million:.4g}", f"{one.users:.2f}")
        for kind, one in costs.items()
        if one is not None
    )
    head = ("kind", "plain, per million tokens", "drafter, per million tokens", "users at the plain latency")
    return Table("Cost", head, rows)


def _load_speeds(found: LoadSummary) -> Table:
    head = ("kind", "requests", "failed", "tokens", "t/s a request", "server's own t/s", "first token ms",
            "acceptance length", "accepted")  # fmt: skip
    return Table("By kind", head, tuple(map(_load_row, found.rows)))


def _load_row(row: KindLoad) -> tuple[str, ...]:
    drafts = row.drafts
    accepted = f"{drafts.draft_n_accepted} of {drafts.draft_n}" if drafts.draft_n is not None else "-"
    length = f"{drafts.acceptance_length:.2f}" if drafts.acceptance_length is not None else "-"
    speeds = (_middle(row.per_second), _middle(row.server_per_second), _middle(row.first_token))
    return (row.kind, str(row.n), str(row.n_failed), str(row.n_tokens), *speeds, length, accepted)


def _middle(found: Middle | None) -> str:
    return "-" if found is None else f"{found.middle:.1f} ({found.low:.1f} to {found.high:.1f})"
