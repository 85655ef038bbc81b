"""``dflash-gguf verify``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dflash_gguf.cli.errors import NOT_PASSED
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import (
    draft_option,
    given_prompt,
    prompt_options,
    target_option,
    verbose_option,
)
from dflash_gguf.cli.output import Output, json_option, printable
from dflash_gguf.cli.session_options import session_arguments, session_options

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_gguf.runner.comparison import Comparison, Parting
    from dflash_gguf.runner.session import Session


@click.command("verify", short_help="Compare the tokens with and without the drafter.")
@target_option
@draft_option(required=True)
@prompt_options
@click.option(
    "-n", "--n-predict", type=click.IntRange(1, 1 << 20), default=96, show_default=True, help="Tokens a prompt."
)
@session_options
@verbose_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, target: Path, draft: Path, *, verbose: bool, **options: Any) -> None:
    """Decodes each prompt with and without the drafter and compares token by token; built-in prompts without -p or -f.

    At the first difference it shows how far apart the target's two best tokens are: where that is as little as the
    backend's rounding, the drafter is not at fault. Exit code 0: all tokens are the same; 3: they are not.

    \b
    dflash-gguf verify -m Qwen3.8-27B-Q4_K_M.gguf -md dflash-Qwen3.8-27B-Q4_K_M.gguf
    """
    from dflash_gguf.runner.comparison import compare
    from dflash_gguf.runner.prompts import PROMPTS
    from dflash_gguf.runner.session import Session

    given = given_prompt(ctx, options["prompt"], options["file"])
    texts = [given] if given is not None else [prompt.text for prompt in PROMPTS]
    native_log(ctx, verbose=verbose)
    output: Output = ctx.obj
    arguments = session_arguments(options)
    alone = {**arguments, "spec_draft_n_max": None}
    rows = []
    with Session(target, **alone) as plain, Session(target, draft, **arguments) as drafted:
        for text in texts:
            ids = plain.tokenize(text, raw=options["raw"])
            comparison = compare(plain, drafted, ids, options["n_predict"])
            rows.append(_as_dict(text, comparison, plain))
            output.line(_line(text, comparison, plain))
    same = all(row["same"] for row in rows)
    output.line(f"{sum(row['same'] for row in rows)} of {len(rows)} prompts: the same tokens")
    output.result({"same": same, "prompts": rows})
    ctx.exit(0 if same else NOT_PASSED)


def _line(text: str, comparison: Comparison, session: Session) -> str:
    shown = printable(text)[:48]
    parting = comparison.parting
    if parting is None:
        return f"same       {comparison.n_tokens:>4} tokens  {shown}"
    plain, drafted = (ascii(session.token_text(token)) for token in (parting.plain_id, parting.drafted_id))
    return (
        f"different  at token {parting.index}: {parting.plain_id} {plain} without the drafter, "
        f"{parting.drafted_id} {drafted} with it; the target's two best logits are {parting.margin:.4g} apart  {shown}"
    )


def _as_dict(text: str, comparison: Comparison, session: Session) -> dict[str, Any]:
    return {
        "prompt": text,
        "n_tokens": comparison.n_tokens,
        "same": comparison.parting is None,
        "parting": None if comparison.parting is None else _parting(comparison.parting, session),
        "drafted": comparison.drafted.as_dict(),
    }


def _parting(parting: Parting, session: Session) -> dict[str, Any]:
    texts = {"plain_text": session.token_text(parting.plain_id), "drafted_text": session.token_text(parting.drafted_id)}
    return asdict(parting) | texts
