"""Tensors against a table: whether they are there, of the right shape, and of a type that ggml can compute with.

Comes in: a header, rows of a table and the sizes that these name. Goes out: findings. Knows nothing of what the
tensors are for.
Source: llama.cpp src/llama-model-loader.cpp, ``create_tensor``; ggml/src/ggml-cpu (0.5.0): what has no kernel aborts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.facts import EMBEDDINGS, HEAD
from dflash_gguf.file_text import listed
from dflash_gguf.ggml_types import BY_NAME, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dflash_gguf.contract.reader import Reader
    from dflash_gguf.gguf_parser import TensorInfo

VECTOR: Final = frozenset({BY_NAME["F32"].id})
"""Norms, biases, scales and kernels that are added or multiplied value by value."""

NVFP4: Final = BY_NAME["NVFP4"].id

ROW_NUMBERS: Final = frozenset({BY_NAME["I64"].id})

MATRIX: Final = frozenset(
    kind.id for name, kind in BY_NAME.items() if name not in {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"}
)
"""Matrices and tables of rows: what ggml multiplies, and takes rows out of."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that the loader asks for. ``shape`` names sizes, in ggml order; ``types`` are ggml's numbers.

    ``{i}`` in ``name`` stands for each layer.
    """

    name: str
    shape: tuple[str, ...]
    types: frozenset[int]
    required: bool = True


def check_slots(reader: Reader, slots: Iterable[Slot], sizes: Mapping[str, int], n_layers: int) -> None:
    """Judges the tensors that ``slots`` ask for, and names those that no slot asks for."""
    asked: dict[str, Slot] = {}
    for slot in slots:
        names = [slot.name.format(i=i) for i in range(n_layers)] if "{i}" in slot.name else [slot.name]
        asked |= dict.fromkeys(names, slot)
    missing = [name for name, slot in asked.items() if slot.required and name not in reader.header.tensors]
    if missing:
        reader.fault(f"file lacks {len(missing)} of its tensors, first `{missing[0]}`", f"{len(missing)} missing")
    for name, slot in asked.items():
        info = reader.header.tensors.get(name)
        if info is not None:
            _check_one(reader, info, slot, sizes)
    unread = [name for name in reader.header.tensors if name not in asked]
    if unread:
        what = f"file has tensors that llama.cpp does not load, so that it would refuse the file: {listed(unread, '`')}"
        reader.fault(what, f"{len(unread)} too many")


def check_factors(reader: Reader) -> None:
    """Notes NVFP4 tensors that stand beside what their one factor must not be mixed with.

    Source: llama.cpp src/llama-graph.cpp, ``build_ffn``; src/llama-model.cpp, ``load_tensors``.
    """
    tensors = reader.tensors
    for info in tensors.values():
        stem = info.name.removesuffix(".weight")
        if info.type == NVFP4 and "ffn_" in stem and {f"{stem}.bias", f"{stem}.scale"} <= tensors.keys():
            reader.fault(f"tensor `{info.name}` has both a bias and a factor", "NVFP4")
            return
    table = tensors.get(EMBEDDINGS)
    beside = {"output.scale", "output.input_scale"} & tensors.keys()
    if table is not None and table.type == NVFP4 and beside and HEAD not in tensors:
        reader.fault(f"tensor `{EMBEDDINGS}` stands for the head too, but the head's factor is its own", "NVFP4")


def _check_one(reader: Reader, info: TensorInfo, slot: Slot, sizes: Mapping[str, int]) -> None:
    expected = [sizes.get(symbol) for symbol in slot.shape]
    if None not in expected and _unpadded(info.shape) != _unpadded([size for size in expected if size is not None]):
        text = " x ".join(f"{size} ({symbol})" for size, symbol in zip(expected, slot.shape, strict=True))
        reader.fault(f"tensor `{info.name}` is not {text}", " x ".join(map(str, info.shape)))
    if info.type not in slot.types:
        allowed = "F32" if slot.types == VECTOR else "I64" if slot.types == ROW_NUMBERS else "a float or quantized type"
        reader.fault(f"tensor `{info.name}` cannot be computed with: {allowed} is needed", type_name(info.type))


def _unpadded(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without the ones at its end, which ggml adds and drops freely."""
    used = len(shape)
    while used > 1 and shape[used - 1] == 1:
        used -= 1
    return tuple(shape[:used])
