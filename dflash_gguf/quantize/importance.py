"""An importance matrix against the tensors that it should weigh.

Comes in: planned tensors with their types, a matrix. Goes out: the tensors with their weights. Refuses a matrix of
another model before anything is written.
Source: llama.cpp src/llama-quant.cpp, ``llama_model_quantize_impl`` (0.5.0).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import QuantizeError
from dflash_gguf.file_text import listed
from dflash_gguf.ggml_types import GGML_TYPES, type_name
from dflash_gguf.quantize.imatrix_rules import needs_matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.convert.planned import PlannedTensor
    from dflash_gguf.quantize.imatrix import Matrix
    from dflash_gguf.quantize.recipe import Recipe

LOOKED_UP: Final = frozenset({"selector_predecessor.weight", "selector_successor.weight", "markov_w1.weight"})
"""Tables of which llama.cpp takes single rows (GGML_OP_GET_ROWS, src/models/dflash.cpp): nothing is multiplied with
them, so that no matrix ever has an entry for them."""


def weigh(recipe: Recipe, tensors: Sequence[PlannedTensor]) -> tuple[list[PlannedTensor], tuple[str, ...]]:
    """Every tensor that is quantized with its weights, and what the user should know.

    Raises `QuantizeError` when the matrix names other tensors, is of another width, or lacks an entry that is needed.
    """
    notes: tuple[str, ...] = ()
    imatrix = recipe.imatrix
    if imatrix is not None:
        _check_names(imatrix, tensors)
        weighed = [_weighed(imatrix, tensor) for tensor in tensors]
        notes = tuple(_notes(imatrix, weighed))
        tensors = weighed
    needing = [tensor for tensor in tensors if _needs(recipe, tensor)]
    if needing:
        # A table that is only looked up first: no matrix would help it.
        raise _needed(recipe, min(needing, key=lambda tensor: tensor.name not in LOOKED_UP))
    return list(tensors), notes


def _quantized(tensor: PlannedTensor) -> bool:
    """Whether its values are rounded to blocks; what is copied or cast needs no weights."""
    return tensor.type != tensor.source.type and GGML_TYPES[tensor.type].block > 1


def _needs(recipe: Recipe, tensor: PlannedTensor) -> bool:
    needed = needs_matrix(recipe.quant.name, tensor.name, tensor.type)
    return needed and _quantized(tensor) and tensor.importance is None


def _check_names(imatrix: Matrix, tensors: Sequence[PlannedTensor]) -> None:
    unknown = sorted(imatrix.entries.keys() - {tensor.name for tensor in tensors})
    if unknown:
        raise QuantizeError(
            f"the importance matrix `{imatrix.path}` is of another model: "
            f"{len(unknown)} of its {len(imatrix.entries)} entries name no tensor of this drafter, "
            f"{listed(unknown, '`')}",
            remedy="make one of this drafter with `dflash-gguf imatrix`",
        )
    missing = [
        tensor.name
        for tensor in tensors
        if tensor.name.startswith("blk.") and _quantized(tensor) and tensor.name not in imatrix.entries
    ]
    if missing:
        raise QuantizeError(
            f"the importance matrix `{imatrix.path}` has no entry for {len(missing)} tensors of this drafter's layers, "
            f"{listed(missing, '`')}",
            remedy="make one of this drafter with `dflash-gguf imatrix`",
        )


def _weighed(imatrix: Matrix, tensor: PlannedTensor) -> PlannedTensor:
    entry = imatrix.entries.get(tensor.name)
    if entry is None:
        return tensor
    n_matrices = prod(tensor.shape[2:])
    expected = tensor.shape[0] * n_matrices
    if entry.weights.size != expected:
        raise QuantizeError(
            f"the importance matrix `{imatrix.path}`: weights of `{tensor.name}`",
            value=entry.weights.size,
            expected=str(expected),
            remedy="it is of another model; make one of this drafter with `dflash-gguf imatrix`",
        )
    if not _quantized(tensor):
        return tensor
    return replace(tensor, importance=entry.weights.reshape(n_matrices, tensor.shape[0]))


def _notes(imatrix: Matrix, tensors: Sequence[PlannedTensor]) -> list[str]:
    alone = [tensor.name for tensor in tensors if _quantized(tensor) and tensor.importance is None]
    notes = [f"the importance matrix has no entry for {listed(alone, '`')}: quantized without weights"] if alone else []
    for tensor in tensors:
        entry = imatrix.entries.get(tensor.name)
        if entry is not None and entry.unused[0]:
            notes.append(
                f"{entry.unused[0]} of the {entry.unused[1]} experts of `{tensor.name}` were never used when the "
                "matrix was made: all their columns count the same"
            )
    return notes


def _needed(recipe: Recipe, tensor: PlannedTensor) -> QuantizeError:
    kind = type_name(tensor.type)
    if tensor.name in LOOKED_UP:
        pattern = tensor.name.removesuffix(".weight")
        return QuantizeError(
            f"{recipe.name} makes `{tensor.name}` {kind}, which needs an importance matrix, and there is none for it: "
            "llama.cpp only looks rows of it up, so that no activation says which columns matter",
            remedy=f"choose another type, or a mix, or pass `--tensor-type {pattern}=q8_0`",
        )
    lacks = "" if recipe.imatrix is None else f", and `{recipe.imatrix.path}` has no entry for it"
    return QuantizeError(
        f"{recipe.name} makes `{tensor.name}` {kind}, which needs an importance matrix{lacks}",
        remedy="make one with `dflash-gguf imatrix` and pass it with `--imatrix`",
    )
