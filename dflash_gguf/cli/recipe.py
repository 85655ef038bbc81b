"""``dflash-gguf recipe``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.output import Output, json_option

if TYPE_CHECKING:
    from dflash_gguf.recipes.parts import Engine

ENGINES: Final = ("sglang", "vllm", "llama-server", "ollama", "omlx", "trtllm", "dflash-client", "nemo")
"""The names of the table, which takes longer to load than help may."""
LIST: Final = "list"


@click.command("recipe", short_help="Launch lines of other engines.")
@click.argument("engine", type=click.Choice([*ENGINES, LIST]), metavar=f"ENGINE|{LIST}")
@click.option("-m", "--target", help="The target: a GGUF, a folder of safetensors, or ORG/REPO[:TAG].")
@click.option("-md", "--draft", help="The drafter: its folder or config.json, a GGUF, or ORG/REPO[:TAG].")
@click.option("--concurrency", type=click.IntRange(1, 1 << 20), help="Requests at once. Default: 1.")
@click.option("--gpus", type=click.IntRange(1, 1 << 20), default=1, show_default=True, help="GPUs to use.")
@click.option("--mlx-bits", type=click.Choice(["4", "8"]), help="Bits of quantized weights, on Apple Silicon.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    engine: str,
    *,
    target: str | None,
    draft: str | None,
    concurrency: int | None,
    gpus: int,
    mlx_bits: str | None,
) -> None:
    """Prints how ENGINE is installed and launched with this target and this drafter, and why each flag is there.

    ENGINE is sglang, vllm, llama-server, ollama, omlx, trtllm, dflash-client or nemo; `list` tells of all.

    \b
    dflash-gguf recipe vllm --target Qwen/Qwen3.8-27B --draft ./Qwen3.8-27B-DFlash2
    """
    output: Output = ctx.obj
    if engine == LIST:
        _list(output)
        return
    if target is None or draft is None:
        raise click.UsageError("--target and --draft are needed: flags differ from drafter to drafter", ctx)
    from dflash_gguf.recipes.api import recipe

    bits = None if mlx_bits is None else int(mlx_bits)
    made = recipe(engine, target=target, draft=draft, concurrency=concurrency, gpus=gpus, mlx_bits=bits)
    for warning in made.warnings:
        output.warning(warning)
    output.text(made.text)
    output.result({**asdict(made), "text": made.text})


def _list(output: Output) -> None:
    from dflash_gguf.recipes.table import ENGINES as TABLE

    output.table(
        ("engine", "knob", "checked", "counts"),
        [(engine.name, engine.depth.knob, engine.checked, engine.depth.counting) for engine in TABLE.values()],
    )
    output.result({"engines": [_row(engine) for engine in TABLE.values()]})


def _row(engine: Engine) -> dict[str, Any]:
    return {
        "name": engine.name,
        "title": engine.title,
        "kinds": sorted(engine.kinds),
        "knob": engine.depth.knob,
        "counting": engine.depth.counting,
        "dflash2": engine.dflash2,
        "constraints": [constraint.text for constraint in engine.constraints],
        "source": list(engine.source),
        "checked": engine.checked,
    }
