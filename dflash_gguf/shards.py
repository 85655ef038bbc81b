"""A GGUF that is split into several files, named ``NAME-00001-of-00005.gguf``.

Comes in: one of the files and its header. Goes out: the headers of all that lie beside it.
Source: llama.cpp src/llama.cpp, ``llama_split_path`` (0.5.0).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dflash_gguf.gguf_header import GGUFHeader, read_header

if TYPE_CHECKING:
    from pathlib import Path

SHARD: Final = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$")
SPLIT_COUNT: Final = "split.count"
SPLIT_NUMBER: Final = "split.no"


def shards_of(path: Path, header: GGUFHeader) -> list[tuple[Path, GGUFHeader]]:
    """The file itself first, then the others that are there; raises `GGUFError` on a broken one."""
    found = [(path, header)]
    match = SHARD.search(path.name)
    if match is None or header.integer(SPLIT_COUNT, 1) <= 1:
        return found
    for number in range(1, int(match[2]) + 1):
        other = path.with_name(f"{path.name[: match.start()]}-{number:05}-of-{match[2]}{match[3]}")
        if number != int(match[1]) and other.is_file():
            found.append((other, read_header(other)))
    return found
