"""``dflash-gguf convert``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dflash_gguf.cli.convert_upload import Upload, upload_options
from dflash_gguf.cli.errors import FAILED
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import NamedPath, force_option, inputs_of, threads_option, verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.plan_output import as_dict, describe, show_plan
from dflash_gguf.cli.quantize_options import quantize_options
from dflash_gguf.cli.value_options import value_options
from dflash_gguf.convert.overrides import TABLE, Overrides
from dflash_gguf.errors import DflashError
from dflash_gguf.quantize.quants import DEFAULT_QUANT, QUANT_NAMES

if TYPE_CHECKING:
    from dflash_gguf.convert.api import Result
    from dflash_gguf.convert.inputs import Inputs


@click.command("convert", short_help="Turn a drafter checkpoint into a GGUF.")
@click.argument("checkpoint")
@click.option(
    "--target",
    help="The target: its GGUF, its Hugging Face folder, ORG/REPO or ORG/REPO-GGUF[:TYPE] on the hub. It gives the "
    "tokenizer. Default: what the drafter says itself.",
)
@click.option(
    "--quant",
    type=click.Choice(QUANT_NAMES, case_sensitive=False),
    metavar="TYPE",
    help=f"The file's type, {DEFAULT_QUANT} where none is given: {', '.join(QUANT_NAMES)}.",
)
@click.option("-o", "--output", "out", type=NamedPath(), help="Default: dflash-<Target>-<TYPE>.gguf here.")
@click.option(
    "--modelfile", is_flag=True, help="Write a Modelfile beside the file: NAME.Modelfile. Needs the target's GGUF."
)
@upload_options
@click.option("--dry-run", is_flag=True, help="Print what would be written, every key and tensor, and write nothing.")
@quantize_options
@value_options(TABLE)
@force_option
@threads_option
@verbose_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    checkpoint: str,
    target: str | None,
    quant: str | None,
    out: Path | None,
    *,
    modelfile: bool,
    dry_run: bool,
    force: bool,
    threads: int | None,
    verbose: bool,
    **given: Any,
) -> None:
    """Converts the drafter CHECKPOINT for its target: a folder with config.json and safetensors, or ORG/REPO[@REVISION]
    on the hub, of which only what is needed is downloaded.

    \b
    dflash-gguf convert incoai/Qwen3.8-27B-DFlash2 --quant Q4_K_M
    dflash-gguf convert ./Qwen3.8-27B-DFlash2 --target Qwen3.8-27B-Q4_K_M.gguf
    """
    from dflash_gguf.atomic import check_out
    from dflash_gguf.convert.api import convert_located, planned, recipe_of
    from dflash_gguf.convert.inputs import locate

    native_log(ctx, verbose=verbose)
    output: Output = ctx.obj
    if out is not None:
        check_out(out.absolute(), inputs_of(ctx, "out"), force=force)
    upload = Upload.asked(ctx, given)
    overrides = Overrides(**{row.attribute: given.pop(row.attribute) for row in TABLE})
    recipe = recipe_of(quant, **given)
    if modelfile and target is not None and Path(target).is_dir():
        raise _two_kinds(ctx)
    inputs = locate(checkpoint, target)
    for line in inputs.lines:
        output.note(line)
    joined = _joined(ctx, inputs) if modelfile else None
    if upload is not None and not upload.agreed(output, dry_run=dry_run):
        raise click.ClickException("nothing was converted: the answer was no")
    if dry_run:
        named = {"drafter": asdict(inputs.drafter), "target": asdict(inputs.named)}
        show_plan(output, planned(inputs, recipe, overrides, weights=not inputs.remote), named)
        return
    with output.progress("converting") as progress:
        result = convert_located(
            inputs, recipe, out, overrides=overrides, force=force, n_threads=threads, progress=progress
        )
    for note in result.notes:
        output.warning(note)
    output.line(f"wrote {result.path}\n{describe(result)}")
    written = _modelfile(output, joined, result, force=force) if joined is not None else None
    url = upload.run(output, inputs, result) if upload is not None else None
    more = ({"modelfile": written} if modelfile else {}) | ({"upload": url} if upload is not None else {})
    output.result(as_dict(result) | more)
    if modelfile and written is None:
        ctx.exit(FAILED)


def _joined(ctx: click.Context, inputs: Inputs) -> Path:
    """The target's file, to which ollama joins the drafter's; it must be here."""
    if inputs.named.commit is not None or Path(inputs.named.place).is_dir():
        raise _two_kinds(ctx)
    return Path(inputs.named.place)


def _two_kinds(ctx: click.Context) -> click.UsageError:
    return click.UsageError("--modelfile needs the target's GGUF: ollama cannot join two kinds of files", ctx)


def _modelfile(output: Output, target: Path, result: Result, *, force: bool) -> dict[str, str] | None:
    """The Modelfile beside the new file and its command; None when it could not be, which is told."""
    from dflash_gguf.modelfile.api import write

    out = result.path.with_name(f"{result.path.name.removesuffix('.gguf')}.Modelfile")
    try:
        made = write(target, result.path, out, force=force)
    except DflashError as error:
        output.warning(f"no Modelfile was written: {error}")
        return None
    for warning in made.warnings:
        output.warning(warning)
    output.line(f"wrote {out}\nnext: {made.create_command}")
    return {"path": str(out), "create_command": made.create_command}
