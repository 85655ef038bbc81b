"""``dflash-gguf run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dflash_gguf.cli.chat import Request, chat
from dflash_gguf.cli.chat_options import ChatOptions, chat_arguments, chat_options
from dflash_gguf.cli.hub_options import Models, models_options
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import prompt_options, range_of, read_prompt, verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.sampling_options import check_tokens, sampling_arguments, sampling_options
from dflash_gguf.cli.session_options import (
    check_fit,
    fit_option,
    session_arguments,
    session_options,
    show_remarks,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from dflash_gguf.runner.generation import Finished, Round
    from dflash_gguf.runner.session import Session
    from dflash_gguf.runner.thinking import Piece


@click.command("run", short_help="Generate with a target and its drafter, or chat.")
@models_options(required=True)
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
@chat_options
@sampling_options()
@session_options
@fit_option
@verbose_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, models: Models, no_draft: bool, verbose: bool, **options: Any) -> None:
    """Answers one prompt, from -p, -f or stdin, or begins a chat when there is none and stdin is a terminal.

    The text goes to stdout as it is accepted, statistics to stderr.

    \b
    dflash-gguf run -m Qwen3.8-27B-Q4_K_M.gguf -md dflash-Qwen3.8-27B-Q4_K_M.gguf -p "Count from 1 to 50."
    dflash-gguf run -hf ggml-org/Qwen3.8-27B-GGUF:Q4_K_M -hfd incoai/Qwen3.8-27B-DFlash2-GGUF:Q4_K_M
    """
    if "" in options["stop"]:
        raise click.UsageError("-r needs a text that is not empty", ctx)
    prompt = read_prompt(ctx, options["prompt"], options["file"])
    chatting = chat_arguments(options)
    _check_usage(ctx, prompt, chatting, raw=options["raw"])
    from dflash_gguf.runner.session import Session

    native_log(ctx, verbose=verbose)
    output: Output = ctx.obj
    arguments = session_arguments(options)
    sampling = sampling_arguments(ctx, options)
    target, draft = (models.target_file(ctx), None) if no_draft else models.pair_files(ctx)
    check_tokens(ctx, target, sampling["logit_bias"])
    if options["fit_check"]:
        check_fit(output, target, draft, arguments)
    if not options["raw"]:
        chatting = chatting.checked(target)
    with Session(target, draft, **arguments) as session:
        show_remarks(output, session)
        request = Request(sampling, options["n_predict"], options["stop"])
        if prompt is None:
            code = chat(output, session, request, chatting, verbose=verbose)
        else:
            pieces = _pieces(session, prompt, request, chatting, raw=options["raw"])
            code = _answer(output, session, pieces, chatting)
        if verbose and session.depths is not None:
            output.note(str(session.depths))
    ctx.exit(code)


def _check_usage(ctx: click.Context, prompt: str | None, chatting: ChatOptions, *, raw: bool) -> None:
    if prompt is None and ctx.obj.json_mode:
        raise click.UsageError("give a prompt with -p or -f, or pipe one in: a chat is no JSON object", ctx)
    if prompt is None and raw:
        raise click.UsageError("a chat needs the chat template: leave out --raw, or give a prompt", ctx)
    if raw and chatting.needs_template:
        raise click.UsageError(
            "--system, --reasoning-effort and --chat-template-kwargs need the template: leave out --raw", ctx
        )


def _pieces(
    session: Session, prompt: str, request: Request, chatting: ChatOptions, *, raw: bool
) -> Generator[Piece | Round | Finished]:
    from dflash_gguf.runner.conversation import Conversation, split

    if raw:
        return split(session.generate(prompt, raw=True, **request.arguments()), None, prompt)
    return Conversation(session, chatting.system, chatting.values).ask(prompt, **request.arguments())


def _answer(
    output: Output, session: Session, pieces: Generator[Piece | Round | Finished], chatting: ChatOptions
) -> int:
    from dflash_gguf.cli.answer import AnswerWriter, describe, show

    writer = AnswerWriter(output, chatting)
    answer = show(writer, pieces)
    writer.end()
    stats = session.stats
    output.note(describe(stats, answer.reason) if stats is not None else f"{answer.reason} before the first token")
    output.result(
        {
            "text": answer.text,
            "ids": answer.ids,
            "finish_reason": answer.reason,
            "stats": stats.as_dict() if stats is not None else None,
        }
    )
    return answer.code
