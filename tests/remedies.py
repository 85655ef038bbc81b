"""Whether what an error advises can be done: every option that it names is one of the command that was run."""

from __future__ import annotations

import re

import click

from dflash_gguf.cli import root
from dflash_gguf.cli.remedies import OPTION, options_of

OWNED = re.compile(r"`--?[\w-]+[^`]*` of `dflash-gguf ([\w ]+)`(?: or `([\w ]+)`)?")


def command_of(words):
    """The command that ``words`` run; None when they name none."""
    command, ctx = root, click.Context(root, info_name="dflash-gguf")
    for word in words:
        found = command.get_command(ctx, str(word)) if isinstance(command, click.Group) else None
        if found is not None:
            command, ctx = found, click.Context(found, info_name=str(word), parent=ctx)
    return None if command is root else command


def all_commands(command=root, ctx=None, names=()):
    """Name -> command, those of groups as `GROUP COMMAND`."""
    ctx = ctx or click.Context(root)
    found = {}
    for name in command.list_commands(ctx):
        one = command.get_command(ctx, name)
        found[" ".join((*names, name))] = one
        if isinstance(one, click.Group):
            found |= all_commands(one, click.Context(one, parent=ctx), (*names, name))
    return found


def check_remedy(words, line):
    """Raises where ``line`` names an option of ours that the command lacks, and not whose it is."""
    command = command_of(words)
    ours = frozenset().union(*map(options_of, all_commands().values()))
    for option in OPTION.findall(line):
        assert command is None or option not in ours or option in options_of(command), line
    for found in OWNED.finditer(line):
        option = OPTION.match(found[0].split(" of ")[0])
        for name in filter(None, found.groups()):
            assert option is not None
            assert option[1] in options_of(all_commands()[name]), line
