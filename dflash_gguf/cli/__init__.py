"""The command line: the only place that prints or exits. Every command is a thin user of the Python API.

Commands are loaded when they are asked for, so that ``dflash-gguf --help`` loads neither libllama nor numpy.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

import dflash_gguf
from dflash_gguf.cli.errors import INTERRUPTED, WRONG_USAGE, report_and_exit_code
from dflash_gguf.cli.output import Output
from dflash_gguf.environment import keep_backtraces_off
from dflash_gguf.log import AGAIN

COMMANDS: Final[dict[str, str]] = {
    "convert": "Turn a drafter checkpoint into the GGUF that llama.cpp loads.",
    "train": "Train a drafter for the model on your disk.",
    "quantize": "Give a drafter's GGUF another type.",
    "imatrix": "Measure which columns of a drafter matter.",
    "rekey": "Make a drafter file of a fork or an older llama.cpp load.",
    "check": "Say all that is wrong with a pair, and what to do.",
    "inspect": "Show what a GGUF holds, or what differs between two.",
    "estimate": "Say how much memory a session will take.",
    "run": "Generate with a target and its drafter, or chat.",
    "serve": "Answer OpenAI's API with a target and its drafter.",
    "verify": "Compare the tokens with and without the drafter.",
    "bench": "Measure what a drafter gains, or a server.",
    "modelfile": "Write the Modelfile that `ollama create` takes.",
    "recipe": "Show how another engine is launched with a pair.",
    "doctor": "Check this machine and what is installed.",
    "demo": "Convert and run a small pair, with no network.",
}
"""Command -> its line in --help, in the order of a first use. Each lives in a module of this package."""


ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that ask the process to end, a lost terminal's among them."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the table, in its order."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the module of ``cmd_name``; None when there is no such command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"dflash_gguf.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. Of `-hfd`, where there is none, click would say that there is no `-f`."""
        words = list(ctx.args)
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _as_written(error, words) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands from the table, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(dflash_gguf.__version__, prog_name="dflash-gguf")
@click.pass_context
def root(ctx: click.Context) -> None:
    """DFlash drafters for GGUF models: convert them, run them, hand them to ollama."""
    ctx.ensure_object(Output)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(WRONG_USAGE)


def _as_written(error: click.NoSuchOption, words: list[str]) -> click.NoSuchOption:
    """The same failure, with the whole word for the letter of it that click took for an option."""
    ctx, letter = error.ctx, error.option_name[1:]
    if ctx is None or len(letter) != 1:
        return error
    options = [param for param in ctx.command.params if isinstance(param, click.Option)]
    flags = {*ctx.help_option_names, *(name for param in options if param.is_flag for name in param.opts)}
    names = flags.union(*(param.opts for param in options))
    for before, word in zip(["", *words], words, strict=False):
        first, found, _ = word.removeprefix("-").partition(letter)
        is_value = before in names - flags
        if word.startswith("-") and found and not is_value and all(f"-{each}" in flags for each in first):
            return click.NoSuchOption(word, possibilities=get_close_matches(word, sorted(names)), ctx=ctx)
    return error


def _open_missing_streams() -> None:
    """Python leaves a stream that was closed by the caller at None; what is written there goes nowhere then."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  as long as the process


def _terminate(number: int, _frame: object) -> None:
    """Ends as an interrupt does, so that what was begun is cleared away."""
    sys.exit(128 + number)


def _send_again(dropped: sys.UnraisableHookArgs) -> None:
    """An end asked for while libllama called back, where Python drops what is raised: it is asked for again."""
    error = dropped.exc_value
    code = error.code if isinstance(error, SystemExit) else None
    ending = next((number for number in ENDING if code == 128 + number), None)
    number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else ending
    if number is None:
        sys.__unraisablehook__(dropped)
        return
    timer = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def main() -> None:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong usage, 3 ran and the check did not pass."""
    _open_missing_streams()
    keep_backtraces_off()
    for number in ENDING:
        signal.signal(number, _terminate)
    sys.unraisablehook = _send_again
    output = Output()
    try:
        code = root.main(standalone_mode=False, obj=output)
    except Exception as error:  # noqa: BLE001  every failure becomes one line and a code
        sys.exit(report_and_exit_code(error, output))
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(code or 0)
