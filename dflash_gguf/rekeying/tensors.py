"""A fork's tensors under upstream's names, in the file's order.

Comes in: the tensor table of a header. Goes out: the same rows, renamed. Touches no data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_gguf.convert.encode import pad
from dflash_gguf.errors import GGUFError
from dflash_gguf.file_text import listed
from dflash_gguf.rekeying.forks import FEATURES, LAYER_NORM, TENSORS

if TYPE_CHECKING:
    from dflash_gguf.gguf_header import GGUFHeader


@dataclass(frozen=True, slots=True)
class MovedTensor:
    """One tensor: its name in the old file and in the new, ``shape`` in ggml order, and where its data lies.

    ``source`` is the offset in the old file; ``offset`` that in the new one, from the start of the tensor data.
    """

    old: str
    name: str
    shape: tuple[int, ...]
    type: int
    nbytes: int
    source: int
    offset: int


def moved_tensors(header: GGUFHeader) -> tuple[MovedTensor, ...]:
    """Every tensor; raises `GGUFError` on those that llama.cpp has no part for, and on two of one name."""
    _expressible(header)
    found: dict[str, MovedTensor] = {}
    offset = 0
    for old, info in header.tensors.items():
        name = _upstream(old, header)
        if name in found:
            raise GGUFError(f"`{header.name}`: tensors `{found[name].old}` and `{old}` would both be `{name}`")
        source = header.data_offset + info.offset
        found[name] = MovedTensor(old, name, info.shape, info.type, info.nbytes, source, offset)
        offset += pad(info.nbytes)
    return tuple(found.values())


def _upstream(old: str, header: GGUFHeader) -> str:
    norm = LAYER_NORM.pattern.fullmatch(old)
    if norm is not None:
        name = norm.expand(LAYER_NORM.upstream)
        return old if name in header.tensors else name
    for row in TENSORS:
        match = row.pattern.fullmatch(old)
        if match is not None:
            return match.expand(row.upstream)
    return old


def _expressible(header: GGUFHeader) -> None:
    for pattern, what in FEATURES:
        names = [name for name in header.tensors if pattern.fullmatch(name)]
        if names:
            raise GGUFError(
                f"`{header.name}` has {what}, which llama.cpp has no part for: {listed(names, '`')}",
                remedy="run it with the program that it was written for",
            )
