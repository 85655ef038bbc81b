"""What `bench` and `bench quants` are both told: prompts, how much of them, and the files to write.

Comes in: nothing. Goes out: a click decorator, and the prompts that were chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.options import NamedPath

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dflash_gguf.bench.prompts import BenchPrompt

_FILE: Final = NamedPath()

DATASETS: Final = ("humaneval", "gsm8k", "math500", "mbpp", "mt-bench")
"""The names of bench/datasets.py, which is not imported for a help page; a test holds the two to each other."""


def bench_options(*, runs: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options about prompts, with a default number of runs."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option(
                "--runs",
                type=click.IntRange(1, 1000),
                default=runs,
                show_default=True,
                help="Times to run each prompt.",
            ),
            click.option(
                "-n",
                "--n-predict",
                type=click.IntRange(2, 1 << 20),
                default=128,
                show_default=True,
                help="Tokens a prompt.",
            ),
            click.option("--raw", is_flag=True, help="Send the prompts as they are, without the chat template."),
            click.option(
                "--limit", type=click.IntRange(min=1), help="Prompts to use, as many of each kind as there can be."
            ),
            click.option("--dataset", type=click.Choice(DATASETS), help="Prompts of a data set, from the hub."),
            click.option(
                "--prompts", type=_FILE, help="Prompts: JSON lines with prompt, turns or messages; or text, one a line."
            ),
        ):
            command = option(command)
        return command

    return decorate


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--plot`` and ``--html``."""
    html = click.option("--html", type=_FILE, help="Write the report as one page.")
    plot = click.option("--plot", type=_FILE, help="Write the charts as a picture: .png, .svg or .pdf.")
    return plot(html(command))


def check_prompts(ctx: click.Context, options: Mapping[str, Any]) -> None:
    """A usage error for two sources of prompts."""
    if options["prompts"] is not None and options["dataset"] is not None:
        raise click.UsageError("give --prompts or --dataset, not both", ctx)


def prompts_of(options: Mapping[str, Any]) -> tuple[BenchPrompt, ...]:
    """The prompts that were chosen."""
    from dflash_gguf.bench.prompts import built_in, from_file, limited

    if options["dataset"] is not None:
        from dflash_gguf.bench.datasets import load

        return limited(load(options["dataset"]), options["limit"])
    found = built_in() if options["prompts"] is None else from_file(options["prompts"])
    return limited(found, options["limit"])


def prompts_shown(options: Mapping[str, Any], n: int) -> str:
    """The same in words."""
    source = options["dataset"] or (options["prompts"] and options["prompts"].name) or "built in"
    runs = "once" if options["runs"] == 1 else f"{options['runs']} times"
    return f"{n} ({source}), each {runs}, at most {options['n_predict']} tokens an answer"
