"""How `convert` and `quantize` show a plan and what became of it.

Comes in: plans and results. Goes out: lines, tables and plain JSON values.
"""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.cli.output import Output
    from dflash_gguf.convert.api import Result
    from dflash_gguf.convert.encode import KeyValue
    from dflash_gguf.convert.planned import Plan, PlannedTensor
    from dflash_gguf.quantize.api import Quantized


def describe(result: Result | Quantized | Plan) -> str:
    """Size and the tensor types that are really written."""
    types = ", ".join(f"{count} {name}" for name, count in sorted(result.tensor_types.items()))
    return f"{result.n_bytes / 1e6:.1f} MB, {result.bits_per_weight:.2f} bits per weight; tensors: {types}"


def show_plan(output: Output, decided: Plan, more: Mapping[str, Any] | None = None) -> None:
    """Every key and every tensor; ``more`` goes into the object."""
    for note in decided.notes:
        output.warning(note)
    output.result(plan_as_dict(decided) | dict(more or {}))
    output.table(("key", "type", "value"), [(pair.key, pair.type, _value_text(pair)) for pair in decided.keys])
    output.line()
    rows = [_row(tensor) for tensor in decided.tensors]
    cells = [(row["name"], str(row["shape"]), _type_text(row), str(row["n_bytes"]), row["source"]) for row in rows]
    output.table(("tensor", "shape", "type", "bytes", "from"), cells)
    output.line(f"\n{describe(decided)}")
    output.line("nothing was written")


def as_dict(result: Result | Quantized) -> dict[str, Any]:
    """The result as plain JSON values."""
    return {**asdict(result), "path": str(result.path), "tensor_types": dict(result.tensor_types)}


def plan_as_dict(decided: Plan) -> dict[str, Any]:
    """A plan as plain JSON values; an array of the target's tokenizer is only counted."""
    return {
        "quant": decided.quant,
        "kind": decided.kind,
        "n_bytes": decided.n_bytes,
        "n_weights": decided.n_weights,
        "bits_per_weight": decided.bits_per_weight,
        "tensor_types": decided.tensor_types,
        "keys": [
            {"key": pair.key, "type": pair.type, "count": pair.count, "value": _plain(pair.value)}
            for pair in decided.keys
        ],
        "tensors": [_row(tensor) for tensor in decided.tensors],
        "fallbacks": [asdict(fallback) for fallback in decided.fallbacks],
        "notes": list(decided.notes),
    }


def _row(tensor: PlannedTensor) -> dict[str, Any]:
    from dflash_gguf.ggml_types import type_name

    return {
        "name": tensor.name,
        "source": tensor.source.name,
        "shape": list(tensor.shape),
        "type": type_name(tensor.type),
        "wanted": type_name(tensor.wanted),
        "weighed": tensor.importance is not None,
        "n_bytes": tensor.nbytes,
    }


def _type_text(row: dict[str, Any]) -> str:
    return row["type"] if row["type"] == row["wanted"] else f"{row['type']} (not {row['wanted']})"


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _value_text(pair: KeyValue) -> str:
    if pair.value is None:
        return f"{pair.count} items"
    text = str(_plain(pair.value)) if not isinstance(pair.value, str) else pair.value
    line = text.encode("unicode_escape").decode()
    return line if len(line) <= 60 else f"{line[:57]}..."
