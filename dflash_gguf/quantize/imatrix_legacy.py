"""llama.cpp's older importance matrices: binary files without a mark of their own.

Comes in: a path. Goes out: sums and numbers of calls by tensor. Bounded: no length is believed before it fits the file.
Source: llama.cpp common/imatrix-loader.cpp, ``common_imatrix_load_legacy`` (0.5.0).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from dflash_gguf.errors import QuantizeError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

INT: Final = struct.Struct("<i")
NAME_LIMIT: Final = 256
"""ggml's names have 63 bytes at the most; a larger length says that this is another file."""


@dataclass(frozen=True, slots=True)
class Legacy:
    """``entries``: tensor -> sums, float32, and the number of calls, float32 [1]."""

    entries: Mapping[str, tuple[Floats, Floats]] = field(repr=False)
    dataset: str
    n_chunks: int


class _Reader:
    """A place in the file's bytes, which moves on."""

    def __init__(self, path: Path) -> None:
        self.path, self.data, self.pos = path, path.read_bytes(), 0

    def take(self, length: int, what: str) -> bytes:
        """The next bytes; raises `QuantizeError` when the file has not so many."""
        if not 0 <= length <= len(self.data) - self.pos:
            raise QuantizeError(
                f"the importance matrix `{self.path}` ends inside {what}",
                remedy="get the file again; if it is whole, it is no importance matrix",
            )
        self.pos += length
        return self.data[self.pos - length : self.pos]

    def integer(self, what: str) -> int:
        """The next int32."""
        return int(INT.unpack(self.take(INT.size, what))[0])


def read_legacy(path: Path) -> Legacy:
    """Raises `QuantizeError` for a file that is cut off, or is none of these."""
    reader = _Reader(path)
    count = reader.integer("its number of entries")
    if not 0 < count <= len(reader.data) // INT.size:
        raise QuantizeError(f"`{path}` is no importance matrix: it would have {count} entries")
    entries: dict[str, tuple[Floats, Floats]] = {}
    for i in range(count):
        name, entry = _entry(reader, f"entry {i + 1} of {count}")
        if name in entries:
            raise QuantizeError(f"the importance matrix `{path}` has two entries `{name}`")
        entries[name] = entry
    n_chunks, dataset = _trailer(reader)
    return Legacy(entries, dataset, n_chunks)


def _entry(reader: _Reader, what: str) -> tuple[str, tuple[Floats, Floats]]:
    length = reader.integer(what)
    if not 0 < length <= NAME_LIMIT:
        raise QuantizeError(f"`{reader.path}` is no importance matrix: {what} has a name of {length} bytes")
    name = reader.take(length, what).rstrip(b"\0").decode("utf-8", "replace")
    calls, values = reader.integer(what), reader.integer(what)
    if values < 1 or calls < 0:
        raise QuantizeError(f"the importance matrix `{reader.path}`: {what} has {values} values of {calls} calls")
    sums = np.frombuffer(reader.take(4 * values, what), "<f4")
    return name, (sums, np.array([calls], np.float32))


def _trailer(reader: _Reader) -> tuple[int, str]:
    """The number of chunks and the text's name, which early files lack."""
    if reader.pos == len(reader.data):
        return 0, ""
    chunks = reader.integer("its number of chunks")
    if reader.pos == len(reader.data):
        return chunks, ""
    length = reader.integer("the name of its text")
    return chunks, reader.take(max(0, length), "the name of its text").decode("utf-8", "replace")
