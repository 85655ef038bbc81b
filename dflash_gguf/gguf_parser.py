"""The cursor that walks a GGUF's header and refuses whatever does not fit.

Comes in: a source of byte ranges. Goes out: where each value lies, and the checked tensor table. Every count
is checked against the bytes that are really there before anything grows by it; arrays are skipped, undecoded.
Source: the GGUF format, llama.cpp ggml/src/gguf.cpp (0.5.0).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, Protocol

from dflash_gguf.errors import GGUFError
from dflash_gguf.file_text import NAME_SHOWN, shown
from dflash_gguf.ggml_types import GGML_TYPES, tensor_bytes, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32
HEADER_LIMIT: Final = 512 << 20
KEY_LIMIT: Final = 1 << 16
TENSOR_LIMIT: Final = 1 << 20
STRING_LIMIT: Final = 64 << 20
STRINGS_LIMIT: Final = 1 << 23
"""Strings in all arrays: walking them is the longest part of reading a header, a second or two for so many."""
KEY_NAME_LIMIT: Final = 1 << 16
TENSOR_NAME_LIMIT: Final = 63
"""Longest tensor name in bytes; ggml's GGML_MAX_NAME counts the closing zero."""
DIMS_LIMIT: Final = 4
ELEMENTS_LIMIT: Final = (1 << 63) - 1
FIRST_CHUNK: Final = 1 << 18
HEAD_SHOWN: Final = 64
"""Bytes by which something else is told from a GGUF."""
BLANKS: Final = b"\xef\xbb\xbf \t\r\n"
"""A mark of UTF-8 and white space, which may come before a page."""

CONVERT: Final = "convert the model with llama.cpp's converter of today, or download such a file"
GET_AGAIN: Final = "download the file again, or convert the model again with llama.cpp's converter of today"
_THE_FILE_ITSELF: Final = "download the file itself, not the page about it: its address has `/resolve/`, not `/blob/`"
IMPOSTORS: Final = (
    (b"<!doctype", "a page of HTML", _THE_FILE_ITSELF),
    (b"<html", "a page of HTML", _THE_FILE_ITSELF),
    (
        b"version https://git-lfs",
        "a pointer of git-lfs",
        "run `git lfs pull`, or download the file itself",
    ),
)
"""How what stands in a model's place begins, what it is, and how to get the model."""

STRING: Final = 8
ARRAY: Final = 9
BOOL: Final = 7
SCALARS: Final[dict[int, struct.Struct]] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
VALUE_NAMES: Final = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64",
    "int64", "float64",
)  # fmt: skip
INTEGERS: Final = frozenset({0, 1, 2, 3, 4, 5, 10, 11})
NUMBERS: Final = INTEGERS | {6, 12}

U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")


class ByteSource(Protocol):
    """Anything of a known size that serves byte ranges; a range past its end comes back short."""

    @property
    def size(self) -> int:
        """Bytes in all."""

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""


@dataclass(frozen=True, slots=True)
class Value:
    """Where a value lies: ``type`` is a GGUF value type, ``start`` that of its type number, ``end`` its end.

    For an array ``item`` is the type of its ``count`` items; for a scalar ``item`` equals ``type``.
    ``payload`` is where the value itself begins (for an array, its first item).
    """

    type: int
    item: int
    count: int
    start: int
    payload: int
    end: int

    @property
    def type_text(self) -> str:
        """For example ``uint32`` or ``array[string]``."""
        name = VALUE_NAMES[self.item]
        return f"array[{name}]" if self.type == ARRAY else name


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One row of the tensor table; ``shape`` in ggml order, ``offset`` from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    nbytes: int


