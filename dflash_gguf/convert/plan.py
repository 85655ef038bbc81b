"""The whole output file, decided before a byte of it is written.

Comes in: a specification, the assembled tensors, the target, the output type. Goes out: a frozen `Plan`: every
key with its value, every tensor with its source, shape, transform, types, offset and bytes. Reads no weights.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.encode import KeyValue, array, encode_header, pad, scalar
from dflash_gguf.convert.metadata import model_keys
from dflash_gguf.convert.sources import FLOATS, KEPT, MXFP4, NVFP4, Q8_0, Fp8
from dflash_gguf.convert.target import tokenizer_keys
from dflash_gguf.ggml_types import F32, GGML_TYPES, tensor_bytes, type_name
from dflash_gguf.quantize.mix import ModelSizes, Quant, StoredTensor, mixture, quantize_order
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.convert.assemble import Assembly, Piece
    from dflash_gguf.convert.sources import Source, Span
    from dflash_gguf.convert.spec import DrafterSpec
    from dflash_gguf.convert.target import Target
    from dflash_gguf.files import File

QUANTIZATION_VERSION: Final = 2
"""ggml's GGML_QNT_VERSION."""
Q8_0_BLOCK: Final = GGML_TYPES[Q8_0].block
PACKED_FILES: Final = {NVFP4: 39, MXFP4: 38}
"""Packed type -> llama.cpp's ftype of an otherwise unquantized file that holds it."""


@dataclass(frozen=True, slots=True)
class Deinterleave:
    """Reorder the values that rotary position pairs up: in each head, the even ones first, then the odd."""

    head_dim: int


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
    """The output file; ``header`` is everything before the tensor data, padded.

    ``notes`` are what the user should know; nothing else is dropped or guessed.
    """

    spec: DrafterSpec
    quant: Quant
    title: str
    keys: tuple[KeyValue, ...]
    tensors: tuple[PlannedTensor, ...]
    header: bytes = field(repr=False)
    notes: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole file."""
        last = self.tensors[-1]
        return len(self.header) + last.offset + pad(last.nbytes)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every place that is read for the tensors, here or elsewhere, once."""
        return tuple(dict.fromkeys(span for tensor in self.tensors for span in tensor.source.spans))

    @property
    def files(self) -> frozenset[File]:
        """Every file that is read for the tensors, here or elsewhere."""
        return frozenset(span.file for span in self.spans)

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
    assembly: Assembly,
    target: Target,
    quant: Quant,
    *,
    general: tuple[KeyValue, ...],
    notes: tuple[str, ...] = (),
) -> Plan:
    """Decide the whole file; ``general`` are the keys before the model's own."""
    tensors = [_unquantized(spec, piece, quant) for piece in assembly.pieces]
    file_types = [PACKED_FILES[tensor.type] for tensor in tensors if tensor.type in PACKED_FILES]
    file_type = file_types[0] if file_types and not quant.mixed else quant.ftype
    keys = (
        *general,
        *model_keys(spec, file_type, mrope=target.mrope),
        scalar(Keys.QUANTIZATION_VERSION, "uint32", QUANTIZATION_VERSION),
        *_extra_keys(assembly.whole_inputs),
        *tokenizer_keys(target, spec.mask_token_id),
    )
    if quant.mixed:
        tensors = _quantized(spec, tensors, quant)
        keys = _quantized_keys(keys)
    if spec.keeps_types and not quant.mixed:
        notes = (*notes, f"tensors keep the checkpoint's own types, {quant.name} or not")
    placed = _placed(tensors)
    header = encode_header(keys, [(t.name, t.shape, t.type, t.offset) for t in placed])
    return Plan(spec, quant, target.title, keys, placed, header, spec.notes + assembly.notes + notes)


def _extra_keys(names: tuple[str, ...]) -> tuple[KeyValue, ...]:
    if not names:
        return ()
    return (array(Keys.EXTRA_NAMES, "string", names), array(Keys.EXTRA_PREC_A4, "bool", [False] * len(names)))


def _unquantized(spec: DrafterSpec, piece: Piece, quant: Quant) -> PlannedTensor:
    """A tensor as llama.cpp's converter stores it: norms and what is no ``.weight`` in F32, packed ones as they are."""
    name, own = piece.name, piece.source.type
    full = len(piece.shape) == 1 or name.endswith("_norm.weight") or not name.endswith(".weight")
    plain = own if own in FLOATS.values() else F32
    stored = own if own in KEPT else F32 if full else plain if quant.mixed else quant.type
    if spec.keeps_types and not (full or quant.mixed or own in KEPT):
        stored = Q8_0 if isinstance(piece.source, Fp8) and piece.shape[-1] % Q8_0_BLOCK == 0 else own
    return PlannedTensor(
        name=name,
        source=piece.source,
        shape=piece.shape[::-1],
        transform=Deinterleave(spec.head_dim) if piece.rotary and spec.rope.interleaved else None,
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


def _retyped(tensor: PlannedTensor, chosen: int) -> PlannedTensor:
    kind = tensor.stored if tensor.stored in KEPT else chosen
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
