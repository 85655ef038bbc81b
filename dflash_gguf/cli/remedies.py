"""Remedies that can be followed: the package's errors name options, and not every command has every option.

Comes in: the words of an error, the command at hand. Goes out: the same words, each option that this command lacks with
the command that has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTION: Final = re.compile(r"`(--?[A-Za-z][\w-]*)[^`]*`(?! of `dflash-gguf )")
LEFT_OUT: Final = re.compile(r"leave out `(--[\w-]+)` and ")
"""One way of two; nobody can leave out what the command does not take."""
NAMED: Final = 2
"""Commands that are named for an option at most."""


def followable(text: str, ctx: click.Context) -> str:
    """``text`` for the command of ``ctx``; options of other programs are left as they are."""
    own = options_of(ctx.command)

    def without(found: re.Match[str]) -> str:
        return found[0] if found[1] in own else ""

    def with_owner(found: re.Match[str]) -> str:
        owners = [] if found[1] in own else list(_owners(ctx.find_root(), found[1]))
        return f"{found[0]} of `dflash-gguf {'` or `'.join(owners[:NAMED])}`" if owners else found[0]

    return OPTION.sub(with_owner, LEFT_OUT.sub(without, text))


def options_of(command: click.Command) -> frozenset[str]:
    """Every spelling of every option of a command."""
    return frozenset(name for param in command.params for name in (*param.opts, *param.secondary_opts))


def _owners(ctx: click.Context, option: str) -> Iterator[str]:
    """Names of the commands that have ``option``, with those of their groups."""
    group = ctx.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is not None:
            if option in options_of(command):
                yield name
            inner = click.Context(command, info_name=name, parent=ctx)
            yield from (f"{name} {one}" for one in _owners(inner, option))
