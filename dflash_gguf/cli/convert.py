"""``dflash-gguf convert``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dflash_gguf.cli.options import force_option, native_log, threads_option, verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.quantize.mix import DEFAULT_QUANT, QUANT_NAMES

if TYPE_CHECKING:
    from dflash_gguf.convert.api import Result


@click.command("convert", short_help="Turn a drafter checkpoint into a GGUF.")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--target",
    type=click.Path(path_type=Path),
    required=True,
    help="The target's GGUF: its header gives the tokenizer.",
)
@click.option(
    "--quant",
    type=click.Choice(QUANT_NAMES, case_sensitive=False),
    default=DEFAULT_QUANT,
    show_default=True,
    help="The file's type.",
)
@click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), help="Default: dflash-<Target>-<TYPE>.gguf here."
)
@force_option
@threads_option
@verbose_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    checkpoint: Path,
    target: Path,
    quant: str,
    out: Path | None,
    *,
    force: bool,
    threads: int | None,
    verbose: bool,
) -> None:
    r"""Converts the drafter in the folder CHECKPOINT (config.json and safetensors) for a target.

    \b
    dflash-gguf convert ./Qwen3.8-27B-DFlash2 --target Qwen3.8-27B-Q4_K_M.gguf --quant Q4_K_M
    """
    from dflash_gguf.convert.api import convert

    native_log(ctx, verbose=verbose)
    output: Output = ctx.obj
    with output.progress("converting") as progress:
        result = convert(checkpoint, target, quant, out, force=force, n_threads=threads, progress=progress)
    for note in result.notes:
        output.warning(note)
    output.result(as_dict(result))
    output.line(f"wrote {result.path}\n{describe(result)}")


def describe(result: Result) -> str:
    """Size and the tensor types that were really written."""
    types = ", ".join(f"{count} {name}" for name, count in sorted(result.tensor_types.items()))
    return f"{result.n_bytes / 1e6:.1f} MB, {result.bits_per_weight:.2f} bits per weight; tensors: {types}"


def as_dict(result: Result) -> dict[str, Any]:
    """The result as plain JSON values."""
    return {**asdict(result), "path": str(result.path), "tensor_types": dict(result.tensor_types)}
