"""A GGUF taken apart into encoded keys and tensors, and put together again with some of them changed.

Comes in: a file. Goes out: another, whose header can say what no writer would write.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import gguf_bytes as raw

from dflash_gguf.gguf_header import read_header

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Tensor = tuple[tuple[int, ...], int, bytes]
"""Shape in ggml's order, type, data."""


@dataclass(frozen=True, slots=True)
class Parts:
    """``keys``: key -> its value's encoding, type number first."""

    keys: Mapping[str, bytes]
    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, path: Path) -> Self:
        """Take a sound file apart."""
        header, data = read_header(path), path.read_bytes()
        tensors = {}
        for name, info in header.tensors.items():
            start = header.data_offset + info.offset
            tensors[name] = (info.shape, info.type, data[start : start + info.nbytes])
        return cls({key: header.raw(key) for key in header.keys}, tensors)

    def changed(
        self, keys: Mapping[str, bytes | None] | None = None, tensors: Mapping[str, Tensor | None] | None = None
    ) -> Self:
        """With keys and tensors replaced, added, or taken out where they are None."""
        merged = {key: value for key, value in (dict(self.keys) | dict(keys or {})).items() if value is not None}
        kept = {name: tensor for name, tensor in (dict(self.tensors) | dict(tensors or {})).items() if tensor}
        return replace(self, keys=merged, tensors=kept)

    def write(self, path: Path, alignment: int = 32) -> Path:
        """Write the file."""
        rows, data = [], b""
        for name, (shape, kind, content) in self.tensors.items():
            rows.append(raw.tensor(name, shape, kind, len(data)))
            data += content + bytes(-len(content) % alignment)
        path.write_bytes(raw.gguf(tuple(self.keys.items()), tuple(rows), data, alignment=alignment))
        return path


def f32(value: float) -> bytes:
    """The encoding of a float32."""
    return struct.pack("<If", raw.FLOAT32, value)


def u16(value: int) -> bytes:
    """The encoding of a uint16."""
    return struct.pack("<IH", 2, value)


def i32(value: int) -> bytes:
    """The encoding of an int32."""
    return struct.pack("<Ii", 5, value)


def flag(value: bool) -> bytes:
    """The encoding of a bool."""
    return struct.pack("<I?", raw.BOOL, value)


def i32s(*values: int) -> bytes:
    """The encoding of an array of int32."""
    return raw.numbers("i", 5, *values)


def flags(*values: bool) -> bytes:
    """The encoding of an array of bools."""
    return raw.numbers("?", raw.BOOL, *values)
