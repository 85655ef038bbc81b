"""``dflash-gguf quantize``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import NamedPath, force_option, threads_option, verbose_option
from dflash_gguf.cli.output import json_option
from dflash_gguf.cli.plan_output import as_dict, describe, show_plan
from dflash_gguf.cli.quantize_options import quantize_options
from dflash_gguf.quantize.quants import COPY, QUANT_NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_gguf.cli.output import Output


_TYPES: Final = (*QUANT_NAMES, COPY.name)


@click.command(
    "quantize", short_help="Give a drafter's GGUF another type.", epilog=f"TYPE is one of {', '.join(_TYPES)}."
)
@click.argument("old", type=NamedPath())
@click.argument("new", type=NamedPath())
@click.argument("quant", type=click.Choice(_TYPES, case_sensitive=False), metavar="[TYPE]", required=False)
@click.option("--allow-requantize", is_flag=True, help="Make blocks of blocks too, which costs accuracy each time.")
@click.option("--dry-run", is_flag=True, help="Print what would be written, every key and tensor, and write nothing.")
@quantize_options
@force_option
@threads_option
@verbose_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    old: Path,
    new: Path,
    quant: str | None,
    *,
    allow_requantize: bool,
    dry_run: bool,
    force: bool,
    threads: int | None,
    verbose: bool,
    **given: Any,
) -> None:
    """Writes the drafter OLD, a GGUF, to NEW with another TYPE (Q4_K_M where none is given); every other key stays.

    \b
    dflash-gguf quantize dflash-Qwen3.8-27B-BF16.gguf dflash-Qwen3.8-27B-Q4_K_M.gguf Q4_K_M
    """
    from dflash_gguf.atomic import check_out
    from dflash_gguf.quantize import api

    native_log(ctx, verbose=verbose)
    output: Output = ctx.obj
    if dry_run:
        check_out(new.absolute(), {old, given["imatrix"] or old}, force=force)
        show_plan(output, api.planned(old, quant, allow_requantize=allow_requantize, **given))
        return
    with output.progress("quantizing") as progress:
        result = api.quantize(
            old,
            new,
            quant,
            allow_requantize=allow_requantize,
            force=force,
            n_threads=threads,
            progress=progress,
            **given,
        )
    for note in result.notes:
        output.warning(note)
    output.result(as_dict(result))
    output.line(f"wrote {result.path}\n{describe(result)}")
