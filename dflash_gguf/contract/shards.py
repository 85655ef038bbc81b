"""The further shards of a split target: libllama loads them too.

Comes in: the header of one shard, which knows its path. Goes out: the headers of the others, and findings in a reader.
Reads no weights.
Source: llama.cpp src/llama-model-loader.cpp (0.5.0), which asserts the type of a shard's number, and takes its data
from where it lies; ggml/src/ggml-backend.cpp asserts how that is aligned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.shards import SPLIT_COUNT, SPLIT_NUMBER, shards_of

if TYPE_CHECKING:
    from dflash_gguf.contract.reader import Reader
    from dflash_gguf.gguf_header import GGUFHeader


ALIGNMENT: Final = 32
"""Of the tensors' data in memory, which is the file's own."""


def other_shards(header: GGUFHeader) -> tuple[GGUFHeader, ...]:
    """The other shards that are there; raises `GGUFError` when one of them is no sound GGUF."""
    if SPLIT_COUNT not in header.keys or header.path is None:
        return header.parts
    return tuple(shard for _, shard in shards_of(header.path, header)[1:])


def check_alignments(reader: Reader) -> None:
    """Notes each part of a file whose data is aligned to less than memory has to be."""
    for part in reader.parts:
        if part.alignment < ALIGNMENT:
            of = "" if part is reader.header else f" of `{part.name}`"
            reader.fault(f"`general.alignment`{of} is below {ALIGNMENT}", part.alignment)


def check_numbers(reader: Reader) -> None:
    """Notes a further shard whose number is of another type than the one that is read unasked."""
    for shard in reader.parts[1:]:
        number = shard.keys.get(SPLIT_NUMBER)
        if number is None or number.type_text != "uint16":
            reader.fault(f"`{SPLIT_NUMBER}` of `{shard.name}` is not uint16", number.type_text if number else "none")