class Parser:
    """A cursor over the header, which grows in chunks as it advances; never more than the source holds."""

    def __init__(self, source: ByteSource, name: str) -> None:
        self.source = source
        self.name = name
        self.data = bytearray()
        self.pos = 0
        self.n_strings = 0

    def _fail(self, what: str, remedy: str = GET_AGAIN, **details: Any) -> GGUFError:
        return GGUFError(f"`{self.name}`: {what}", remedy=remedy, **details)

    def _require(self, end: int) -> None:
        """Hold all bytes before ``end``, or raise."""
        if end <= len(self.data):
            return
        size = self.source.size
        if end > size:
            raise self._fail("the file is truncated", value=f"{size} bytes", expected=f"at least {end}")
        if end > HEADER_LIMIT:
            raise self._fail("the header is too large", expected=f"at most {HEADER_LIMIT} bytes")
        goal = min(size, max(end, 2 * len(self.data), FIRST_CHUNK))
        while len(self.data) < end:
            chunk = self.source.read(len(self.data), goal - len(self.data))
            if not chunk:
                raise self._fail(f"the file ends at byte {len(self.data)}", expected=f"at least {end}")
            self.data += chunk

    def _unpack(self, layout: struct.Struct) -> int:
        self._require(self.pos + layout.size)
        number: int = layout.unpack_from(self.data, self.pos)[0]
        self.pos += layout.size
        return number

    def version(self) -> int:
        """Read the magic and the version."""
        if self.source.size == 0:
            raise self._fail("the file is empty")
        self._require(min(HEAD_SHOWN, self.source.size))
        head = bytes(self.data[:HEAD_SHOWN])
        if not (head.startswith(MAGIC) or MAGIC.startswith(head)):
            raise self._other(head)
        self.pos = 4
        version = self._unpack(U32)
        if version and version & 0xFFFF == 0:
            raise self._fail("big-endian GGUF files cannot be read", remedy=CONVERT)
        if version not in VERSIONS:
            raise self._fail("GGUF version", value=version, expected=" or ".join(map(str, VERSIONS)))
        return version

    def _other(self, head: bytes) -> GGUFError:
        """What stands in a GGUF's place."""
        text = head.lstrip(BLANKS).lower()
        for start, what, remedy in IMPOSTORS:
            if text.startswith(start):
                return self._fail(f"not a GGUF file but {what}", remedy)
        return self._fail("not a GGUF file", value=head[:4], expected=f"the magic {MAGIC!r}")

    def counted(self, what: str, limit: int, least: int) -> int:
        """Read a count of things that take at least ``least`` bytes each."""
        count = self._unpack(U64)
        if count > limit:
            raise self._fail(f"number of {what}", value=count, expected=f"at most {limit}")
        if count * least > self.source.size:
            expected = f"as many as {self.source.size} bytes have room for"
            raise self._fail(f"the file is truncated: number of {what}", value=count, expected=expected)
        return count

    def _name(self, what: str, limit: int) -> str:
        length = self._unpack(U64)
        if not 0 < length <= limit:
            raise self._fail(f"length of {what}", value=length, expected=f"1 to {limit}")
        self._require(self.pos + length)
        raw = bytes(self.data[self.pos : self.pos + length])
        self.pos += length
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._fail(f"{what} is not UTF-8", value=raw[:NAME_SHOWN]) from None

    def keys(self, count: int) -> dict[str, Value]:
        """Walk ``count`` key-value pairs."""
        keys: dict[str, Value] = {}
        for index in range(count):
            key = self._name(f"the name of key {index}", KEY_NAME_LIMIT)
            if key in keys:
                raise self._fail(f"key `{shown(key)}` appears twice")
            keys[key] = self._skip_value(key)
        return keys

    def _skip_value(self, key: str) -> Value:
        start = self.pos
        kind = item = self._unpack(U32)
        count = 1
        if kind == ARRAY:
            item, count = self._unpack(U32), self._unpack(U64)
            if item == ARRAY:
                raise self._fail(f"key `{shown(key)}` is an array of arrays", expected="a flat array")
        payload = self.pos
        if item == STRING:
            self._skip_strings(key, count)
        elif item in SCALARS:
            self._require(payload + count * SCALARS[item].size)
            self.pos = payload + count * SCALARS[item].size
        else:
            raise self._fail(f"value type of key `{shown(key)}`", value=item, expected="0 to 12")
        return Value(kind, item, count, start, payload, self.pos)

    def _skip_strings(self, key: str, count: int) -> None:
        self._require(self.pos)
        if count * 8 > self.source.size - self.pos:
            what = f"the file is truncated: number of strings in `{shown(key)}`"
            raise self._fail(what, value=count, expected="no more than fit the file")
        self.n_strings += count
        if self.n_strings > STRINGS_LIMIT:
            raise self._fail("number of strings in arrays", value=self.n_strings, expected=f"at most {STRINGS_LIMIT}")
        unpack, pos, held = U64.unpack_from, self.pos, len(self.data)
        for _ in range(count):
            if pos + 8 > held:
                self._require(pos + 8)
                held = len(self.data)
            length = unpack(self.data, pos)[0]
            if length > STRING_LIMIT:
                raise self._fail(
                    f"a string in `{shown(key)}` is too long", value=length, expected=f"at most {STRING_LIMIT}"
                )
            pos += 8 + length
        self._require(pos)
        self.pos = pos

    def alignment(self, keys: Mapping[str, Value]) -> int:
        """Alignment of the tensor data in bytes."""
        value = keys.get("general.alignment")
        if value is None:
            return DEFAULT_ALIGNMENT
        if value.type != 4:
            raise self._fail("key `general.alignment`", value=value.type_text, expected="uint32")
        alignment: int = U32.unpack_from(self.data, value.payload)[0]
        if alignment == 0 or alignment & (alignment - 1):
            raise self._fail("`general.alignment`", value=alignment, expected="a power of two")
        return alignment

    def tensors(self, count: int, alignment: int) -> tuple[list[TensorInfo], int]:
        """Walk the tensor table; returns it and the offset of the data, all of it inside the source."""
        infos: list[TensorInfo] = []
        names: set[str] = set()
        expected = 0
        for index in range(count):
            info = self._tensor(index)
            if info.name in names:
                raise self._fail(f"tensor `{info.name}` appears twice")
            if info.offset != expected:
                raise self._fail(f"offset of tensor `{info.name}`", value=info.offset, expected=str(expected))
            names.add(info.name)
            infos.append(info)
            expected += _pad(info.nbytes, alignment)
        data_offset = _pad(self.pos, alignment)
        end = data_offset + infos[-1].offset + infos[-1].nbytes if infos else self.pos
        if end > self.source.size:
            raise self._fail("the tensor data is truncated", value=self.source.size, expected=f"{end} bytes")
        return infos, data_offset

    def _tensor(self, index: int) -> TensorInfo:
        name = self._name(f"the name of tensor {index}", TENSOR_NAME_LIMIT)
        n_dims = self._unpack(U32)
        if not 1 <= n_dims <= DIMS_LIMIT:
            raise self._fail(f"number of dimensions of `{name}`", value=n_dims, expected=f"1 to {DIMS_LIMIT}")
        shape = tuple(self._unpack(U64) for _ in range(n_dims))
        if 0 in shape or prod(shape) > ELEMENTS_LIMIT:
            raise self._fail(f"shape of `{name}`", value=list(shape), expected="positive sizes within 63 bits")
        kind, offset = self._unpack(U32), self._unpack(U64)
        if kind not in GGML_TYPES:
            raise self._fail(f"type of tensor `{name}`", value=kind, expected="a type of ggml")
        if shape[0] % GGML_TYPES[kind].block:
            expected = f"a multiple of {GGML_TYPES[kind].block} for {type_name(kind)}"
            raise self._fail(f"row length of `{name}`", value=shape[0], expected=expected)
        return TensorInfo(name, shape, kind, offset, tensor_bytes(kind, shape))


def _pad(length: int, alignment: int) -> int:
    return -(-length // alignment) * alignment
