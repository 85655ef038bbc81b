"""The values of a header as plain Python, whatever their type, and as text for a person.

Comes in: a header and a key. Goes out: what the file says under it, or why that cannot be read. Knows nothing of what
the keys mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from dflash_gguf.file_text import printable
from dflash_gguf.gguf_parser import ARRAY, SCALARS, STRING, U64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.gguf_header import GGUFHeader

Scalar = bool | int | float | str
Plain = Scalar | tuple[Scalar, ...]

LIST_LIMIT: Final = 256
"""An array longer than this is counted, not listed."""

NOT_UTF8: Final = "not UTF-8"


@dataclass(frozen=True, slots=True)
class Stated:
    """What a file says under ``key``; ``value`` is None when that is nothing readable, and ``problem`` says why.

    ``type`` is GGUF's, such as ``uint32`` or ``array[string]``; ``count`` the items of an array, else 1.
    """

    key: str
    type: str
    count: int
    value: Plain | None
    problem: str = ""


def stated(header: GGUFHeader, key: str) -> Stated:
    """The value of a key that the file has; an array is listed up to `LIST_LIMIT` items."""
    value = header.keys[key]
    if value.count > LIST_LIMIT:
        return Stated(key, value.type_text, value.count, None, f"{value.count} items")
    found = tuple(items(header, key))
    listed = tuple(item for item in found if not isinstance(item, bytes))
    if len(listed) < len(found):
        return Stated(key, value.type_text, value.count, None, NOT_UTF8)
    return Stated(key, value.type_text, value.count, listed if value.type == ARRAY else listed[0])


def items(header: GGUFHeader, key: str, start: int = 0) -> Iterator[Scalar | bytes]:
    """The items from ``start`` on, one for a scalar; text that is not UTF-8 stays bytes."""
    value = header.keys[key]
    if value.item == STRING:
        yield from map(_text, islice(raw_items(header, key), start, None))
        return
    layout = SCALARS[value.item]
    for index in range(start, value.count):
        yield layout.unpack_from(header.blob, value.payload + index * layout.size)[0]


def raw_items(header: GGUFHeader, key: str) -> Iterator[bytes]:
    """The bytes of each item; those of a string without its length."""
    value, pos = header.keys[key], header.keys[key].payload
    for _ in range(value.count):
        if value.item == STRING:
            size = U64.unpack_from(header.blob, pos)[0]
            pos += 8
        else:
            size = SCALARS[value.item].size
        yield header.blob[pos : pos + size]
        pos += size


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def value_text(value: Plain) -> str:
    """A value for a person: numbers as they are, text in quotes, escaped."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, str):
        text = value.replace("\\", "\\\\")  # so that the quotes hold what can be told apart
        return f'"{printable(text)}"'
    return str(value).lower() if isinstance(value, bool) else str(value)
