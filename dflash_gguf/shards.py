"""A GGUF that is split into several files, named ``NAME-00001-of-00005.gguf``.

Comes in: one of the files and its header. Goes out: the headers of all that lie beside it, here or elsewhere.
Source: llama.cpp src/llama.cpp, ``llama_split_path`` (0.5.0).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dflash_gguf.gguf_header import GGUFHeader, read_header

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dflash_gguf.files import File

SHARD: Final = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$")
SPLIT_COUNT: Final = "split.count"
SPLIT_NUMBER: Final = "split.no"
SPLIT_TENSORS: Final = "split.tensors.count"


def shards_of(path: Path, header: GGUFHeader) -> list[tuple[Path, GGUFHeader]]:
    """The file itself first, then the others that are there; raises `GGUFError` on a broken one."""
    others = [path.with_name(name) for name in other_names(path.name, header)]
    return [(path, header), *((other, read_header(other)) for other in others if other.is_file())]


def shards_among(file: File, header: GGUFHeader, beside: Mapping[str, File]) -> list[tuple[File, GGUFHeader]]:
    """As `shards_of`, for a file whose neighbours are given by name."""
    others = [beside[name] for name in other_names(file.name, header) if name in beside]
    return [(file, header), *((other, read_header(other)) for other in others)]


def other_names(name: str, header: GGUFHeader) -> list[str]:
    """The names of the other files of a split one; none when it is not split."""
    match = SHARD.search(name)
    if match is None or header.integer(SPLIT_COUNT, 1) <= 1:
        return []
    numbers = (number for number in range(1, int(match[2]) + 1) if number != int(match[1]))
    return [f"{name[: match.start()]}-{number:05}-of-{match[2]}{match[3]}" for number in numbers]
