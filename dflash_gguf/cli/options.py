"""Options that several commands share, once.

Comes in: nothing. Goes out: click decorators. Choices come from the tables of the package.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.limits import RANGES

if TYPE_CHECKING:
    from collections.abc import Callable

_FILE: Final = click.Path(path_type=Path)


def target_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-m``: the target's GGUF."""
    return click.option("-m", "--model", "target", type=_FILE, required=True, help="The target's GGUF file.")(command)


def draft_option(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``-md``: the drafter's GGUF."""
    return click.option("-md", "--model-draft", "draft", type=_FILE, required=required, help="The drafter's GGUF file.")


def range_of(name: str) -> click.IntRange:
    """The numbers that a session takes for ``name``."""
    allowed = RANGES[name]
    return click.IntRange(allowed.least, allowed.most)


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
