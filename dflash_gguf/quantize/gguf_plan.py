"""A quantized file, decided from another GGUF of the same drafter.

Comes in: the header of a ``dflash`` file, a recipe. Goes out: a frozen `Plan`, as of a checkpoint, every key kept.
Reads no weights, only tables of row numbers, for the checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.drafter import drafter_findings
from dflash_gguf.contract.hparams import read_sizes
from dflash_gguf.contract.reader import Reader
from dflash_gguf.convert.encode import ALIGNMENT, copied, scalar
from dflash_gguf.convert.planned import Plan, PlannedTensor
from dflash_gguf.convert.sources import Span, Stored
from dflash_gguf.errors import GGUFError, QuantizeError
from dflash_gguf.facts import architecture, drafter_kind
from dflash_gguf.file_text import shown
from dflash_gguf.findings import errors_of, sentences
from dflash_gguf.ggml_types import GGML_TYPES, type_name
from dflash_gguf.quantize.assignment import QUANTIZATION_VERSION, assigned
from dflash_gguf.quantize.quants import COPY
from dflash_gguf.quantize.selection import ModelSizes
from dflash_gguf.rekeying.forks import FORKS
from dflash_gguf.rekeying.plan import ALIGNMENT_KEY
from dflash_gguf.schema import ARCHITECTURE, Keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.convert.encode import KeyValue
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.quantize.recipe import Recipe

REKEY: Final = "give it llama.cpp's names first, with `dflash-gguf rekey`"


def plan_gguf(header: GGUFHeader, recipe: Recipe, *, allow_requantize: bool = False) -> Plan:
    """Decide the new file.

    Raises `GGUFError` when the old one is no drafter that llama.cpp loads, `QuantizeError` when a type cannot be had,
    when the recipe's matrix is of another model, or when blocks would be made of blocks without ``allow_requantize``.
    """
    _check_architecture(header)
    findings = drafter_findings(header)
    errors = errors_of(findings)
    if errors:
        raise GGUFError(f"llama.cpp would not load `{header.name}`: {sentences(errors)}")
    keys = (*(copied(key, header) for key in header.keys if key != ALIGNMENT_KEY), *_missing(header))
    if recipe.quant != COPY:
        keys = _stated(keys, recipe)
    tensors = list(stored_tensors(header))
    found = assigned(recipe, _sizes(header), keys, tensors, choose=recipe.quant != COPY)
    if not allow_requantize:
        _check_requantized(header, found.tensors)
    return Plan(
        kind=drafter_kind(header.tensors),
        quant=recipe.name,
        title=Path(header.name).stem,
        keys=found.keys,
        tensors=found.tensors,
        header=found.header,
        notes=(*map(str, findings), *_alignment_notes(header), *found.notes),
    )


def _check_architecture(header: GGUFHeader) -> None:
    name = architecture(header)
    if name in FORKS:
        raise GGUFError(f"`{header.name}` is in the format of a fork, `{shown(name)}`", remedy=REKEY)
    if name != ARCHITECTURE:
        raise GGUFError(f"the architecture of `{header.name}`", value=shown(name), expected=f"`{ARCHITECTURE}`")


def _missing(header: GGUFHeader) -> Iterator[KeyValue]:
    """The keys that are about to be stated anew, where the file has none."""
    if Keys.QUANTIZATION_VERSION not in header.keys:
        yield scalar(Keys.QUANTIZATION_VERSION, "uint32", QUANTIZATION_VERSION)
    if Keys.FILE_TYPE not in header.keys:
        yield scalar(Keys.FILE_TYPE, "uint32", 0)


def _stated(keys: tuple[KeyValue, ...], recipe: Recipe) -> tuple[KeyValue, ...]:
    new = {
        Keys.QUANTIZATION_VERSION: scalar(Keys.QUANTIZATION_VERSION, "uint32", QUANTIZATION_VERSION),
        Keys.FILE_TYPE: scalar(Keys.FILE_TYPE, "uint32", recipe.quant.ftype),
    }
    return tuple(new.get(pair.key, pair) for pair in keys)


def stored_tensors(header: GGUFHeader) -> Iterator[PlannedTensor]:
    """Every tensor of the file with its own type; raises `GGUFError` where the header is not of a file here."""
    if header.path is None:
        raise GGUFError(f"`{header.name}` is no file whose weights could be read")
    for info in header.tensors.values():
        span = Span(header.path, header.data_offset + info.offset, info.nbytes)
        source = Stored(info.name, span, info.type)
        yield PlannedTensor(info.name, source, info.shape, None, info.type, info.type, info.type)


def _sizes(header: GGUFHeader) -> ModelSizes:
    """As libllama reads them; the contract has found them sound."""
    sizes = read_sizes(Reader(header, "drafter", ""), ARCHITECTURE)
    heads, kv_heads = sizes.n_heads or [1], sizes.n_kv_heads or [1]
    return ModelSizes(
        n_embd=sizes.n_embd or 1,
        n_ff=1,  # no type depends on it
        n_layer=sizes.n_layers or 1,
        n_head=heads[0],
        n_head_kv=kv_heads[0],
        head_dim=sizes.key_length or 1,
        n_expert=sizes.n_experts,
    )


def _check_requantized(header: GGUFHeader, tensors: tuple[PlannedTensor, ...]) -> None:
    changed = [tensor for tensor in tensors if tensor.type != tensor.stored and GGML_TYPES[tensor.stored].block > 1]
    if changed:
        first = changed[0]
        raise QuantizeError(
            f"{len(changed)} tensors of `{header.name}` are quantized already, `{first.name}` to "
            f"{type_name(first.stored)}: each time costs accuracy",
            remedy="start from a file of F32, BF16 or F16, or pass `--allow-requantize`",
        )


def _alignment_notes(header: GGUFHeader) -> Iterator[str]:
    if header.alignment != ALIGNMENT:
        yield f"tensors are aligned to {ALIGNMENT} bytes, no longer to {header.alignment}"
