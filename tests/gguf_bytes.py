"""GGUF files put together byte by byte, so that they can be wrong in any way.

Comes in: keys and tensors. Goes out: bytes. No code of the package and none of gguf-py takes part.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

UINT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 6, 7, 8, 9, 10


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def u32(value: int) -> bytes:
    return struct.pack("<II", UINT32, value)


def string(value: str | bytes) -> bytes:
    return struct.pack("<I", STRING) + text(value)


def strings(*values: str | bytes) -> bytes:
    return struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(text(v) for v in values)


def numbers(code: str, kind: int, *values: float) -> bytes:
    return struct.pack("<IIQ", ARRAY, kind, len(values)) + struct.pack(f"<{len(values)}{code}", *values)


def tensor(name: str | bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


KEYS = (
    ("general.architecture", string("llama")),
    ("a.count", u32(7)),
    ("a.base", struct.pack("<If", FLOAT32, 0.5)),
    ("a.flag", struct.pack("<I?", BOOL, True)),
    ("a.size", struct.pack("<IQ", UINT64, 1 << 40)),
    ("a.ids", numbers("i", 5, 3, -4)),
    ("a.flags", numbers("?", BOOL, True, False)),
    ("tokenizer.ggml.tokens", strings("a", "ß", "", "long token")),
)
TENSORS = (tensor("first.weight", (8, 3), 0, 0), tensor("second.weight", (32,), 8, 96))
DATA = bytes(96 + 34)


def gguf(
    keys: tuple[tuple[str | bytes, bytes], ...] = KEYS,
    tensors: tuple[bytes, ...] = TENSORS,
    data: bytes = DATA,
    *,
    magic: bytes = b"GGUF",
    version: bytes = struct.pack("<I", 3),
    n_tensors: int | None = None,
    n_keys: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file of these parts; the counts can lie."""
    counts = (len(tensors) if n_tensors is None else n_tensors, len(keys) if n_keys is None else n_keys)
    head = magic + version + struct.pack("<QQ", *counts)
    head += b"".join(text(key) + value for key, value in keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


@dataclass
class Memory:
    """A byte source in memory that remembers how much was asked for."""

    data: bytes
    served: int = 0
    largest: int = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        self.largest = max(self.largest, length)
        chunk = self.data[offset : offset + length]
        self.served += len(chunk)
        return chunk
