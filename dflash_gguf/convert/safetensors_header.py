"""The table at the head of a safetensors file, checked before anything of its size is allocated.

Comes in: a file, here or elsewhere. Goes out: name -> dtype, shape and place in the file. Knows nothing of models.
The safetensors library checks a file of this machine as a second reader; it does not tell where a tensor's bytes lie.
Source: the format, huggingface/safetensors safetensors/src/tensor.rs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.strict_json import parse_object
from dflash_gguf.errors import CheckpointError
from dflash_gguf.files import opened

if TYPE_CHECKING:
    from dflash_gguf.files import Elsewhere, File, FileSource

HEADER_LIMIT: Final = 100_000_000
FIRST_READ: Final = 1 << 16
"""Bytes that are asked for first; most headers are shorter."""
LFS_POINTER: Final = b"version "
"""The first eight bytes of what Git LFS leaves in the place of a file."""
DIMS_LIMIT: Final = 16
SIZE_LIMIT: Final = (1 << 63) - 1

DTYPE_BITS: Final[dict[str, int]] = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
    "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor on disk: ``shape`` in PyTorch order, ``offset`` from the start of ``file``, in bytes."""

    file: File
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def read_table(path: File) -> dict[str, TensorEntry]:
    """Tensor table of ``path``, ordered by name; raises `CheckpointError` when anything about it is wrong."""
    try:
        with opened(path) as source:
            text, size = _header(path, source), source.size
    except OSError as error:
        raise CheckpointError(f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}") from None
    start = 8 + len(text)
    header = parse_object(text, f"the header of `{path}`")
    header.pop("__metadata__", None)
    table = {name: _entry(path, name, row, start, size) for name, row in header.items()}
    _check_cover(path, table, start, size)
    if isinstance(path, Path):
        _second_reader(path)
    return dict(sorted(table.items()))


def _header(path: File, source: FileSource | Elsewhere) -> bytes:
    """The header's text, in one read where it is short."""
    data = source.read(0, min(FIRST_READ, source.size))
    end = _header_end(path, data[:8], source.size)
    while len(data) < end:
        more = source.read(len(data), end - len(data))
        if not more:
            raise CheckpointError(f"`{path}` ends inside its header")
        data += more
    return data[8:end]


def _header_end(path: File, prefix: bytes, size: int) -> int:
    if len(prefix) < 8:
        raise CheckpointError(f"`{path}` is truncated", value=f"{size} bytes", expected="a safetensors file")
    if prefix == LFS_POINTER:
        raise CheckpointError(
            f"`{path}` is a Git LFS pointer, not the file itself", remedy="fetch it: `git lfs pull`, or `hf download`"
        )
    length = struct.unpack("<Q", prefix)[0]
    if length > HEADER_LIMIT or 8 + length > size:
        limit = min(HEADER_LIMIT, size - 8)
        raise CheckpointError(f"header length of `{path}`", value=length, expected=f"at most {limit} bytes")
    return 8 + int(length)


def _entry(path: File, name: str, row: Any, start: int, size: int) -> TensorEntry:
    if not name.isascii() or not name.isprintable():
        raise CheckpointError(f"a tensor name in `{path}`", value=ascii(name), expected="printable ascii")
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"the entry of `{name}` in `{path}`", expected="dtype, shape and data_offsets")
    dtype, shape, span = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise CheckpointError(f"dtype of `{name}`", value=ascii(dtype), expected=", ".join(DTYPE_BITS))
    if not _sizes(shape) or len(shape) > DIMS_LIMIT or prod(shape) > SIZE_LIMIT:
        raise CheckpointError(f"shape of `{name}`", value=ascii(shape)[:80], expected="a list of sizes")
    if not _sizes(span) or len(span) != 2 or not span[0] <= span[1] <= size - start:
        raise CheckpointError(
            f"data_offsets of `{name}`",
            value=ascii(span)[:80],
            expected=f"a range within {size - start} bytes",
        )
    nbytes = span[1] - span[0]
    if nbytes * 8 != prod(shape) * DTYPE_BITS[dtype]:
        expected = f"{prod(shape) * DTYPE_BITS[dtype] // 8} for {dtype} {shape}"
        raise CheckpointError(f"bytes of `{name}`", value=nbytes, expected=expected)
    return TensorEntry(path, dtype, tuple(shape), start + span[0], nbytes)


def _sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= SIZE_LIMIT for n in value)


def _check_cover(path: File, table: dict[str, TensorEntry], start: int, size: int) -> None:
    expected = start
    for name, entry in sorted(table.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if entry.offset != expected:
            raise CheckpointError(
                f"`{name}` in `{path}` overlaps another tensor or leaves a hole",
                value=f"byte {entry.offset}",
                expected=f"byte {expected}",
            )
        expected += entry.nbytes
    if expected != size:
        raise CheckpointError(f"`{path}` ends elsewhere than its tensors", value=size, expected=f"{expected} bytes")


def _second_reader(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        reason = ascii(str(error))[1:-1].lower()
        raise CheckpointError(f"`{path}` is not a valid safetensors file: {reason}") from None
