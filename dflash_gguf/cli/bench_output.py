"""What `bench` shows and writes: a report on the terminal, as a page and as a picture.

Comes in: a report and a command's options. Goes out: lines and files.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.atomic import check_out, failures, write_text
from dflash_gguf.cli.errors import ending_code
from dflash_gguf.cli.options import inputs_of
from dflash_gguf.file_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from dflash_gguf.bench.report import Report
    from dflash_gguf.cli.output import Output

OUTPUTS: Final = ("plot", "html", "keep", "out", "cache")
"""Parameters of the commands that write a report which name what is written."""


def check_outputs(ctx: click.Context, options: Mapping[str, Any]) -> None:
    """Raises before anything is measured when a file could not be written afterwards."""
    from dflash_gguf.bench.plot import FORMATS, check_matplotlib

    plot, html = options["plot"], options["html"]
    if plot is not None and plot.suffix[1:].lower() not in FORMATS:
        raise click.UsageError(f"--plot {plot.name} ends in none of .{', .'.join(FORMATS)}", ctx)
    if plot is not None and html is not None and plot.absolute() == html.absolute():
        raise click.UsageError("--plot and --html name the same file", ctx)
    check_inputs(options, inputs_of(ctx, *OUTPUTS))
    for out in (plot, html):
        if out is not None:
            # A long measurement is not to end with a file that cannot be made.
            with failures(out), NamedTemporaryFile(dir=out.absolute().parent, prefix=out.name):
                pass
    if plot is not None:
        check_matplotlib()


def check_inputs(options: Mapping[str, Any], inputs: Iterable[Path]) -> None:
    """Raises when a file to write is there already, or is one of ``inputs``."""
    for out in (options["plot"], options["html"]):
        if out is not None:
            check_out(out.absolute(), inputs, force=options["force"])


@dataclass(slots=True)
class Ending:
    """``code`` is that of the interrupt or signal that ended a measurement; 0: it ran to its end."""

    code: int = 0

    @property
    def facts(self) -> Mapping[str, str]:
        """What a report says of it."""
        return {"interrupted": "the figures are of what was measured until then"} if self.code else {}


@contextmanager
def until_interrupted() -> Iterator[Ending]:
    """An interrupt ends the block, and no more: what was measured by then is reported."""
    ending = Ending()
    try:
        yield ending
    except (KeyboardInterrupt, SystemExit) as error:
        ending.code = ending_code(error)
        click.echo("interrupted", err=True)


def show(output: Output, report: Report) -> None:
    """The report for a person: what was measured, tables, then the verdict."""
    for name, value in report.facts.items():
        output.line(f"{name}: {printable(value)}")
    for table in report.tables:
        output.line(f"\n{table.title}")
        output.table(table.head, table.rows)
    output.line()
    for line in report.verdicts:
        output.line(line)


def write_outputs(output: Output, report: Report, options: Mapping[str, Any]) -> None:
    """The files that were asked for."""
    if options["html"] is not None:
        from dflash_gguf.bench.page import page

        output.note(f"wrote {write_text(options['html'], page(report), force=options['force'])}")
    if options["plot"] is not None:
        from dflash_gguf.bench.plot import plot

        out = options["plot"].absolute()
        plot(report, out, force=options["force"])
        output.note(f"wrote {out}")
