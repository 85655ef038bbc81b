"""The output types, as a table, and which tensor gets which.

Comes in: a type's name; the tensors of a whole file. Goes out: a row of the table; a type a tensor.
The choice for a quantized file is libllama's own. Source: llama.cpp src/llama-quant.cpp (0.5.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import QuantizeError
from dflash_gguf.ggml_types import BF16, BY_NAME, F16, F32
from dflash_gguf.schema import ARCHITECTURE

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Quant:
    """An output type: llama.cpp's ``ftype``, the ggml type of most tensors, whether others are mixed in."""

    name: str
    ftype: int
    type: int
    mixed: bool


QUANTS: Final[dict[str, Quant]] = {
    quant.name: quant
    for quant in (
        Quant("F32", 0, F32, mixed=False),
        Quant("F16", 1, F16, mixed=False),
        Quant("BF16", 32, BF16, mixed=False),
        Quant("Q8_0", 7, BY_NAME["Q8_0"].id, mixed=True),
        Quant("Q4_0", 2, BY_NAME["Q4_0"].id, mixed=True),
        Quant("Q4_K_M", 15, BY_NAME["Q4_K"].id, mixed=True),
    )
}
ALIASES: Final[dict[str, str]] = {"int4": "Q4_0"}
QUANT_NAMES: Final = (*QUANTS, *ALIASES)
DEFAULT_QUANT: Final = "Q4_K_M"
LAYER: Final = re.compile(r"blk\.(\d+)\.")


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


def resolve_quant(name: str) -> Quant:
    """The row for ``name`` or its alias, in any case; raises `QuantizeError` when there is none."""
    wanted = {alias.upper(): row for alias, row in ALIASES.items()}.get(name.upper(), name.upper())
    if wanted not in QUANTS:
        known = ", ".join(QUANT_NAMES)
        raise QuantizeError("unknown output type", value=name, expected=f"one of {known}")
    return QUANTS[wanted]


def quantize_order(name: str) -> tuple[int, bytes]:
    """Sort key of llama-quantize: layer number (-1 outside the layers), then name."""
    layer = LAYER.match(name)
    return (int(layer[1]) if layer else -1, name.encode())


def mixture(quant: Quant, sizes: ModelSizes, tensors: Sequence[StoredTensor]) -> list[int]:
    """The type of each tensor; ``tensors`` is the whole file, sorted by `quantize_order`."""
    from dflash_gguf import _core

    types: list[int] = _core.quant_types(
        arch=ARCHITECTURE,
        n_embd=sizes.n_embd,
        n_ff=sizes.n_ff,
        n_layer=sizes.n_layer,
        n_head=sizes.n_head,
        n_head_kv=sizes.n_head_kv,
        head_dim=sizes.head_dim,
        ftype=quant.ftype,
        names=[tensor.name for tensor in tensors],
        shapes=[list(tensor.shape) for tensor in tensors],
        types=[tensor.type for tensor in tensors],
    )
    return types
