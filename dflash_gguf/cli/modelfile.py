"""``dflash-gguf modelfile``."""

from __future__ import annotations

from pathlib import Path

import click

from dflash_gguf.cli.options import draft_option, force_option, target_option
from dflash_gguf.cli.output import Output, json_option


@click.command("modelfile", short_help="Write a Modelfile for ollama.")
@target_option
@draft_option(required=True)
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), help="Write it to a file. Default: print it.")
@click.option(
    "--draft-num-predict", type=click.IntRange(min=0), help="Tokens to draft a round. Default: block size - 1."
)
@force_option
@json_option
@click.pass_obj
def command(
    output: Output, target: Path, draft: Path, out: Path | None, draft_num_predict: int | None, force: bool
) -> None:
    """Writes the Modelfile of a pair, with absolute paths, for `ollama create`.

    \b
    dflash-gguf modelfile -m target.gguf -md drafter.gguf -o Modelfile && ollama create mymodel -f Modelfile
    """
    from dflash_gguf.modelfile import render, write

    if out is None:
        made = render(target, draft, draft_num_predict)
        output.text(made.text)
    else:
        made = write(target, draft, out, draft_num_predict, force=force)
        output.line(f"wrote {out}\nnext: {made.create_command}")
    for warning in made.warnings:
        output.warning(warning)
    output.result(
        {"text": made.text, "path": str(out.absolute()) if out else None, "create_command": made.create_command}
    )
