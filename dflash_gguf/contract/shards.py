"""The further shards of a split target: libllama loads them too.

Comes in: the header of one shard, whose name is its path. Goes out: findings. Reads no weights.
Source: llama.cpp src/llama-model-loader.cpp (0.5.0), which asserts the type of a shard's number.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dflash_gguf.contract.reader import Reader
from dflash_gguf.contract.target import check_types
from dflash_gguf.shards import SPLIT_COUNT, SPLIT_NUMBER, shards_of

if TYPE_CHECKING:
    from dflash_gguf.findings import Finding
    from dflash_gguf.gguf_header import GGUFHeader


def shard_findings(header: GGUFHeader, remedy: str) -> tuple[Finding, ...]:
    """The faults of a target's other shards; raises `GGUFError` when one of them is no sound GGUF."""
    path = Path(header.name)
    if SPLIT_COUNT not in header.keys or not path.is_file():
        return ()
    found: list[Finding] = []
    for _, shard in shards_of(path, header)[1:]:
        reader = Reader(shard, "target", remedy)
        check_types(reader)
        number = shard.keys.get(SPLIT_NUMBER)
        if number is None or number.type_text != "uint16":
            reader.fault(f"`{SPLIT_NUMBER}` of `{shard.name}` is not uint16", number.type_text if number else "none")
        found += reader.findings
    return tuple(found)
