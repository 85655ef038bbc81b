"""``mask_embedding.pt``: a token's id and its vector, read without PyTorch and without unpickling.

Comes in: a path. Goes out: a `MaskEmbedding`. The file is a small zip around a pickle; the pickle is walked opcode
by opcode, each one on the list below, and nothing that it names is ever looked up or called.
Source: torch/serialization.py, torch/_utils.py (format of torch.save since 1.6).
"""

from __future__ import annotations

import pickletools
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dflash_gguf.convert.packing import as_floats
from dflash_gguf.errors import CheckpointError
from dflash_gguf.files import regular_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME: Final = "mask_embedding.pt"
FILE_LIMIT: Final = 16 << 20
OPCODE_LIMIT: Final = 512
ENTRY_LIMIT: Final = 64
STORAGES: Final = {"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
REBUILD: Final = ("torch._utils", "_rebuild_tensor_v2")
PARAMETER: Final = ("torch._utils", "_rebuild_parameter")
ORDERED: Final = ("collections", "OrderedDict")
ALLOWED: Final = {*(("torch", name) for name in STORAGES), REBUILD, PARAMETER, ORDERED}
WIDTHS: Final = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class MaskEmbedding:
    """``values``: F32 bytes of the mask token's row."""

    token_id: int
    values: bytes


@dataclass(frozen=True, slots=True)
class _Name:
    """A global that the pickle names; it stays a name."""

    module: str
    attribute: str


@dataclass(frozen=True, slots=True)
class _Storage:
    dtype: str
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class _Vector:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _Mark:
    """Where a tuple or a run of pairs begins on the stack."""


def read_mask_embedding(path: Path) -> MaskEmbedding:
    """Read the file; raises `CheckpointError` when it is anything but an id and a vector of floats."""
    entries = _entries(path)
    pickles = [data for name, data in entries.items() if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise _wrong(path, f"{len(pickles)} pickles in it")
    try:
        value = _walk(pickles[0])
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise _wrong(path, ascii(str(error))[1:-1][:120].lower() or type(error).__name__) from None
    token_id, vector = _parts(path, value)
    return MaskEmbedding(token_id, _values(path, vector, entries))


def _entries(path: Path) -> dict[str, bytes]:
    try:
        if regular_size(path) > FILE_LIMIT:
            raise _wrong(path, f"more than {FILE_LIMIT} bytes")
        with zipfile.ZipFile(path) as archive:
            rows = archive.infolist()
            plain = all(row.compress_type == zipfile.ZIP_STORED and not row.flag_bits & 1 for row in rows)
            if not plain or len(rows) > ENTRY_LIMIT or sum(row.file_size for row in rows) > FILE_LIMIT:
                raise _wrong(path, "packed or too many entries")
            return {row.filename: archive.read(row) for row in rows}
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        ValueError,
        EOFError,
        struct.error,
        zlib.error,
    ) as error:
        raise _wrong(path, ascii(str(error))[1:-1][:120].lower()) from None
    except OSError as error:
        raise CheckpointError(f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}") from None


def _wrong(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"`{path}` is no mask embedding", value=reason, expected="torch.save of a token id and a vector of floats"
    )


# ---------------------------------------------------------------- the pickle


class _Stack:
    """What the opcodes work on; holds values of this module and plain ones only."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop_to_mark(self) -> list[Any]:
        for i in range(len(self.items) - 1, -1, -1):
            if isinstance(self.items[i], _Mark):
                taken = self.items[i + 1 :]
                del self.items[i:]
                return taken
        raise ValueError("a tuple without a beginning")

    def pop(self, count: int) -> list[Any]:
        if len(self.items) < count:
            raise ValueError("too few values")
        taken = self.items[len(self.items) - count :]
        del self.items[len(self.items) - count :]
        return taken


def _walk(data: bytes) -> Any:
    stack = _Stack()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count >= OPCODE_LIMIT or opcode.name not in OPCODES:
            raise ValueError(f"opcode {opcode.name} is not allowed")
        if opcode.name == "STOP":
            (value,) = stack.pop(1)
            return value
        OPCODES[opcode.name](stack, argument)
    raise ValueError("no end")


def _push(stack: _Stack, argument: Any) -> None:
    stack.items.append(argument)


def _tuple(count: int) -> Callable[[_Stack, Any], None]:
    def collect(stack: _Stack, _argument: Any) -> None:
        stack.items.append(tuple(stack.pop(count)))

    return collect


def _marked_tuple(stack: _Stack, _argument: Any) -> None:
    stack.items.append(tuple(stack.pop_to_mark()))


def _named(stack: _Stack, argument: str) -> None:
    module, _, attribute = argument.partition(" ")
    _name(stack, module, attribute)


def _stacked_name(stack: _Stack, _argument: Any) -> None:
    module, attribute = stack.pop(2)
    _name(stack, module, attribute)


def _name(stack: _Stack, module: str, attribute: str) -> None:
    if (module, attribute) not in ALLOWED:
        raise ValueError(f"{module}.{attribute} is not allowed")
    stack.items.append(_Name(module, attribute))


def _put(stack: _Stack, argument: Any) -> None:
    stack.memo[len(stack.memo) if argument is None else int(argument)] = stack.items[-1]


def _get(stack: _Stack, argument: Any) -> None:
    stack.items.append(stack.memo[int(argument)])


def _set_items(stack: _Stack, _argument: Any) -> None:
    pairs = stack.pop_to_mark()
    _fill(stack, pairs)


def _set_item(stack: _Stack, _argument: Any) -> None:
    _fill(stack, stack.pop(2))


def _fill(stack: _Stack, pairs: list[Any]) -> None:
    place = stack.items[-1]
    if not isinstance(place, dict) or len(pairs) % 2 or not all(isinstance(key, str) for key in pairs[::2]):
        raise ValueError("a table with keys that are no text")
    place.update(zip(pairs[::2], pairs[1::2], strict=True))


def _persistent(stack: _Stack, _argument: Any) -> None:
    ((kind, storage, key, _device, size),) = stack.pop(1)
    whole = kind == "storage" and isinstance(key, str) and type(size) is int and 0 <= size <= FILE_LIMIT
    if not whole or not isinstance(storage, _Name) or storage.attribute not in STORAGES:
        raise ValueError("a storage of another kind")
    stack.items.append(_Storage(STORAGES[storage.attribute], key, size))


def _reduce(stack: _Stack, _argument: Any) -> None:
    function, arguments = stack.pop(2)
    if function == _Name(*ORDERED) and arguments == ():
        stack.items.append({})
        return
    if function == _Name(*PARAMETER) and isinstance(arguments, tuple) and len(arguments) == 3:
        stack.items.append(arguments[0])
        return
    if function != _Name(*REBUILD) or not isinstance(arguments, tuple) or len(arguments) not in (6, 7):
        raise ValueError("a call of something else than a tensor's layout")
    storage, offset, shape, stride = arguments[:4]
    if not isinstance(storage, _Storage) or not all(isinstance(sizes, tuple) for sizes in (shape, stride)):
        raise ValueError("a tensor of another layout")
    if not all(type(n) is int and 0 <= n <= FILE_LIMIT for n in (offset, *shape, *stride)):
        raise ValueError("a tensor of absurd sizes")
    stack.items.append(_Vector(storage, offset, shape, stride))


def _nothing(_stack: _Stack, _argument: Any) -> None:
    return


OPCODES: Final[dict[str, Callable[[_Stack, Any], None]]] = {
    "PROTO": _nothing,
    "FRAME": _nothing,
    "STOP": _nothing,
    "MARK": lambda stack, _: stack.items.append(_Mark()),
    "EMPTY_DICT": lambda stack, _: stack.items.append({}),
    "EMPTY_TUPLE": lambda stack, _: stack.items.append(()),
    "NONE": lambda stack, _: stack.items.append(None),
    "NEWFALSE": lambda stack, _: stack.items.append(False),
    "NEWTRUE": lambda stack, _: stack.items.append(True),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1"), _push),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE"), _push),
    "TUPLE": _marked_tuple,
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "GLOBAL": _named,
    "STACK_GLOBAL": _stacked_name,
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), _put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _get),
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "BINPERSID": _persistent,
    "REDUCE": _reduce,
}
"""Every opcode that torch.save writes for such a file -> what it does to the stack; any other is refused."""


# ---------------------------------------------------------------- the vector


def _parts(path: Path, value: Any) -> tuple[int, _Vector]:
    if not isinstance(value, dict) or set(value) != {"mask_token_id", "embedding"}:
        raise _wrong(path, "other keys than `mask_token_id` and `embedding`")
    token_id, vector = value["mask_token_id"], value["embedding"]
    if type(token_id) is not int or not 0 <= token_id < 1 << 31:
        raise _wrong(path, "a token id that is none")
    if not isinstance(vector, _Vector) or len(vector.shape) != 1 or vector.stride != (1,):
        raise _wrong(path, "an embedding that is no vector")
    if vector.offset + vector.shape[0] > vector.storage.size:
        raise _wrong(path, "an embedding that ends outside its storage")
    return token_id, vector


def _values(path: Path, vector: _Vector, entries: dict[str, bytes]) -> bytes:
    storage = vector.storage
    data = [blob for name, blob in entries.items() if name.endswith(f"/data/{storage.key}")]
    order = [blob for name, blob in entries.items() if name.endswith("/byteorder")]
    if len(data) != 1 or len(data[0]) != storage.size * WIDTHS[storage.dtype] or order not in ([], [b"little"]):
        raise _wrong(path, "a storage of another size or byte order")
    values = as_floats(data[0], storage.dtype)[vector.offset : vector.offset + vector.shape[0]]
    if not np.isfinite(values).all():
        raise _wrong(path, "a value that is not finite")
    return values.astype("<f4").tobytes()
