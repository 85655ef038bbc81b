"""What differs between two GGUFs: keys, the tensor table, and the tensors' bytes.

Comes in: two paths. Goes out: a frozen `Difference`. The order of keys and of tensors is not compared: it means
nothing to a reader. Data is read in chunks, of both files at once, so that memory stays bounded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from dflash_gguf.errors import GGUFError
from dflash_gguf.file_text import json_value
from dflash_gguf.ggml_types import type_name
from dflash_gguf.gguf_header import read_header
from dflash_gguf.gguf_parser import ARRAY
from dflash_gguf.gguf_values import NOT_UTF8, Stated, items, raw_items, stated

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from dflash_gguf.gguf_header import GGUFHeader, TensorInfo

CHUNK: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key that is not the same. A side is None when its file lacks the key.

    For two arrays ``index`` is the first item that differs, for two strings the first character; each side's value
    is then that item (None past the end of the shorter array), or the whole string.
    """

    key: str
    what: Literal["only in first", "only in second", "type", "value"]
    first: Stated | None
    second: Stated | None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class TensorChange:
    """A tensor that is not the same; a side is the shape, the type or, for data, None.

    ``index`` is the first byte that differs, counted from the tensor's own start.
    """

    name: str
    what: Literal["only in first", "only in second", "shape", "type", "data"]
    first: str | None
    second: str | None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that differs; ``data_compared`` is false when only the headers were read."""

    first: str
    second: str
    keys: tuple[KeyChange, ...]
    tensors: tuple[TensorChange, ...]
    data_compared: bool

    @property
    def same(self) -> bool:
        """Whether nothing differs of what was compared."""
        return not self.keys and not self.tensors


def diff(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *,
    data: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Difference:
    """Compare two files; raises `GGUFError` when one of them is no sound GGUF or cannot be read.

    ``data``: also the bytes of each tensor whose shape and type are equal; ``progress`` is given the bytes of one
    file that are done, and their sum.
    """
    ours, theirs = read_header(first), read_header(second)
    tensors = [*_table_changes(ours, theirs)]
    if data:
        tensors += _data_changes(ours, theirs, progress or (lambda _done, _total: None))
    return Difference(ours.name, theirs.name, tuple(_key_changes(ours, theirs)), tuple(tensors), data)


def as_dict(found: Difference) -> dict[str, Any]:
    """A difference as plain JSON values."""
    return {
        "first": json_value(found.first),
        "second": json_value(found.second),
        "same": found.same,
        "data_compared": found.data_compared,
        "keys": [
            {
                "key": change.key,
                "what": change.what,
                "first": _side_as_dict(change.first),
                "second": _side_as_dict(change.second),
                "index": change.index,
            }
            for change in found.keys
        ],
        "tensors": [asdict(change) for change in found.tensors],
    }


def _side_as_dict(side: Stated | None) -> dict[str, object] | None:
    if side is None:
        return None
    return {"type": side.type, "count": side.count, "value": json_value(side.value), "problem": side.problem}


def _key_changes(ours: GGUFHeader, theirs: GGUFHeader) -> Iterator[KeyChange]:
    for key in {**ours.keys, **theirs.keys}:
        if key not in theirs.keys:
            yield KeyChange(key, "only in first", stated(ours, key), None)
        elif key not in ours.keys:
            yield KeyChange(key, "only in second", None, stated(theirs, key))
        elif ours.raw(key) != theirs.raw(key):
            yield _changed(key, ours, theirs)


def _changed(key: str, ours: GGUFHeader, theirs: GGUFHeader) -> KeyChange:
    first, second = stated(ours, key), stated(theirs, key)
    if first.type != second.type:
        return KeyChange(key, "type", first, second)
    if ours.keys[key].type == ARRAY:
        index = _first_difference(raw_items(ours, key), raw_items(theirs, key))
        return KeyChange(key, "value", _at(ours, first, index), _at(theirs, second, index), index)
    if isinstance(first.value, str) and isinstance(second.value, str):
        return KeyChange(key, "value", first, second, _first_difference(iter(first.value), iter(second.value)))
    return KeyChange(key, "value", first, second)


def _first_difference(ours: Iterator[object], theirs: Iterator[object]) -> int:
    """Index of the first pair that differs, or the length of the shorter."""
    index = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        index += 1
    return index


def _at(header: GGUFHeader, side: Stated, index: int) -> Stated:
    """The side with its one item ``index`` for a value."""
    if index >= side.count:
        return replace(side, value=None, problem="no such item")
    item = next(items(header, side.key, index))
    value, problem = (None, NOT_UTF8) if isinstance(item, bytes) else (item, "")
    return replace(side, value=value, problem=problem)


def _table_changes(ours: GGUFHeader, theirs: GGUFHeader) -> Iterator[TensorChange]:
    for name in {**ours.tensors, **theirs.tensors}:
        one, other = ours.tensors.get(name), theirs.tensors.get(name)
        if other is None or one is None:
            what: Literal["only in first", "only in second"] = "only in first" if one else "only in second"
            yield TensorChange(name, what, _row(one), _row(other))
            continue
        if one.shape != other.shape:
            yield TensorChange(name, "shape", str(list(one.shape)), str(list(other.shape)))
        if one.type != other.type:
            yield TensorChange(name, "type", type_name(one.type), type_name(other.type))


def _row(info: TensorInfo | None) -> str | None:
    return None if info is None else f"{list(info.shape)} {type_name(info.type)}"


def _data_changes(ours: GGUFHeader, theirs: GGUFHeader, progress: Callable[[int, int], None]) -> Iterator[TensorChange]:
    both = [(one, theirs.tensors[name]) for name, one in ours.tensors.items() if name in theirs.tensors]
    alike = [(one, other) for one, other in both if (one.shape, one.type) == (other.shape, other.type)]
    done, total = 0, sum(one.nbytes for one, _ in alike)
    try:
        with Path(ours.name).open("rb") as file, Path(theirs.name).open("rb") as other_file:
            for one, other in alike:
                file.seek(ours.data_offset + one.offset)
                other_file.seek(theirs.data_offset + other.offset)
                index = _first_byte(file, other_file, one.nbytes)
                if index is not None:
                    yield TensorChange(one.name, "data", None, None, index)
                done += one.nbytes
                progress(done, total)
    except OSError as error:
        raise GGUFError(
            f"`{error.filename or ours.name}` cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None


def _first_byte(file: BinaryIO, other: BinaryIO, length: int) -> int | None:
    """Offset of the first of ``length`` bytes that differs, or None."""
    for start in range(0, length, CHUNK):
        size = min(CHUNK, length - start)
        ours, theirs = file.read(size), other.read(size)
        if len(ours) < size or len(theirs) < size:
            raise GGUFError("a file became shorter while it was compared")
        if ours != theirs:
            return start + _first_difference(iter(ours), iter(theirs))
    return None
