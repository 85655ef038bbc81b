"""The whole output file, decided before a byte of it is written.

Comes in: a specification, the matched tensors, the target, the output type. Goes out: a frozen `Plan`: every
key with its value, every tensor with its source, shape, transform, types, offset and bytes. Reads no weights.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.encode import KeyValue, encode_header, pad, scalar
from dflash_gguf.convert.metadata import model_keys
from dflash_gguf.convert.target import tokenizer_keys
from dflash_gguf.errors import CheckpointError
from dflash_gguf.ggml_types import BF16, F16, F32, tensor_bytes, type_name
from dflash_gguf.quantize.mix import ModelSizes, Quant, StoredTensor, mixture, quantize_order
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dflash_gguf.convert.families import Match
    from dflash_gguf.convert.spec import DrafterSpec
    from dflash_gguf.convert.target import Target

QUANTIZATION_VERSION: Final = 2
"""ggml's GGML_QNT_VERSION."""
SOURCE_TYPES: Final = {"F32": F32, "F16": F16, "BF16": BF16}


@dataclass(frozen=True, slots=True)
class Deinterleave:
    """Reorder the values that rotary position pairs up: in each head, the even ones first, then the odd."""

    head_dim: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where a tensor's bytes come from: name and file, offset and size in bytes, ggml type."""

    name: str
    file: Path
    offset: int
    nbytes: int
    type: int


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """One tensor of the output; ``shape`` in ggml order, ``offset`` from the start of the tensor data.

    ``stored`` is its type in the unquantized file that llama-quantize would be given, ``type`` its final one.
    """

    name: str
    source: Source
    shape: tuple[int, ...]
    transform: Deinterleave | None
    stored: int
    type: int
    offset: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes in the output, without padding."""
        return tensor_bytes(self.type, self.shape)


@dataclass(frozen=True, slots=True)
class Plan:
    """The output file. ``notes`` are what the user should know; nothing else is dropped or guessed."""

    spec: DrafterSpec
    quant: Quant
    title: str
    keys: tuple[KeyValue, ...]
    tensors: tuple[PlannedTensor, ...]
    notes: tuple[str, ...]

    @property
    def header(self) -> bytes:
        """Everything before the tensor data, padded."""
        return encode_header(self.keys, [(t.name, t.shape, t.type, t.offset) for t in self.tensors])

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole file."""
        last = self.tensors[-1]
        return len(self.header) + last.offset + pad(last.nbytes)

    @property
    def n_weights(self) -> int:
        """Weights in all tensors."""
        return sum(prod(tensor.shape) for tensor in self.tensors)

    @property
    def bits_per_weight(self) -> float:
        """Bits of tensor data for each weight."""
        return 8 * sum(tensor.nbytes for tensor in self.tensors) / self.n_weights

    @property
    def tensor_types(self) -> dict[str, int]:
        """Name of each type that is written -> how many tensors have it."""
        return dict(Counter(type_name(tensor.type) for tensor in self.tensors))


def build_plan(
    spec: DrafterSpec,
    matches: Sequence[Match],
    target: Target,
    quant: Quant,
    *,
    general: tuple[KeyValue, ...],
    notes: tuple[str, ...] = (),
) -> Plan:
    """Decide the whole file; ``general`` are the keys before the model's own.

    Raises `CheckpointError` on a tensor whose dtype cannot be read.
    """
    tensors = [_unquantized(spec, match, quant) for match in matches]
    keys = (
        *general,
        *model_keys(spec, quant.ftype, mrope=target.mrope),
        scalar(Keys.QUANTIZATION_VERSION, "uint32", QUANTIZATION_VERSION),
        *tokenizer_keys(target, spec.mask_token_id),
    )
    if quant.mixed:
        tensors = _quantized(spec, tensors, quant)
        keys = _quantized_keys(keys)
    return Plan(spec, quant, target.title, keys, _placed(tensors), spec.notes + notes)


def _unquantized(spec: DrafterSpec, match: Match, quant: Quant) -> PlannedTensor:
    """A tensor as llama.cpp's converter stores it: norms and what is no ``.weight`` in F32."""
    rule, entry = match.rule, match.entry
    if entry.dtype not in SOURCE_TYPES:
        raise CheckpointError(f"dtype of `{rule.source}`", value=entry.dtype, expected=" or ".join(SOURCE_TYPES))
    own = SOURCE_TYPES[entry.dtype]
    full = len(rule.shape) == 1 or rule.name.endswith("_norm.weight") or not rule.name.endswith(".weight")
    stored = F32 if full else own if quant.mixed else quant.type
    return PlannedTensor(
        name=rule.name,
        source=Source(rule.source, entry.file, entry.offset, entry.nbytes, own),
        shape=rule.shape[::-1],
        transform=Deinterleave(spec.head_dim) if rule.rotary and spec.rope.interleaved else None,
        stored=stored,
        type=stored,
    )


def _quantized(spec: DrafterSpec, tensors: Sequence[PlannedTensor], quant: Quant) -> list[PlannedTensor]:
    """The same tensors in llama-quantize's order, each with the type that libllama chooses for it."""
    ordered = sorted(tensors, key=lambda tensor: quantize_order(tensor.name))
    sizes = ModelSizes(
        n_embd=spec.hidden_size,
        n_ff=spec.feed_forward,
        n_layer=spec.n_layers,
        n_head=spec.n_heads,
        n_head_kv=spec.n_kv_heads,
        head_dim=spec.head_dim,
    )
    types = mixture(quant, sizes, [StoredTensor(t.name, t.shape, t.stored) for t in ordered])
    return [_retyped(tensor, kind) for tensor, kind in zip(ordered, types, strict=True)]


def _retyped(tensor: PlannedTensor, kind: int) -> PlannedTensor:
    shape = tensor.shape
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return PlannedTensor(tensor.name, tensor.source, shape, tensor.transform, tensor.stored, kind)


def _quantized_keys(keys: tuple[KeyValue, ...]) -> tuple[KeyValue, ...]:
    """llama-quantize sets these two anew, which moves them to the end."""
    moved = (Keys.QUANTIZATION_VERSION, Keys.FILE_TYPE)
    by_name = {pair.key: pair for pair in keys}
    return (*(pair for pair in keys if pair.key not in moved), *(by_name[key] for key in moved))


def _placed(tensors: Sequence[PlannedTensor]) -> tuple[PlannedTensor, ...]:
    placed, offset = [], 0
    for t in tensors:
        placed.append(PlannedTensor(t.name, t.source, t.shape, t.transform, t.stored, t.type, offset))
        offset += pad(t.nbytes)
    return tuple(placed)
