"""Which tensor gets which type: libllama's own choice, and what an importance matrix changes of it.

Comes in: a recipe; the tensors of a whole file. Goes out: a type a tensor, and the one that its shape did not allow.
Source: llama.cpp src/llama-quant.cpp, ``llama_tensor_get_type`` (0.5.0).
"""

from __future__ import annotations

import re
import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import QuantizeError
from dflash_gguf.ggml_types import GGML_TYPES, type_name
from dflash_gguf.quantize.imatrix_rules import changes
from dflash_gguf.quantize.quants import QUANTS
from dflash_gguf.schema import ARCHITECTURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.quantize.recipe import Recipe

LAYER: Final = re.compile(r"blk\.(\d+)\.")
BLOCK: Final = max(kind.block for kind in GGML_TYPES.values())
"""A row of so many values, or a multiple, is made of whole blocks of any type."""
PATIENCE: Final = 0.5
"""Seconds. A choice that ends at all has ended by then, and no thread comes back to an interpreter that is closing."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of the file that llama-quantize would be given; ``shape`` in ggml order."""

    name: str
    shape: tuple[int, ...]
    type: int


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The sizes on which libllama's choice depends."""

    n_embd: int
    n_ff: int
    n_layer: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_expert: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tensor's type. ``wanted`` is what it would get if its rows were made of whole blocks.

    ``standard``: the mixture of the file's type chose it, and no option.
    """

    type: int
    wanted: int
    standard: bool


def quantize_order(name: str) -> tuple[int, bytes]:
    """Sort key of llama-quantize: layer number (-1 outside the layers), then name."""
    layer = LAYER.match(name)
    return (int(layer[1]) if layer else -1, name.encode())


def select(recipe: Recipe, sizes: ModelSizes, tensors: Sequence[StoredTensor], *, imatrix: bool) -> list[Chosen]:
    """The type of each tensor; ``tensors`` is the whole file, sorted by `quantize_order`.

    Raises `QuantizeError` on a bad pattern, or where a tensor's rows fit no type that it could get.
    """
    chosen = _without_imatrix(recipe, sizes, tensors)
    if imatrix:
        names = [tensor.name for tensor in tensors]
        changed = changes(recipe.quant.name, sizes, names, [choice.standard for choice in chosen])
        for name in set(changed.values()):
            quant = QUANTS[name]
            as_if = _without_imatrix(replace(recipe, quant=quant, pure=True), sizes, tensors)
            chosen = [as_if[i] if changed.get(i) == name else choice for i, choice in enumerate(chosen)]
    for tensor, choice in zip(tensors, chosen, strict=True):
        _check_rows(tensor, choice.type)
    return chosen


def idle_patterns(recipe: Recipe, sizes: ModelSizes, tensors: Sequence[StoredTensor]) -> list[str]:
    """The user's patterns that are found in the name of no tensor that could be quantized, in lower case.

    Libllama searches: patterns are C++'s. Each is tried alone, on rows that every type's blocks divide.
    """
    if not recipe.asked_patterns:
        return []
    whole = _whole_rows(tensors)
    without = _native(replace(recipe, pure=False, tensor_types=()), sizes, whole)
    found = []
    for pattern, kind in recipe.asked_patterns:
        alone = replace(recipe, pure=False, tensor_types=((pattern, kind),))
        standard = [by_mixture for _, by_mixture in _native(alone, sizes, whole)]
        if standard == [by_mixture for _, by_mixture in without]:
            found.append(pattern)
    return found


def _without_imatrix(recipe: Recipe, sizes: ModelSizes, tensors: Sequence[StoredTensor]) -> list[Chosen]:
    found = _native(recipe, sizes, tensors)
    wanted = _native(recipe, sizes, _whole_rows(tensors))
    return [Chosen(kind, other, standard) for (kind, standard), (other, _) in zip(found, wanted, strict=True)]


def _whole_rows(tensors: Sequence[StoredTensor]) -> list[StoredTensor]:
    return [replace(tensor, shape=(_whole(tensor.shape[0]), *tensor.shape[1:])) for tensor in tensors]


def _whole(n_per_row: int) -> int:
    return -(-n_per_row // BLOCK) * BLOCK


def _native(recipe: Recipe, sizes: ModelSizes, tensors: Sequence[StoredTensor]) -> list[tuple[int, bool]]:
    """A pattern may take for ever (``(.*)*\\1*x``): with any, libllama runs where it can be left behind."""
    if not recipe.tensor_types:
        return _types(recipe, sizes, tensors)
    future: Future[list[tuple[int, bool]]] = Future()

    def work() -> None:
        try:
            future.set_result(_types(recipe, sizes, tensors))
        except BaseException as error:  # noqa: BLE001  handed to the caller
            future.set_exception(error)

    # Signals come to the thread that waits; a daemon keeps no process from its end.
    thread = threading.Thread(target=work, name="types", daemon=True)
    thread.start()
    try:
        return future.result()
    finally:
        thread.join(PATIENCE)


def _types(recipe: Recipe, sizes: ModelSizes, tensors: Sequence[StoredTensor]) -> list[tuple[int, bool]]:
    from dflash_gguf import _core

    return _core.quant_types(
        arch=ARCHITECTURE,
        n_embd=sizes.n_embd,
        n_ff=sizes.n_ff,
        n_layer=sizes.n_layer,
        n_head=sizes.n_head,
        n_head_kv=sizes.n_head_kv,
        n_expert=sizes.n_expert,
        head_dim=sizes.head_dim,
        ftype=recipe.quant.ftype,
        names=[tensor.name for tensor in tensors],
        shapes=[list(tensor.shape) for tensor in tensors],
        types=[tensor.type for tensor in tensors],
        pure=recipe.pure,
        quantize_output_tensor=not recipe.leave_output_tensor,
        output_tensor_type=recipe.output_tensor_type,
        token_embedding_type=recipe.token_embedding_type,
        tensor_types=list(recipe.tensor_types),
    )


def _check_rows(tensor: StoredTensor, kind: int) -> None:
    """Libllama gives the output and the embeddings the type that was asked for, whether their rows allow it or not."""
    block = GGML_TYPES[kind].block
    if tensor.shape[0] % block:
        raise QuantizeError(
            f"rows of tensor `{tensor.name}` as {type_name(kind)}",
            value=tensor.shape[0],
            expected=f"a multiple of {block} values",
            remedy="choose another type for it",
        )
