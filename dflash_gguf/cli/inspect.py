"""``dflash-gguf inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dflash_gguf.cli.cost_output import show_cost
from dflash_gguf.cli.errors import NOT_PASSED
from dflash_gguf.cli.hub_options import Models, fetched, models_options
from dflash_gguf.cli.options import NamedPath
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.file_text import printable, shell_word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.difference import Difference, KeyChange, TensorChange
    from dflash_gguf.gguf_values import Stated
    from dflash_gguf.hub.models import Model
    from dflash_gguf.inspect import Drafter, Inspection

_FILE = NamedPath()
_LINE = 60


@click.command("inspect", short_help="Show what a GGUF holds.")
@click.argument("file", type=_FILE, required=False)
@models_options(required=False)
@click.option("--diff", "other", type=_FILE, metavar="OTHER", help="Show what differs in another file instead.")
@click.option(
    "--against",
    "source",
    type=_FILE,
    metavar="SOURCE",
    help="Show how far the weights are from those of SOURCE, a GGUF or a checkpoint's folder.",
)
@click.option(
    "--target", "goal", type=_FILE, help="With --against a folder: the target's GGUF or folder, as for convert."
)
@click.option("--headers-only", is_flag=True, help="With --diff: compare keys and the tensor table, not the data.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    file: Path | None,
    models: Models,
    other: Path | None,
    source: Path | None,
    goal: Path | None,
    *,
    headers_only: bool,
) -> None:
    """Shows kind, sizes, taps, block, mask token, types and tensors of a GGUF; a drafter's or any other.

    The file is named by itself, or as the other commands name it; of one on the hub the header alone is read.
    With --diff the exit code is 0 when the two files hold the same, 3 when they do not.

    \b
    dflash-gguf inspect drafter.gguf
    dflash-gguf inspect drafter.gguf --diff other.gguf
    dflash-gguf inspect drafter-Q4_K_M.gguf --against drafter-BF16.gguf
    dflash-gguf inspect -hfd incoai/Qwen3.8-27B-DFlash2-GGUF:Q4_K_M
    """
    output: Output = ctx.obj
    if headers_only and other is None:
        raise click.UsageError("--headers-only needs --diff", ctx)
    if other is not None and source is not None:
        raise click.UsageError("give --diff or --against, not both", ctx)
    if goal is not None and (source is None or not source.is_dir()):
        raise click.UsageError("--target needs --against a checkpoint's folder", ctx)
    model = _model(ctx, file, models)
    if source is not None:
        show_cost(output, fetched(ctx, model), source, goal)
        return
    if other is not None:
        ctx.exit(0 if _compare(output, fetched(ctx, model), other, data=not headers_only) else NOT_PASSED)
    _show(output, model)


def _model(ctx: click.Context, file: Path | None, models: Models) -> Model:
    """The one that was named: FILE, a target, or a drafter."""
    from dflash_gguf.hub.models import LocalModel

    drafter = models.draft is not None or models.hf_repo_draft is not None
    found: Model | None = None
    if (file is not None) + models.named + drafter == 1:
        if file is not None:
            found = LocalModel(file)
        else:
            found = models.find_target(ctx) if models.named else models.find_draft(ctx, None)
    if found is None:
        raise click.UsageError("name one file: FILE, or with -hf or -hfd", ctx)
    return found


def _show(output: Output, model: Model) -> None:
    from dflash_gguf.inspect import as_dict, inspect

    found = inspect(model.source())
    output.result(as_dict(found))
    first, *others = _rows(found)
    output.table(first, others)
    output.line()
    rows = [(t.name, str(list(t.shape)), t.type, str(t.n_bytes)) for t in found.tensors]
    output.table(("tensor", "shape", "type", "bytes"), rows)
    if found.fork:
        paths = found.path, f"{Path(model.name).stem}-rekeyed.gguf"
        words = printable(" ".join(map(shell_word, paths)))
        output.line(
            f"\nllama.cpp does not load this format; give it the names that it reads:\n  dflash-gguf rekey {words}"
        )


def _rows(found: Inspection) -> Iterator[tuple[str, str]]:
    from dflash_gguf.inspect import file_type

    yield "file", f"{found.path}, {found.n_bytes} bytes, GGUF version {found.gguf_version}"
    yield "kind", found.kind
    yield "architecture", _text(found.architecture)
    yield "file type", file_type(found) or found.file_type.problem
    for name, fact in found.dims.items():
        yield name, _text(fact)
    yield "tokens", "none" if found.n_tokens is None else str(found.n_tokens)
    if found.drafter is not None:
        yield from _drafter_rows(found.drafter)
    types = ", ".join(f"{count} {name}" for name, count in sorted(found.tensor_types.items()))
    yield "tensors", f"{len(found.tensors)}{f': {types}' if types else ''}"
    yield "weights", str(found.n_weights)
    yield "bits per weight", "none" if found.bits_per_weight is None else f"{found.bits_per_weight:.2f}"
    for fact in found.source:
        yield fact.key, _text(fact)


def _drafter_rows(drafter: Drafter) -> Iterator[tuple[str, str]]:
    for name, fact in drafter.facts.items():
        if name == "target_layers" and drafter.target_layers is not None and drafter.target_layer_ids is not None:
            yield "taps, as layer inputs", _list(drafter.target_layers)
            yield "taps, as the checkpoint's layers", _list(drafter.target_layer_ids)
        elif name == "mask_token_id":
            yield name, _text(fact)
            yield "mask_token", _text(drafter.mask_token)
        else:
            yield name, _text(fact)


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _text(fact: Stated) -> str:
    """One line: the value, or why there is none."""
    from dflash_gguf.gguf_values import value_text

    return fact.problem if fact.value is None else _short(value_text(fact.value))


def _short(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[: _LINE - 3]}..."


def _compare(output: Output, file: Path, other: Path, *, data: bool) -> bool:
    from dflash_gguf.difference import as_dict, diff

    with output.progress("comparing") as progress:
        found = diff(file, other, data=data, progress=progress)
    output.result(as_dict(found))
    if found.keys:
        rows = [(change.key, change.what, _key_change(change)) for change in found.keys]
        output.table(("key", "difference", "first -> second"), rows)
        output.line()
    if found.tensors:
        tensors = [(change.name, change.what, _tensor_change(change)) for change in found.tensors]
        output.table(("tensor", "difference", "first -> second"), tensors)
        output.line()
    output.line(_verdict(found))
    return found.same


def _verdict(found: Difference) -> str:
    compared = "keys and tensors" if found.data_compared else "keys and the tensor table (data was not compared)"
    if found.same:
        return f"the same {compared}"
    tensors = len({change.name for change in found.tensors})
    return f"keys that differ: {len(found.keys)}, tensors that differ: {tensors}; compared: {compared}"


def _key_change(change: KeyChange) -> str:
    sides = [_side(side, change) for side in (change.first, change.second) if side is not None]
    return f"{_place(change)}{' -> '.join(sides)}"


def _place(change: KeyChange) -> str:
    if change.index is None or change.first is None or change.second is None:
        return ""
    if not change.first.type.startswith("array"):
        return f"from character {change.index}: "
    counts = change.first.count, change.second.count
    lengths = "" if counts[0] == counts[1] else f"{counts[0]} -> {counts[1]} items; "
    return f"{lengths}first at item {change.index}: "


def _side(side: Stated, change: KeyChange) -> str:
    from dataclasses import replace

    if isinstance(side.value, str) and not side.type.startswith("array"):
        side = replace(side, value=side.value[change.index or 0 :])
    return f"{side.type} {_text(side)}" if change.what == "type" else _text(side)


def _tensor_change(change: TensorChange) -> str:
    if change.index is not None:
        return f"first at byte {change.index}"
    return " -> ".join(side for side in (change.first, change.second) if side is not None)
