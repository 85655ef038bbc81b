"""Quantization as one call: a drafter's GGUF in, another of another type out, through convert's own plan and writer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from dflash_gguf.atomic import check_out
from dflash_gguf.convert.write import write_plan
from dflash_gguf.gguf_header import read_header
from dflash_gguf.limits import checked
from dflash_gguf.quantize.gguf_plan import plan_gguf
from dflash_gguf.quantize.recipe import QuantizeOptions, Recipe
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from dflash_gguf.convert.planned import Fallback, Plan


@dataclass(frozen=True, slots=True)
class Quantized:
    """What `quantize` wrote: ``tensor_types`` counts the types, ``notes`` say what the user should know.

    ``fallbacks`` are the tensors whose rows do not fit the blocks of the type that they should have.
    """

    path: Path
    quant: str
    n_bytes: int
    n_weights: int
    bits_per_weight: float
    tensor_types: Mapping[str, int]
    notes: tuple[str, ...]
    fallbacks: tuple[Fallback, ...]


def planned(
    old: str | os.PathLike[str],
    quant: str | None = None,
    *,
    allow_requantize: bool = False,
    **options: Unpack[QuantizeOptions],
) -> Plan:
    """Decide the new file and write nothing. ``quant`` is a type by llama-quantize's name, COPY included.

    Raises `GGUFError` or `QuantizeError`, as `plan_gguf` says.
    """
    return plan_gguf(read_header(old), Recipe.of(quant, **options), allow_requantize=allow_requantize)


def quantize(
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    quant: str | None = None,
    *,
    allow_requantize: bool = False,
    force: bool = False,
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[QuantizeOptions],
) -> Quantized:
    """Write ``new``: the drafter ``old`` with another type, every other key kept.

    ``quant`` (default: Q4_K_M) and ``options`` as in `convert`; ``allow_requantize``: blocks may be made of blocks.
    ``progress`` is called with bytes written and bytes in all. Raises what `planned` raises, and `OutputError`.
    """
    out = Path(new).absolute()
    recipe = Recipe.of(quant, **options)
    check_out(out, {Path(old), *recipe.files}, force=force)
    decided = plan_gguf(read_header(old), recipe, allow_requantize=allow_requantize)
    threads = checked("n_threads", physical_cores() if n_threads is None else n_threads)
    n_bytes = write_plan(decided, out, force=force, n_threads=threads, progress=progress)
    return Quantized(
        path=out,
        quant=decided.quant,
        n_bytes=n_bytes,
        n_weights=decided.n_weights,
        bits_per_weight=decided.bits_per_weight,
        tensor_types=decided.tensor_types,
        notes=decided.notes,
        fallbacks=decided.fallbacks,
    )
