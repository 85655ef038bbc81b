"""``dflash-gguf verify``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dflash_gguf.cli.errors import NOT_PASSED
from dflash_gguf.cli.hub_options import Models, models_options
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import given_prompt, prompt_options, verbose_option
from dflash_gguf.cli.output import Output, json_option, printable
from dflash_gguf.cli.sampling_options import check_tokens, sampling_arguments, sampling_options
from dflash_gguf.cli.session_options import session_arguments, session_options, show_remarks
from dflash_gguf.runner.bounds import FIXED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dflash_gguf.runner.comparison import Answer, Parting
    from dflash_gguf.runner.session import Session


@click.command("verify", short_help="Compare the tokens with and without the drafter.")
@models_options(required=True)
@prompt_options
@click.option(
    "-n", "--n-predict", type=click.IntRange(1, 1 << 20), default=96, show_default=True, help="Tokens a prompt."
)
@sampling_options(temperature=0)
@session_options
@verbose_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, models: Models, *, verbose: bool, **options: Any) -> None:
    """Decodes each prompt with and without the drafter and compares token by token; built-in prompts without -p or -f.

    Always as many tokens are drafted as allowed, whether that pays or not, unless --depth says otherwise.

    At the first difference it shows how far apart the target's two best tokens are: where that is as little as the
    backend's rounding, the drafter is not at fault. Exit code 0: all tokens are the same; 3: they are not.

    \b
    dflash-gguf verify -m Qwen3.8-27B-Q4_K_M.gguf -md dflash-Qwen3.8-27B-Q4_K_M.gguf
    """
    from dflash_gguf.runner.comparison import answer
    from dflash_gguf.runner.prompts import PROMPTS
    from dflash_gguf.runner.sampling import Sampling
    from dflash_gguf.runner.session import Session

    given = given_prompt(ctx, options["prompt"], options["file"])
    texts = [given] if given is not None else [prompt.text for prompt in PROMPTS]
    native_log(ctx, verbose=verbose)
    output: Output = ctx.obj
    arguments = session_arguments(options)
    if ctx.get_parameter_source("depth") is ParameterSource.DEFAULT:
        arguments["depth"] = FIXED
    sampling = sampling_arguments(ctx, options)
    sampling["seed"] = Sampling(**sampling).with_seed()[1]
    alone = {**arguments, "spec_draft_n_max": None}
    target, draft = models.pair_files(ctx)
    check_tokens(ctx, target, sampling["logit_bias"])
    with Session(target, **alone) as session:
        prompts = [session.tokenize(text, raw=options["raw"]) for text in texts]
        plain = [answer(session, ids, options["n_predict"], sampling) for ids in prompts]
    # One after the other: the target may fill the memory that there is.
    with Session(target, draft, **arguments) as session:
        show_remarks(output, session)
        drafted = [answer(session, ids, options["n_predict"], sampling) for ids in prompts]
    rows = list(_compared(target, alone, texts, prompts, plain, drafted))
    for row in rows:
        output.line(_line(row))
    same = all(row["same"] for row in rows)
    output.line(f"{sum(row['same'] for row in rows)} of {len(rows)} prompts: the same tokens")
    output.result({"same": same, "prompts": rows})
    ctx.exit(0 if same else NOT_PASSED)


def _compared(
    target: Path,
    settings: dict[str, Any],
    texts: Sequence[str],
    prompts: Sequence[list[int]],
    plain: Sequence[Answer],
    drafted: Sequence[Answer],
) -> Iterator[dict[str, Any]]:
    """A row for each prompt; the target is opened once more where answers part, with the same settings."""
    from dflash_gguf.runner.comparison import parting, place_of_parting
    from dflash_gguf.runner.session import Session

    for text, ids, ours, theirs in zip(texts, prompts, plain, drafted, strict=True):
        row = {"prompt": text, "n_tokens": len(ours.ids), "same": True, "parting": None}
        if place_of_parting(ours.ids, theirs.ids) is not None:
            with Session(target, **settings) as session:
                found = parting(session, ids, ours.ids, theirs.ids)
                row |= {"same": False, "parting": None if found is None else _parting(found, session)}
        yield row | {"drafted": theirs.stats.as_dict()}


def _parting(found: Parting, session: Session) -> dict[str, Any]:
    values = {name: value for name, value in asdict(found).items() if value == value}  # noqa: PLR0124  no NaN in JSON
    texts = {
        f"{side}_text": session.token_text(token) if token >= 0 else ""
        for side, token in (("plain", found.plain_id), ("drafted", found.drafted_id))
    }
    return values | texts


def _line(row: dict[str, Any]) -> str:
    shown, found = printable(row["prompt"])[:48], row["parting"]
    if found is None:
        return f"same       {row['n_tokens']:>4} tokens  {shown}"
    plain, drafted = (
        f"{found[f'{side}_id']} {found[f'{side}_text']!a}" if found[f"{side}_id"] >= 0 else "nothing"
        for side in ("plain", "drafted")
    )
    return (
        f"different  at token {found['index']}: {plain} without the drafter, {drafted} with it; "
        f"the target's two best logits are {found['margin']:.4g} apart  {shown}"
    )
