"""What ``inspect --against`` shows.

Comes in: two paths. Goes out: lines, tables and an object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_gguf.cli.output import Output
    from dflash_gguf.quantize.cost import Cost

_MEASURES: Final = ("bytes", "RMSE", "relative RMSE", "cosine", "largest error")


def show_cost(output: Output, file: Path, source: Path, target: Path | None) -> None:
    """Sums by type, then every tensor."""
    from dflash_gguf.quantize.cost import against, as_dict

    with output.progress("comparing", unit="w") as progress:
        found = against(file, source, target, progress=progress)
    output.result(as_dict(found))
    rows = [(cost.type, str(cost.tensors), *_cells(cost), f"of {cost.source_type}") for cost in found.types]
    output.table(("type", "tensors", *_MEASURES, "made"), rows)
    output.line()
    output.table(("tensor", *_MEASURES, "type"), [(cost.name, *_cells(cost), cost.type) for cost in found.tensors])


def _cells(cost: Cost) -> tuple[str, ...]:
    return (
        str(cost.n_bytes),
        f"{cost.rmse:.3g}",
        f"{cost.relative_rmse:.2%}",
        f"{cost.cosine:.6f}",
        f"{cost.largest:.3g}",
    )
