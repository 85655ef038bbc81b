"""``dflash-gguf modelfile``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from dflash_gguf.cli.hub_options import Models, models_options
from dflash_gguf.cli.options import NamedPath, force_option, inputs_of, read_text
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.file_text import without_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dflash_gguf.modelfile.api import Modelfile
    from dflash_gguf.ollama.ask import Answer

_PATH: Final = NamedPath()
_TEXT: Final = "a text, or @FILE"
_TEXTS: Final = ("system", "template", "licenses")


def _text_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a Modelfile can say beside the pair."""
    for option in (
        click.option("--requires", metavar="VERSION", help="Least version of ollama. Default: what the pair needs."),
        click.option("--license", "licenses", multiple=True, metavar="TEXT", help=f"LICENSE, {_TEXT}; repeatable."),
        click.option("--parser", help="PARSER, a name that ollama has."),
        click.option("--renderer", help="RENDERER, a name that ollama has."),
        click.option("--template", metavar="TEXT", help=f"TEMPLATE, in Go's syntax: {_TEXT}."),
        click.option(
            "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="PARAMETER; repeatable for `stop`."
        ),
        click.option("--system", metavar="TEXT", help=f"SYSTEM, {_TEXT}."),
    ):
        command = option(command)
    return command


def _ollama_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What is done with the Modelfile."""
    for option in (
        click.option("--run", "prompt", metavar="PROMPT", help="Ask the new model, with and without the drafter."),
        click.option("--create", "name", metavar="NAME", help="Create the model in the ollama that runs."),
        click.option("--draft-quantize", metavar="TYPE", help="Have ollama quantize the drafter: int4, q8_0."),
        click.option("--quantize", metavar="TYPE", help="Have ollama quantize a target of safetensors: int4."),
    ):
        command = option(command)
    return command


@click.command("modelfile", short_help="Write a Modelfile for ollama.")
@models_options(
    required=True,
    target="The target: a GGUF, or a folder of safetensors.",
    draft="The drafter, of the same kind of files; with -hfd, its path in there.",
)
@click.option("--from-model", is_flag=True, help="-m is the name of a model that ollama has.")
@click.option("-o", "--output", "out", type=_PATH, help="Write it to a file. Default: print it.")
@click.option(
    "--draft-num-predict", type=click.IntRange(min=0), help="Tokens to draft a round. Default: block size - 1."
)
@_text_options
@_ollama_options
@force_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    models: Models,
    *,
    from_model: bool,
    out: Path | None,
    draft_num_predict: int | None,
    name: str | None,
    prompt: str | None,
    force: bool,
    **settings: Any,
) -> None:
    """Writes the Modelfile of a pair, with absolute paths, and the `ollama create` command for it.

    \b
    dflash-gguf modelfile -m target.gguf -md drafter.gguf -o Modelfile
    dflash-gguf modelfile -m target.gguf -md drafter.gguf --create mymodel --run "Count to 50."
    """
    from dflash_gguf.atomic import check_out
    from dflash_gguf.modelfile.api import put, render

    if prompt is not None and name is None:
        raise click.UsageError("--run asks the model that --create makes: give both", ctx)
    if prompt is not None and draft_num_predict == 0:
        raise click.UsageError("--run asks with and without the drafter, which --draft-num-predict 0 turns off", ctx)
    if from_model and models.target is None:
        raise click.UsageError("--from-model needs -m", ctx)
    if out is not None:
        check_out(out.absolute(), {*inputs_of(ctx, "out"), *_files(settings)}, force=force)
    settings = {key: _texts(ctx, value) if key in _TEXTS else value for key, value in settings.items()}
    output: Output = ctx.obj
    target, draft = models.pair_files(ctx)
    made = render(target, draft, draft_num_predict, from_model=from_model, name=name, **settings)
    if out is not None:
        made = put(made, out, name, force=force)
    for warning in made.warnings:
        output.warning(warning)
    _show(output, made, out, created=name is not None)
    facts: dict[str, Any] = {
        "text": made.text,
        "path": str(out.absolute()) if out else None,
        "create_command": made.create_command,
        "warnings": list(made.warnings),
    }
    if name is not None:
        facts["created"] = _create(output, made, name)
    if name is not None and prompt is not None:
        facts["asked"] = _ask(output, name, prompt, made.content.depth)
    output.result(facts)


def _files(settings: Mapping[str, Any]) -> Iterator[Path]:
    """What is named behind an ``@``."""
    for key in _TEXTS:
        given = settings[key]
        for text in given if isinstance(given, tuple) else (given,):
            if text is not None and text.startswith("@"):
                yield Path(text[1:])


def _texts(ctx: click.Context, value: Any) -> Any:
    """A text as it is, or the file that it names behind an ``@``."""
    if isinstance(value, tuple):
        return tuple(_texts(ctx, item) for item in value)
    if not isinstance(value, str) or not value.startswith("@"):
        return value
    file: BinaryIO = click.File("rb").convert(value[1:], None, ctx)  # type: ignore[assignment]
    return read_text(ctx, file, f"`{value[1:]}`")


def _show(output: Output, made: Modelfile, out: Path | None, *, created: bool) -> None:
    if out is not None:
        output.line(f"wrote {out}")
    elif not created:
        output.text(made.text)
    if not created:
        output.note(f"next: {made.create_command}") if out is None else output.line(f"next: {made.create_command}")


def _create(output: Output, made: Modelfile, name: str) -> dict[str, Any]:
    from dflash_gguf.ollama.create import create

    with _bars(output) as progress:
        done = create(made, name, told=lambda text: output.note(f"ollama: {text}"), progress=progress)
    output.line(f"created {done.name} in the ollama at {done.place}")
    return asdict(done)


class _bars:  # noqa: N801  a context manager that is used like a function
    """One bar for each file that is read or sent."""

    def __init__(self, output: Output) -> None:
        self._output, self._stack, self._label = output, ExitStack(), ""
        self._advance: Callable[[int, int], None] = lambda *_: None

    def __enter__(self) -> Callable[[str, int, int], None]:
        return self._step

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _step(self, label: str, done: int, total: int) -> None:
        if label != self._label:
            self._stack.close()
            self._advance = self._stack.enter_context(self._output.progress(label))
            self._label = label
        self._advance(done, total)


def _ask(output: Output, name: str, prompt: str, depth: int) -> dict[str, Any]:
    from dflash_gguf.environment import ollama_host
    from dflash_gguf.ollama.ask import ask_both

    safe = without_controls if sys.stdout.isatty() else str
    asked = ask_both(name, prompt, depth, ollama_host(), lambda piece: output.text(safe(piece)))
    output.text("\n")
    same = asked.drafted.text == asked.plain.text
    output.note(f"with the drafter: {_speed(asked.drafted)}\nwithout it: {_speed(asked.plain)}")
    if asked.ratio is not None:
        output.note(f"{asked.ratio:.2f} times as fast, {'the same text' if same else 'another text'}")
    answers = {"with_drafter": asked.drafted, "without": asked.plain}
    return {
        **{key: {**asdict(each), "tokens_per_second": each.per_second} for key, each in answers.items()},
        "ratio": asked.ratio,
        "same_text": same,
    }


def _speed(answer: Answer) -> str:
    speed = answer.per_second
    return f"{answer.n_tokens} tokens" + (f", {speed:.1f} tokens/s" if speed else ", no time told")
