"""Options that several commands share, once.

Comes in: nothing. Goes out: click decorators. Choices come from the tables of the package.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from dflash_gguf.limits import RANGES
from dflash_gguf.runner.deep_stack import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_gguf.runner.bounds import Bounds


def range_of(name: str) -> click.IntRange:
    """The numbers that a session takes for ``name``."""
    allowed = RANGES[name]
    return click.IntRange(allowed.least, allowed.most)


class NamedPath(click.Path):
    """A path; not the empty text that an unset variable leaves, which would be the current folder."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Fails for an empty text."""
        if value == "":
            self.fail("got an empty text, expected a path", param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """click's lets NaN through, which is below no end and above none, and infinity where an end is open."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


def number_within(bounds: Bounds) -> Number:
    """The numbers within ``bounds``."""
    return Number(bounds.least, bounds.most)


def inputs_of(ctx: click.Context, *outputs: str) -> set[Path]:
    """Every file and folder that the command line names, but for the parameters ``outputs``."""
    given = [value for name, value in ctx.params.items() if name not in outputs]
    values = [one for value in given for one in (value if isinstance(value, tuple) else (value,))]
    opened = [Path(one.name) for one in values if hasattr(one, "read") and isinstance(one.name, str)]
    return {*opened, *(one for one in values if isinstance(one, Path))}


def force_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--force``: replace an output file that exists."""
    return click.option("--force", is_flag=True, help="Replace the output file if it exists.")(command)


def threads_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-t``: native threads."""
    return click.option(
        "-t", "--threads", type=range_of("n_threads"), help="Threads to use. Default: the physical cores."
    )(command)


def verbose_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-v``: libllama's log on stderr."""
    return click.option("-v", "--verbose", is_flag=True, help="Show libllama's log.")(command)


def prompt_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-p``, ``-f`` and ``--raw``; see `read_prompt`."""
    for option in (
        click.option("--raw", is_flag=True, help="Send the prompt as it is, without the chat template."),
        click.option("-f", "--file", type=click.File("rb"), help="Read the prompt from a file; - is stdin."),
        click.option("-p", "--prompt", help="The prompt."),
    ):
        command = option(command)
    return command


def given_prompt(ctx: click.Context, prompt: str | None, file: BinaryIO | None) -> str | None:
    """The text of ``-p`` or ``-f``; None when neither was given."""
    if prompt is not None and file is not None:
        raise click.UsageError("give -p or -f, not both", ctx)
    if prompt is None:
        return None if file is None else read_text(ctx, file)
    if not prompt.isascii() and any("\ud800" <= char <= "\udfff" for char in prompt):
        raise click.UsageError("the prompt is not UTF-8 text", ctx)
    return prompt


def read_prompt(ctx: click.Context, prompt: str | None, file: BinaryIO | None) -> str | None:
    """The text of ``-p`` or ``-f``, or of stdin; None when that is a terminal, where a chat begins.

    A stdin without text, as programs that run in the background have, is no prompt.
    """
    given = given_prompt(ctx, prompt, file)
    if given is not None or sys.stdin.isatty():
        return given
    text = read_text(ctx, sys.stdin.buffer)
    if not text.strip():
        raise click.UsageError("stdin holds no prompt; give one with -p or -f, or a terminal for a chat", ctx)
    return text


def read_text(ctx: click.Context, file: BinaryIO, what: str = "the prompt", longest: int = LONGEST) -> str:
    """UTF-8 of at most ``longest`` bytes; else wrong usage, which says ``what`` it is."""
    data = file.read(longest + 1)
    if len(data) > longest:
        raise click.UsageError(f"{what} is longer than {longest} bytes", ctx)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{what} is not UTF-8 text: {error}", ctx) from error
