"""The last step of every plan: each tensor gets its type and its place, the keys say so, the header is encoded.

Comes in: a recipe, keys and tensors of the file that llama-quantize would be given. Goes out: keys and tensors of the
file to write. Reads no weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.encode import KeyValue, encode_header, pad, scalar
from dflash_gguf.file_text import listed, shown
from dflash_gguf.ggml_types import trimmed, type_name
from dflash_gguf.quantize.importance import weigh
from dflash_gguf.quantize.selection import StoredTensor, idle_patterns, quantize_order, select
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from dflash_gguf.convert.planned import PlannedTensor
    from dflash_gguf.quantize.imatrix import Matrix
    from dflash_gguf.quantize.recipe import Recipe
    from dflash_gguf.quantize.selection import ModelSizes

QUANTIZATION_VERSION: Final = 2
"""ggml's GGML_QNT_VERSION."""
NAME_KEPT: Final = 127
"""Bytes of a name that llama-quantize keeps in a key."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """Keys and tensors as they will be written; ``header`` is everything before the tensor data."""

    keys: tuple[KeyValue, ...]
    tensors: tuple[PlannedTensor, ...]
    header: bytes = field(repr=False)
    notes: tuple[str, ...]


def assigned(
    recipe: Recipe,
    sizes: ModelSizes,
    keys: tuple[KeyValue, ...],
    tensors: Sequence[PlannedTensor],
    *,
    choose: bool,
    kept: Collection[int] = (),
) -> Assigned:
    """Choose every type, or with ``choose`` false leave them as they are. Tensors whose type is in ``kept`` keep it.

    Raises `QuantizeError` when a type cannot be had, needs a matrix that there is not, or the matrix does not fit.
    """
    notes: tuple[str, ...] = ()
    if choose:
        tensors = _chosen(recipe, sizes, tensors, kept, imatrix=recipe.imatrix is not None)
        keys = _moved_keys(keys)
        notes = (*_fallback_notes(tensors), *_pattern_notes(recipe, sizes, tensors, kept))
    tensors, more = weigh(recipe, tensors)
    if recipe.imatrix is not None:
        keys = _with(keys, tuple(_imatrix_keys(recipe.imatrix)))
    placed = _placed(tensors)
    header = encode_header(keys, [(t.name, t.shape, t.type, t.offset) for t in placed])
    return Assigned(keys, placed, header, notes + more)


def _chosen(
    recipe: Recipe, sizes: ModelSizes, tensors: Sequence[PlannedTensor], kept: Collection[int], *, imatrix: bool
) -> list[PlannedTensor]:
    """The same tensors in llama-quantize's order, each with the type that libllama chooses for it."""
    ordered = sorted(tensors, key=lambda tensor: quantize_order(tensor.name))
    stored = [StoredTensor(t.name, t.shape, t.stored) for t in ordered]
    chosen = select(recipe, sizes, stored, imatrix=imatrix)
    return [
        replace(tensor, shape=trimmed(tensor.shape))
        if tensor.stored in kept
        else replace(tensor, shape=trimmed(tensor.shape), type=choice.type, wanted=choice.wanted)
        for tensor, choice in zip(ordered, chosen, strict=True)
    ]


def _moved_keys(keys: tuple[KeyValue, ...]) -> tuple[KeyValue, ...]:
    """llama-quantize sets these two anew, which moves them to the end."""
    by_name = {pair.key: pair for pair in keys}
    return _with(keys, tuple(by_name[key] for key in (Keys.QUANTIZATION_VERSION, Keys.FILE_TYPE)))


def _with(keys: tuple[KeyValue, ...], new: tuple[KeyValue, ...]) -> tuple[KeyValue, ...]:
    """``new`` behind those of ``keys`` that have other names."""
    names = {pair.key for pair in new}
    return (*(pair for pair in keys if pair.key not in names), *new)


def _imatrix_keys(imatrix: Matrix) -> Iterator[KeyValue]:
    """Where the weights came from, as llama-quantize notes it; names of files without their folders."""
    yield scalar(Keys.IMATRIX_FILE, "string", _cut(imatrix.path.name))
    if imatrix.dataset:
        yield scalar(Keys.IMATRIX_DATASET, "string", _cut(imatrix.dataset))
    yield scalar(Keys.IMATRIX_ENTRIES, "uint32", len(imatrix.entries))
    if imatrix.n_chunks > 0:
        yield scalar(Keys.IMATRIX_CHUNKS, "uint32", imatrix.n_chunks)


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:NAME_KEPT].decode("utf-8", "ignore")


def _fallback_notes(tensors: Sequence[PlannedTensor]) -> Iterator[str]:
    """One for each pair of types: which tensors have the second for want of the first."""
    pairs: dict[tuple[int, int], list[PlannedTensor]] = {}
    for tensor in tensors:
        if tensor.type != tensor.wanted:
            pairs.setdefault((tensor.wanted, tensor.type), []).append(tensor)
    for (wanted, kind), found in pairs.items():
        lengths = ", ".join(map(str, sorted({tensor.shape[0] for tensor in found})))
        names = listed([tensor.name for tensor in found], "`")
        yield (
            f"{type_name(kind)} in the place of {type_name(wanted)}, whose blocks do not divide rows of {lengths}: "
            f"{len(found)} tensor{'' if len(found) == 1 else 's'}, {names}"
        )


def _pattern_notes(
    recipe: Recipe, sizes: ModelSizes, tensors: Sequence[PlannedTensor], kept: Collection[int]
) -> Iterator[str]:
    """One for each pattern that decides nothing: most likely it is misspelt."""
    free = [StoredTensor(t.name, t.shape, t.stored) for t in tensors if t.stored not in kept]
    for pattern in idle_patterns(recipe, sizes, free):
        yield f"the pattern `{shown(pattern)}` is in the name of no tensor that can be quantized: it has no effect"


def _placed(tensors: Sequence[PlannedTensor]) -> tuple[PlannedTensor, ...]:
    placed, offset = [], 0
    for tensor in tensors:
        placed.append(replace(tensor, offset=offset))
        offset += pad(tensor.nbytes)
    return tuple(placed)
