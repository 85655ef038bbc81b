"""The further shards of a split target: libllama loads them too.

Comes in: the header of one shard, whose name is its path. Goes out: the headers of the others, and findings in a
reader. Reads no weights.
Source: llama.cpp src/llama-model-loader.cpp (0.5.0), which asserts the type of a shard's number.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dflash_gguf.shards import SPLIT_COUNT, SPLIT_NUMBER, shards_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.contract.reader import Reader
    from dflash_gguf.gguf_header import GGUFHeader


def other_shards(header: GGUFHeader) -> tuple[GGUFHeader, ...]:
    """The other shards that are there; raises `GGUFError` when one of them is no sound GGUF."""
    path = Path(header.name)
    if SPLIT_COUNT not in header.keys or not path.is_file():
        return ()
    return tuple(shard for _, shard in shards_of(path, header)[1:])


def check_numbers(reader: Reader, shards: Sequence[GGUFHeader]) -> None:
    """Notes a shard whose number is of another type than the one that is read unasked."""
    for shard in shards:
        number = shard.keys.get(SPLIT_NUMBER)
        if number is None or number.type_text != "uint16":
            reader.fault(f"`{SPLIT_NUMBER}` of `{shard.name}` is not uint16", number.type_text if number else "none")
