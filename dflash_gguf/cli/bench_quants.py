"""``dflash-gguf bench quants``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.bench_options import bench_options, check_prompts, prompts_of, prompts_shown, report_options
from dflash_gguf.cli.bench_output import check_outputs, show, until_interrupted, write_outputs
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import NamedPath, force_option, verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.session_options import PLACING, options_for
from dflash_gguf.quantize.mixes import MIXES
from dflash_gguf.quantize.quants import QUANT_NAMES

if TYPE_CHECKING:
    from dflash_gguf.bench.quants import TypeResult

_FILE: Final = NamedPath()
DEFAULT_TYPES: Final = "BF16,Q8_0,Q4_K_M,Q4_0"
_TYPES: Final = frozenset(name.upper() for name in QUANT_NAMES)
_SESSION: Final = (*PLACING, "n_threads_draft", "n_ctx", "spec_draft_n_max")


def _types(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not names:
        raise click.BadParameter("no type is named", ctx, param)
    for name in names:
        if name.lower() not in MIXES and name.upper() not in _TYPES:
            known = ", ".join((*QUANT_NAMES, *MIXES))
            raise click.BadParameter(f"{name} is no type or mix; choose from {known}", ctx, param)
    return names


@click.command("quants", short_help="Measure one drafter in several types.")
@click.option("-m", "--model", "target", type=_FILE, required=True, help="The target's GGUF file.")
@click.option(
    "--checkpoint",
    type=_FILE,
    required=True,
    help="The drafter: its checkpoint's folder, or a GGUF of F32, BF16 or F16.",
)
@click.option(
    "--types",
    callback=_types,
    default=DEFAULT_TYPES,
    show_default=True,
    metavar="TYPE,..",
    help="Types by llama-quantize's names, and names of mixes.",
)
@click.option("--imatrix", type=_FILE, help="Weigh the columns of all quantized types by this importance matrix.")
@click.option("--keep", type=NamedPath(file_okay=False, exists=True), help="Keep the files here.")
@bench_options(runs=1)
@report_options
@force_option
@options_for(*_SESSION)
@verbose_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Makes a drafter in several types, runs each on the same prompts, and says what each is worth: bytes, tokens that
    a pass of the target yields, tokens per second.

    A full block is drafted each time, at temperature 0: what is accepted does not depend on how fast the machine is.

    \b
    dflash-gguf bench quants -m Qwen3.8-27B-Q4_K_M.gguf --checkpoint ./Qwen3.8-27B-DFlash2 --types Q4_0,Q4_K_M,Q8_0,BF16
    """
    from dflash_gguf.bench.machine import facts
    from dflash_gguf.bench.measure import Plan
    from dflash_gguf.bench.quants import Source, run_types
    from dflash_gguf.bench.quants_report import of_types

    check_prompts(ctx, options)
    check_outputs(ctx, options)
    native_log(ctx, verbose=options["verbose"])
    output: Output = ctx.obj
    prompts = prompts_of(options)
    session = {row: options[row] for row in _SESSION}
    plan = Plan(options["n_predict"], options["runs"], {"temperature": 0, "seed": 0}, options["raw"])
    source = Source(options["checkpoint"], options["target"], options["imatrix"])
    found: list[TypeResult] = []
    keep, force = options["keep"], options["force"]
    results = run_types(source, options["types"], prompts, plan, session, keep, output.note, force=force)
    with until_interrupted() as ending, closing(results):
        for result in results:
            found.append(result)
            output.note(f"{result.name}: acceptance length {result.all.acceptance_length:.3f}")
    if not found:
        ctx.exit(ending.code)
    names = {"target": options["target"].name, "drafter": options["checkpoint"].name}
    weighed = {"importance matrix": options["imatrix"].name} if options["imatrix"] else {}
    shown = {**names, **weighed, "prompts": prompts_shown(options, len(prompts)), **facts(options["n_threads"])}
    shown |= ending.facts
    report = of_types(found, shown)
    show(output, report)
    write_outputs(output, report, options)
    output.result({"facts": shown, "types": [asdict(result) for result in found], "verdicts": report.verdicts})
    ctx.exit(ending.code)
