"""``dflash-gguf imatrix``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from dflash_gguf.cli.hub_options import Models, models_options
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import NamedPath, force_option, inputs_of, read_text, verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.session_options import PLACING, options_for

if TYPE_CHECKING:
    from dflash_gguf.quantize.imatrix_make import Made

_SESSION: Final = (*PLACING, "n_threads_draft")
"""What of a session may be chosen: where and how fast it runs, not what."""


@click.command("imatrix", short_help="Measure which columns of a drafter matter.")
@models_options(required=True)
@click.option("-f", "--file", type=click.File("rb"), required=True, help="The text to draft along; - is stdin.")
@click.option(
    "-o",
    "--output",
    "out",
    type=NamedPath(),
    default="imatrix.gguf",
    show_default=True,
    help="The file to write.",
)
@click.option(
    "-c",
    "--ctx-size",
    "chunk",
    type=click.IntRange(32, 1 << 16),
    default=512,
    show_default=True,
    help="Tokens that are read behind one another, before everything is forgotten.",
)
@click.option("--chunks", type=click.IntRange(min=1), help="Use so many such pieces of the text at the most.")
@click.option("--parse-special", is_flag=True, help="Special tokens that are spelt out in the text are meant.")
@options_for(*_SESSION)
@force_option
@verbose_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    models: Models,
    file: BinaryIO,
    out: Path,
    chunk: int,
    chunks: int | None,
    *,
    parse_special: bool,
    force: bool,
    verbose: bool,
    **session: Any,
) -> None:
    """Drafts along a text, as if the target wrote it, and writes what runs through the drafter's matrices to a file.

    `convert --imatrix` and `quantize --imatrix` weigh columns by it; llama-quantize takes it too. Best is a text of the
    kind that will be written: the target's own answers.

    \b
    dflash-gguf imatrix -m Qwen3.8-27B-Q4_K_M.gguf -md dflash-Qwen3.8-27B-BF16.gguf -f answers.txt
    """
    from dflash_gguf.atomic import check_out
    from dflash_gguf.quantize.imatrix_make import make_imatrix
    from dflash_gguf.runner.along import Text

    native_log(ctx, verbose=verbose)
    output: Output = ctx.obj
    name = Path(getattr(file, "name", "-"))
    check_out(out.absolute(), inputs_of(ctx, "out"), force=force)
    text = Text(read_text(ctx, file, "the text"), chunk, chunks, parse_special)
    target, draft = models.pair_files(ctx)
    with output.progress("drafting", unit="tok") as progress:
        made = make_imatrix(
            target,
            draft,
            text,
            out,
            dataset=name.name,
            force=force,
            progress=progress,
            **session,
        )
    _show(output, made)


def _show(output: Output, made: Made) -> None:
    if made.unseen:
        output.note(f"no entries, since only rows of them are looked up: {', '.join(made.unseen)}")
    if made.unused:
        output.warning(f"{made.unused} matrices of experts were never used: a longer text would use more")
    drafted = made.drafted
    output.result(
        {
            **asdict(made),
            "path": str(made.path),
            "drafted": asdict(drafted) | {"acceptance_length": drafted.acceptance_length},
        }
    )
    output.line(
        f"wrote {made.path}: {len(made.names)} entries from {drafted.n_drafts} drafts along {drafted.n_tokens} tokens; "
        f"acceptance length {drafted.acceptance_length:.2f}"
    )
