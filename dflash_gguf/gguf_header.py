"""A bounded reader of a GGUF's header: its keys and its tensor table, never its weights.

Comes in: a path, or anything that serves byte ranges. Goes out: a frozen `GGUFHeader`. Arrays stay as spans
of the header's own bytes, to be copied verbatim or decoded on demand. Knows nothing of what the keys mean.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, overload

from dflash_gguf.errors import GGUFError
from dflash_gguf.files import FileSource
from dflash_gguf.gguf_parser import (
    ARRAY,
    BOOL,
    INTEGERS,
    KEY_LIMIT,
    NUMBERS,
    SCALARS,
    STRING,
    TENSOR_LIMIT,
    U64,
    ByteSource,
    Parser,
    TensorInfo,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ByteSource", "GGUFHeader", "PlannedFile", "TensorInfo", "Value", "read_header"]

_REQUIRED: Final = object()
_D = TypeVar("_D")


@dataclass(frozen=True, slots=True, eq=False)
class GGUFHeader:
    """A header, read and checked. Its getters raise `GGUFError` on a missing key or a wrong type.

    ``name`` is for messages; ``path`` is the file that it was read from, None for any other source, of which ``parts``
    are the headers of the further parts when the file is split.
    """

    name: str
    version: int
    alignment: int
    data_offset: int
    size: int
    keys: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]
    blob: bytes = field(repr=False)
    path: Path | None = None
    parts: tuple[GGUFHeader, ...] = field(default=(), repr=False)

    @overload
    def string(self, key: str) -> str: ...
    @overload
    def string(self, key: str, default: _D) -> str | _D: ...
    def string(self, key: str, default: object = _REQUIRED) -> object:
        """Text of a string key; raises when it is not UTF-8."""
        value = self._find(key, frozenset({STRING}), "a string", default)
        return default if value is None else self._text(key, value.payload)

    @overload
    def integer(self, key: str) -> int: ...
    @overload
    def integer(self, key: str, default: _D) -> int | _D: ...
    def integer(self, key: str, default: object = _REQUIRED) -> object:
        """Value of a key of any integer type."""
        return self._scalar(key, INTEGERS, "an integer", default)

    @overload
    def number(self, key: str) -> float: ...
    @overload
    def number(self, key: str, default: _D) -> float | _D: ...
    def number(self, key: str, default: object = _REQUIRED) -> object:
        """Value of a key of any integer or floating type."""
        return self._scalar(key, NUMBERS, "a number", default)

    @overload
    def boolean(self, key: str) -> bool: ...
    @overload
    def boolean(self, key: str, default: _D) -> bool | _D: ...
    def boolean(self, key: str, default: object = _REQUIRED) -> object:
        """Value of a boolean key."""
        return self._scalar(key, frozenset({BOOL}), "a boolean", default)

    def count(self, key: str) -> int:
        """Length of an array, without decoding it."""
        return self._array(key, frozenset(SCALARS) | {STRING}, "an array").count

    def integers(self, key: str) -> list[int]:
        """Items of an array of any integer type."""
        return [int(item) for item in self._items(key, INTEGERS, "an array of integers")]

    def booleans(self, key: str) -> list[bool]:
        """Items of an array of booleans."""
        return [bool(item) for item in self._items(key, frozenset({BOOL}), "an array of booleans")]

    def strings(self, key: str) -> list[str]:
        """Items of an array of strings, each decoded."""
        value = self._array(key, frozenset({STRING}), "an array of strings")
        items, pos = [], value.payload
        for _ in range(value.count):
            items.append(self._text(key, pos))
            pos += 8 + U64.unpack_from(self.blob, pos)[0]
        return items

    def raw(self, key: str) -> bytes:
        """The value's encoding, verbatim: its type number and payload, fit to be copied to another file."""
        value = self._value(key)
        return self.blob[value.start : value.end]

    def _value(self, key: str) -> Value:
        if key not in self.keys:
            raise GGUFError(f"`{self.name}` has no key `{key}`")
        return self.keys[key]

    def _find(self, key: str, types: frozenset[int], expected: str, default: object) -> Value | None:
        if default is not _REQUIRED and key not in self.keys:
            return None
        value = self._value(key)
        if value.type not in types:
            raise GGUFError(f"`{self.name}`: key `{key}`", value=value.type_text, expected=expected)
        return value

    def _scalar(self, key: str, types: frozenset[int], expected: str, default: object) -> object:
        value = self._find(key, types, expected, default)
        if value is None:
            return default
        scalar: object = SCALARS[value.type].unpack_from(self.blob, value.payload)[0]
        return scalar

    def _array(self, key: str, items: frozenset[int], expected: str) -> Value:
        value = self._value(key)
        if value.type != ARRAY or value.item not in items:
            raise GGUFError(f"`{self.name}`: key `{key}`", value=value.type_text, expected=expected)
        return value

    def _items(self, key: str, types: frozenset[int], expected: str) -> tuple[float, ...]:
        value = self._array(key, types, expected)
        code = SCALARS[value.item].format[1:]
        return struct.unpack_from(f"<{value.count}{code}", self.blob, value.payload)

    def _text(self, key: str, pos: int) -> str:
        length = U64.unpack_from(self.blob, pos)[0]
        try:
            return self.blob[pos + 8 : pos + 8 + length].decode()
        except UnicodeDecodeError:
            raise GGUFError(f"`{self.name}`: the text of `{key}` is not UTF-8") from None


def read_header(source: str | os.PathLike[str] | ByteSource) -> GGUFHeader:
    """Read and check the header of a GGUF; raises `GGUFError` when anything about it is wrong."""
    if not isinstance(source, (str, os.PathLike)):
        return _parse(source, getattr(source, "name", "the GGUF"))
    path = os.fspath(source)
    try:
        with FileSource(Path(path)) as file:
            return _parse(file, path, Path(path))
    except OSError as error:
        raise GGUFError(f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}") from None


def _parse(source: ByteSource, name: str, path: Path | None = None) -> GGUFHeader:
    parser = Parser(source, name)
    version = parser.version()
    n_tensors = parser.counted("tensors", TENSOR_LIMIT, 24)
    n_keys = parser.counted("keys", KEY_LIMIT, 13)
    keys = parser.keys(n_keys)
    alignment = parser.alignment(keys)
    infos, data_offset = parser.tensors(n_tensors, alignment)
    return GGUFHeader(
        name=name,
        version=version,
        alignment=alignment,
        data_offset=data_offset,
        size=source.size,
        keys=keys,
        tensors={info.name: info for info in infos},
        blob=bytes(memoryview(parser.data)[: parser.pos]),
        path=path,
    )


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of ``size`` bytes of which only the header exists yet, to be read back before it is written."""

    data: bytes
    size: int
    name: str

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes of the header from ``offset``."""
        return self.data[offset : offset + length]
