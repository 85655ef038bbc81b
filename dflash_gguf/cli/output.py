"""The one object that writes to the terminal: the answer to stdout, everything else to stderr.

Modes: human (default) and json, in which stdout holds exactly one object. Kept on ``click.Context.obj``.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.file_text import json_value, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Output", "json_option", "printable"]


CELL_LIMIT: Final = 120
"""Width to which a column is padded at most: one long name from a file must not widen every row."""


class Output:
    """Verbs for what commands have to say; the mode decides where each goes."""

    def __init__(self) -> None:
        self.json_mode = False
        self.context: click.Context | None = None
        """Of the command that runs."""

    def text(self, piece: str) -> None:
        """A piece of the answer, as it comes. Silent in json mode: the answer is in the object."""
        if not self.json_mode:
            click.echo(_encodable(piece), nl=False)

    def line(self, text: str = "") -> None:
        """A line of the answer for a person, or several; whatever else a terminal would act on is spelt out.

        Text from a file that could hold a line break is given through `printable`.
        """
        if not self.json_mode:
            click.echo(_encodable("\n".join(map(printable, text.split("\n")))))

    def result(self, value: Mapping[str, Any]) -> None:
        """The answer as one object, in json mode only."""
        if self.json_mode:
            plain = json_value(dict(value))
            text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
            click.echo(text if _encodable(text) == text else json.dumps(plain, allow_nan=False))

    def note(self, text: str) -> None:
        """What a person may want to know, on stderr."""
        if not self.json_mode:
            click.echo("\n".join(map(printable, text.split("\n"))), err=True)

    def warning(self, text: str) -> None:
        """What a person should know, on stderr in every mode."""
        click.echo(f"warning: {printable(text)}", err=True)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns padded to their widest cell; the first and the last are text, those between are numbers.

        Each cell is one line, whatever it holds.
        """
        lines = [[printable(cell) for cell in row] for row in [head, *rows]]
        widths = [min(max(len(row[i]) for row in lines), CELL_LIMIT) for i in range(len(head))]
        for row in lines:
            cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
            cells[0], cells[-1] = row[0].ljust(widths[0]), row[-1]
            self.line("  ".join(cells).rstrip())

    @contextmanager
    def progress(self, label: str, unit: str = "B") -> Iterator[Callable[[int, int], None]]:
        """A bar on stderr, in bytes or another unit; off in json mode and when stderr is no terminal."""
        from tqdm import tqdm

        off = self.json_mode or not sys.stderr.isatty()
        with tqdm(
            desc=label, unit=unit, unit_scale=True, unit_divisor=1024 if unit == "B" else 1000, disable=off, leave=False
        ) as bar:

            def advance(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield advance


def _encodable(text: str) -> str:
    """What stdout's encoding lacks, as that of a locale without UTF-8, is spelt out."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``: one object on stdout and nothing else there."""

    def switch(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.obj.json_mode = ctx.obj.json_mode or value
        ctx.obj.context = ctx

    return click.option(
        "--json", is_flag=True, expose_value=False, callback=switch, help="Print one JSON object on stdout."
    )(command)
