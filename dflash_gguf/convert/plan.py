"""The whole output file, decided before a byte of it is written.

Comes in: a specification, the assembled tensors, the target, the output type. Goes out: a frozen `Plan`: every
key with its value, every tensor with its source, shape, transform, types, offset and bytes. Reads no weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.encode import KeyValue, array, scalar
from dflash_gguf.convert.metadata import model_keys
from dflash_gguf.convert.planned import Deinterleave, Plan, PlannedTensor
from dflash_gguf.convert.sources import FLOATS, KEPT, MXFP4, NVFP4, Q8_0, Fp8
from dflash_gguf.convert.target import tokenizer_keys
from dflash_gguf.ggml_types import F32, GGML_TYPES
from dflash_gguf.quantize.assignment import QUANTIZATION_VERSION, assigned
from dflash_gguf.quantize.selection import ModelSizes
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from dflash_gguf.convert.assemble import Assembly, Piece
    from dflash_gguf.convert.spec import DrafterSpec
    from dflash_gguf.convert.target import Target
    from dflash_gguf.quantize.recipe import Recipe

Q8_0_BLOCK: Final = GGML_TYPES[Q8_0].block
PACKED_FILES: Final = {NVFP4: 39, MXFP4: 38}
"""Packed type -> llama.cpp's ftype of an otherwise unquantized file that holds it."""


def build_plan(
    spec: DrafterSpec,
    assembly: Assembly,
    target: Target,
    recipe: Recipe,
    *,
    general: tuple[KeyValue, ...],
    notes: tuple[str, ...] = (),
) -> Plan:
    """Decide the whole file; ``general`` are the keys before the model's own.

    Raises `QuantizeError` when a type cannot be had, or its matrix is of another drafter.
    """
    quant = recipe.quant
    tensors = [_unquantized(spec, piece, recipe) for piece in assembly.pieces]
    file_types = [PACKED_FILES[tensor.type] for tensor in tensors if tensor.type in PACKED_FILES]
    file_type = file_types[0] if file_types and not quant.mixed else quant.ftype
    keys = (
        *general,
        *model_keys(spec, file_type, mrope=target.mrope),
        scalar(Keys.QUANTIZATION_VERSION, "uint32", QUANTIZATION_VERSION),
        *_extra_keys(assembly.whole_inputs),
        *tokenizer_keys(target, spec.mask_token_id),
    )
    found = assigned(recipe, _sizes(spec), keys, tensors, choose=recipe.chooses, kept=KEPT)
    if spec.keeps_types and not recipe.chooses:
        notes = (*notes, f"tensors keep the checkpoint's own types, {quant.name} or not")
    return Plan(
        kind=spec.kind,
        quant=recipe.name,
        title=target.title,
        keys=found.keys,
        tensors=found.tensors,
        header=found.header,
        notes=(*spec.notes, *assembly.notes, *notes, *found.notes),
    )


def _sizes(spec: DrafterSpec) -> ModelSizes:
    return ModelSizes(
        n_embd=spec.hidden_size,
        n_ff=spec.feed_forward,
        n_layer=spec.n_layers,
        n_head=spec.n_heads,
        n_head_kv=spec.n_kv_heads,
        head_dim=spec.head_dim,
        n_expert=spec.stages.n_experts if spec.stages else 0,
    )


def _extra_keys(names: tuple[str, ...]) -> tuple[KeyValue, ...]:
    if not names:
        return ()
    return (array(Keys.EXTRA_NAMES, "string", names), array(Keys.EXTRA_PREC_A4, "bool", [False] * len(names)))


def _unquantized(spec: DrafterSpec, piece: Piece, recipe: Recipe) -> PlannedTensor:
    """A tensor as llama.cpp's converter stores it: norms and what is no ``.weight`` in F32, packed ones as they are."""
    name, own = piece.name, piece.source.type
    full = len(piece.shape) == 1 or name.endswith("_norm.weight") or not name.endswith(".weight")
    plain = own if own in FLOATS.values() else F32
    stored = own if own in KEPT else F32 if full else plain if recipe.chooses else recipe.quant.type
    if spec.keeps_types and not (full or recipe.chooses or own in KEPT):
        stored = Q8_0 if isinstance(piece.source, Fp8) and piece.shape[-1] % Q8_0_BLOCK == 0 else own
    return PlannedTensor(
        name=name,
        source=piece.source,
        shape=piece.shape[::-1],
        transform=Deinterleave(spec.head_dim) if piece.rotary and spec.rope.interleaved else None,
        stored=stored,
        type=stored,
        wanted=stored,
    )
