"""``dflash-gguf run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dflash_gguf.cli.errors import INTERRUPTED
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import (
    draft_option,
    prompt_options,
    range_of,
    read_prompt,
    target_option,
    verbose_option,
)
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.sampling_options import sampling_arguments, sampling_options
from dflash_gguf.cli.session_options import (
    check_fit,
    fit_option,
    session_arguments,
    session_options,
    show_remarks,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dflash_gguf.runner.sampling import SamplingOptions
    from dflash_gguf.runner.session import Session
    from dflash_gguf.runner.stats import RunStats


@click.command("run", short_help="Generate with a target and its drafter.")
@target_option
@draft_option(required=False)
@prompt_options
@click.option(
    "-n",
    "--n-predict",
    type=range_of("max_tokens"),
    default=-1,
    show_default=True,
    help="Tokens to write; -1: until the context is full.",
)
@click.option("--no-draft", is_flag=True, help="Let the target decode alone.")
@click.option(
    "-r", "--reverse-prompt", "stop", multiple=True, metavar="TEXT", help="End the answer before this text; repeatable."
)
@sampling_options()
@session_options
@fit_option
@verbose_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, target: Path, draft: Path | None, no_draft: bool, verbose: bool, **options: Any
) -> None:
    """Answers one prompt, from -p, -f or stdin. The text goes to stdout as it is accepted, statistics to stderr.

    \b
    dflash-gguf run -m Qwen3.8-27B-Q4_K_M.gguf -md dflash-Qwen3.8-27B-Q4_K_M.gguf -p "Count from 1 to 50."
    """
    if draft is None and not no_draft:
        raise click.UsageError("name the drafter with -md, or pass --no-draft to let the target decode alone", ctx)
    if "" in options["stop"]:
        raise click.UsageError("-r needs a text that is not empty", ctx)
    prompt = read_prompt(ctx, options["prompt"], options["file"])
    from dflash_gguf.runner.session import Session

    native_log(ctx, verbose=verbose)
    output: Output = ctx.obj
    arguments = session_arguments(options)
    sampling = sampling_arguments(ctx, options)
    draft = None if no_draft else draft
    if options["fit_check"]:
        check_fit(output, target, draft, arguments)
    with Session(target, draft, **arguments) as session:
        show_remarks(output, session)
        code = _answer(output, session, prompt, options, sampling)
        if verbose and session.depths is not None:
            output.note(str(session.depths))
    ctx.exit(code)


def _answer(
    output: Output, session: Session, prompt: str, options: Mapping[str, Any], sampling: SamplingOptions
) -> int:
    from dflash_gguf.runner.session import Finished, Round, Text

    text, reason, code = "", "interrupted", 0
    ids: list[int] = []
    try:
        for event in session.generate(
            prompt, max_tokens=options["n_predict"], stop=options["stop"], raw=options["raw"], **sampling
        ):
            match event:
                case Text(piece):
                    text += piece
                    output.text(piece)
                case Round(tokens):
                    ids.extend(tokens)
                case Finished(why):
                    reason = why
    except (KeyboardInterrupt, SystemExit) as ending:  # the latter: a signal that ends the process
        code = ending.code if isinstance(ending, SystemExit) and isinstance(ending.code, int) else INTERRUPTED
    if not text.endswith("\n"):
        output.text("\n")
    stats = session.stats
    output.note(describe(stats, reason) if stats is not None else f"{reason} before the first token")
    output.result(
        {"text": text, "ids": ids, "finish_reason": reason, "stats": stats.as_dict() if stats is not None else None}
    )
    return code


def describe(stats: RunStats, reason: str) -> str:
    """Statistics for a person: a line for speed and, with a drafter, one for what its drafts were worth."""
    speed = (
        f"prompt {stats.prompt_n} tokens, {stats.prompt_per_second:.1f} tokens/s; "
        f"generated {stats.predicted_n} tokens, {stats.predicted_per_second:.1f} tokens/s; {reason}; seed {stats.seed}"
    )
    if not stats.drafter:
        return speed
    rates = " ".join(f"{rate:.2f}" for rate in stats.accepted_per_position)
    return (
        f"{speed}\n{stats.drafter}: drafted {stats.draft_n}, accepted {stats.draft_n_accepted}; "
        f"mean acceptance length {stats.acceptance_length:.2f}; per position {rates or 'none'}"
    )
