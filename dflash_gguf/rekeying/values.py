"""Values of a fork's keys in the types that llama.cpp reads, and a value given by the user as a key.

Comes in: a header and a key of it. Goes out: a `KeyValue`. A value that the type cannot hold is refused, not bent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.hparams import LAYERS
from dflash_gguf.convert.encode import KeyValue, array, copied, scalar
from dflash_gguf.errors import GGUFError
from dflash_gguf.file_text import NAME_SHOWN, shown
from dflash_gguf.gguf_parser import ARRAY, BOOL, INTEGERS, NUMBERS
from dflash_gguf.rekeying.forks import ALSO_READ, TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader

WHOLE: Final = {"uint32": range(1 << 32), "int32": range(-(1 << 31), 1 << 31), "bool": range(2)}
"""Type of whole numbers -> those that it holds."""


def as_it_is(key: str, header: GGUFHeader) -> KeyValue:
    """A key that is copied; its text is not even decoded."""
    value = header.keys[key]
    return KeyValue(key, value.type_text, None, value.count, header.raw(key))


def renamed(source: str, key: str, header: GGUFHeader) -> KeyValue:
    """A key under upstream's name and type; raises `GGUFError` when its value does not fit the type."""
    pair, wanted = copied(source, header), TYPES.get(key)
    if pair.count > LAYERS.most:
        expected = f"at most {LAYERS.most}, one for each layer"
        raise GGUFError(f"`{header.name}`: entries of key `{shown(source)}`", value=pair.count, expected=expected)
    if wanted is None or pair.type == wanted or pair.type in ALSO_READ.get(wanted, ()):
        return KeyValue(key, pair.type, pair.value, pair.count, pair.raw)
    values = _numbers(source, header, many=wanted.startswith("array["))
    item = _item(wanted)
    if values is None or not all(_holds(item, value) for value in values):
        raise GGUFError(f"`{header.name}`: key `{shown(source)}`", value=_shown(pair, values), expected=wanted)
    exact = [bool(value) if item == "bool" else int(value) if item in WHOLE else value for value in values]
    return encoded(key, exact if wanted.startswith("array[") else exact[0])


def encoded(key: str, value: object) -> KeyValue:
    """A key of `TYPES` with a value from elsewhere."""
    item = _item(TYPES[key])
    return array(key, item, value) if isinstance(value, (list, tuple)) else scalar(key, item, value)


def _numbers(source: str, header: GGUFHeader, *, many: bool) -> Sequence[float] | None:
    """The number, or the numbers; None when the value is neither, as it should be."""
    value = header.keys[source]
    if many != (value.type == ARRAY):
        return None
    if many:
        if value.item == BOOL:
            return header.booleans(source)
        return header.integers(source) if value.item in INTEGERS else None
    if value.type == BOOL:
        return [header.boolean(source)]
    return [header.number(source)] if value.type in NUMBERS else None


def _item(kind: str) -> str:
    return kind.removeprefix("array[").removesuffix("]")


def _holds(item: str, value: float) -> bool:
    """Whether the type has this very number; a float may lose digits, and `encoded` sees to its range."""
    if item in WHOLE:
        return isinstance(value, int) and value in WHOLE[item]
    return item == "float32"


def _shown(pair: KeyValue, values: Sequence[float] | None) -> str:
    return pair.type if values is None else ascii(list(values))[:NAME_SHOWN]
