"""A flag for each row of a table of values: those that ``convert`` overrides and ``rekey`` asks for.

Comes in: a table whose rows have an attribute, a flag, a kind and a help text. Goes out: a decorator of commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, get_args

import click

from dflash_gguf.rekeying.answers import ALL
from dflash_gguf.rekeying.forks import Taps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Row(Protocol):
    """``usage`` is the flag as it is typed; ``kind`` one of `KINDS`."""

    @property
    def attribute(self) -> str:
        """The name of the value."""

    @property
    def usage(self) -> str:
        """The flag."""

    @property
    def help(self) -> str:
        """One sentence."""

    @property
    def kind(self) -> Any:
        """What the flag takes."""


def _layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of layers, such as 1,9,17") from None


def _some_or_all(text: str) -> tuple[int, ...] | str:
    return ALL if text == ALL else _layers(text)


KINDS: Final[dict[Any, Any]] = {
    int: click.INT,
    float: click.FLOAT,
    bool: None,
    tuple: _layers,
    "layers": _some_or_all,
    "taps": click.Choice(get_args(Taps)),
}
_METAVARS: Final[dict[Any, str]] = {tuple: "N,N,...", "layers": "all|N,N,..."}


def value_options(table: Sequence[Row]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command a flag for each row, in the table's order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for row in reversed(table):
            command = click.option(
                row.usage,
                row.attribute,
                type=KINDS[row.kind],
                metavar=_METAVARS.get(row.kind),
                default=None,
                help=row.help,
            )(command)
        return command

    return decorate
