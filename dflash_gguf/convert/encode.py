"""GGUF's encoding of keys, values, the tensor table and the header.

Comes in: names and values. Goes out: bytes. Knows nothing of models.
Source: llama.cpp ggml/src/gguf.cpp and gguf-py/gguf/gguf_writer.py (0.5.0).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import OutputError
from dflash_gguf.gguf_parser import ARRAY, MAGIC, SCALARS, STRING, VALUE_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader

VERSION: Final = 3
ALIGNMENT: Final = 32
_NUMBERS: Final = {name: number for number, name in enumerate(VALUE_NAMES)}


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key: its type as text, its value (None for a copied array), its count of items, its encoding."""

    key: str
    type: str
    value: object
    count: int
    raw: bytes = field(repr=False)


def scalar(key: str, type_name: str, value: object) -> KeyValue:
    """A key of one value, for example ``scalar("general.file_type", "uint32", 15)``."""
    number = _NUMBERS[type_name]
    return KeyValue(key, type_name, value, 1, struct.pack("<I", number) + _item(key, number, value))


def array(key: str, item_type: str, values: Sequence[object]) -> KeyValue:
    """A key of several values of one type."""
    number = _NUMBERS[item_type]
    raw = struct.pack("<IIQ", ARRAY, number, len(values)) + b"".join(_item(key, number, v) for v in values)
    return KeyValue(key, f"array[{item_type}]", tuple(values), len(values), raw)


def copied(key: str, header: GGUFHeader) -> KeyValue:
    """A key of another file, its encoding verbatim."""
    value = header.keys[key]
    shown: object = None
    if value.type == STRING:
        shown = header.string(key)
    elif value.type != ARRAY:
        shown = SCALARS[value.type].unpack_from(header.blob, value.payload)[0]
    return KeyValue(key, value.type_text, shown, value.count, header.raw(key))


def encode_header(keys: Sequence[KeyValue], tensors: Sequence[tuple[str, Sequence[int], int, int]]) -> bytes:
    """Everything before the data, padded; ``tensors`` are (name, shape in ggml order, type, offset)."""
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(keys))]
    parts += [_text(pair.key) + pair.raw for pair in keys]
    for name, shape, type_id, offset in tensors:
        parts.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type_id, offset))
    header = b"".join(parts)
    return header + bytes(pad(len(header)) - len(header))


def pad(length: int) -> int:
    """``length`` rounded up to the alignment."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def _item(key: str, number: int, value: object) -> bytes:
    try:
        return _text(str(value)) if number == STRING else SCALARS[number].pack(value)
    except (struct.error, OverflowError, UnicodeEncodeError):
        raise OutputError(f"key `{key}`", value=ascii(value)[:80], expected=VALUE_NAMES[number]) from None


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
