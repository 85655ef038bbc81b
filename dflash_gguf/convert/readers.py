"""Readers of each kind of source: whole rows into a buffer.

Comes in: a source and the length of its rows. Goes out: a function that fills a buffer with rows of the source's
type. Repacking moves bits and never rounds. Source: llama.cpp conversion/base.py, ggml/src/ggml-common.h (0.5.0).
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dflash_gguf.convert.packing import as_floats
from dflash_gguf.convert.sources import (
    MXFP4_GROUP,
    NVFP4_GROUP,
    Fp8,
    Made,
    Mxfp4,
    Nvfp4,
    Patched,
    Source,
    Span,
    Stored,
    read_span,
)
from dflash_gguf.errors import CheckpointError, QuantizeError
from dflash_gguf.ggml_types import BF16, F16, F32, row_bytes
from dflash_gguf.quantize.kernels import quantize_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Read = Callable[[Bytes, int, int], None]

NOT_A_NUMBER: Final = 0x7F
"""An E4M3 byte without its sign."""


@contextmanager
def opened(source: Source, n_per_row: int) -> Iterator[Read]:
    """``read(buffer, first, rows)``: uint8 [rows * bytes a row]; files stay open inside the block.

    Raises `CheckpointError` when a file cannot be read or ends early, `QuantizeError` on a value that cannot be
    kept.
    """
    with ExitStack() as stack:
        yield _READERS[type(source)](source, n_per_row, stack)


def _open(span: Span, stack: ExitStack) -> int:
    if not isinstance(span.file, Path):
        raise CheckpointError(f"`{span.file}` is not here", expected="a file that was downloaded")
    try:
        fd = os.open(span.file, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(span, error) from None
    stack.callback(os.close, fd)
    return fd


def _fill(fd: int, buffer: Bytes, span: Span, start: int, name: str) -> None:
    view, done = buffer.data, 0
    while done < len(view):
        try:
            count = os.preadv(fd, [view[done:]], span.offset + start + done)
        except OSError as error:
            raise _unreadable(span, error) from None
        if count == 0:
            raise CheckpointError(f"`{span.file}` ends inside tensor `{name}`")
        done += count


def _unreadable(span: Span, error: OSError) -> CheckpointError:
    return CheckpointError(f"`{span.file}` cannot be read: {(error.strerror or str(error)).lower()}")


def _stored(source: Stored, n_per_row: int, stack: ExitStack) -> Read:
    fd, width = _open(source.span, stack), row_bytes(source.type, n_per_row)

    def read(buffer: Bytes, first: int, _rows: int) -> None:
        _fill(fd, buffer, source.span, first * width, source.name)

    return read


def _made(source: Made, n_per_row: int, _stack: ExitStack) -> Read:
    data, width = np.frombuffer(source.data, np.uint8), row_bytes(source.type, n_per_row)

    def read(buffer: Bytes, first: int, rows: int) -> None:
        buffer[:] = data[first * width : (first + rows) * width]

    return read


def _patched(source: Patched, n_per_row: int, stack: ExitStack) -> Read:
    base = _stored(source.base, n_per_row, stack)
    width, own = row_bytes(source.base.type, n_per_row), row_bytes(source.type, n_per_row)
    row = _as_type(source, n_per_row)

    def read(buffer: Bytes, first: int, rows: int) -> None:
        if source.base.type == source.type:
            base(buffer, first, rows)
        else:
            packed = np.empty(rows * width, np.uint8)
            base(packed, first, rows)
            quantize_rows(source.name, packed, source.base.type, buffer, F32, n_per_row=n_per_row, n_threads=1)
        at = source.row - first
        if 0 <= at < rows:
            buffer[at * own : (at + 1) * own] = row

    return read


def _as_type(source: Patched, n_per_row: int) -> Bytes:
    """The patched row in the type of the others."""
    floats, row = np.frombuffer(source.values, np.uint8), np.empty(row_bytes(source.type, n_per_row), np.uint8)
    name = "mask embedding"
    if source.type == F32:
        return floats
    if source.type not in (F16, BF16):
        raise QuantizeError(f"tensor `{name}`: a row of another type")
    quantize_rows(name, floats, F32, row, source.type, n_per_row=n_per_row, n_threads=1)
    return row


# ---------------------------------------------------------------- FP8


def _float8(exponent_bits: int) -> NDArray[np.float32]:
    """Values of the 256 bytes of E4M3 (4) or E5M2 (5), signs in the upper half."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    byte = np.arange(128)
    exponent, mantissa = byte >> mantissa_bits, (byte & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    values = np.where(exponent == 0, np.ldexp(mantissa, 1 - bias), np.ldexp(1 + mantissa, exponent - bias))
    # E4M3 has no infinity and one pattern that is no number; E5M2 keeps its largest exponent for both.
    values[byte >= (0x7F if exponent_bits == 4 else 0x7C)] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


_FLOAT8: Final = {"F8_E4M3": _float8(4), "F8_E5M2": _float8(5)}


def _fp8(source: Fp8, n_per_row: int, stack: ExitStack) -> Read:
    fd, scales = _open(source.span, stack), source.scales
    table = _FLOAT8[source.dtype]
    grid = as_floats(read_span(scales.span, source.name), scales.dtype).reshape(scales.shape)
    n_down, n_across = scales.block
    # One row of the grid, stretched over the columns, at a time.
    across = np.repeat(grid, min(n_across, n_per_row), axis=1)[:, :n_per_row] if scales.shape[1] > 1 else grid

    def read(buffer: Bytes, first: int, rows: int) -> None:
        packed = np.empty(rows * n_per_row, np.uint8)
        _fill(fd, packed, source.span, first * n_per_row, source.name)
        out = buffer.view(np.float32).reshape(rows, n_per_row)
        np.take(table, packed.reshape(rows, n_per_row), out=out)
        with np.errstate(over="ignore", invalid="ignore"):
            out *= across[np.arange(first, first + rows) // n_down]

    return read


# ---------------------------------------------------------------- four bits


def _nvfp4(source: Nvfp4, n_per_row: int, stack: ExitStack) -> Read:
    weights, scales = _open(source.span, stack), _open(source.scales, stack)
    groups = n_per_row // NVFP4_GROUP

    def read(buffer: Bytes, first: int, rows: int) -> None:
        packed = np.empty((rows, groups, NVFP4_GROUP // 2), np.uint8)
        factors = np.empty((rows, groups), np.uint8)
        _fill(weights, packed.reshape(-1), source.span, first * n_per_row // 2, source.name)
        _fill(scales, factors.reshape(-1), source.scales, first * groups, source.name)
        _check_scales(source.name, factors)
        blocks = buffer.reshape(rows, groups // 4, 36)
        blocks[:, :, :4] = (factors & NOT_A_NUMBER).reshape(rows, groups // 4, 4)
        blocks[:, :, 4:] = _halves(packed).reshape(rows, groups // 4, 32)

    return read


def _check_scales(name: str, factors: Bytes) -> None:
    if ((factors & NOT_A_NUMBER) == NOT_A_NUMBER).any():
        raise QuantizeError(f"tensor `{name}`: a scale is not a number")
    if (factors > 0x80).any():
        raise QuantizeError(f"tensor `{name}`: a scale is negative")


def _halves(packed: Bytes) -> Bytes:
    """Neighbours share a byte; ggml pairs value i with value i + half a group. uint8 [..., n] to the same."""
    values = np.stack([packed & 0x0F, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    half = packed.shape[-1]
    halves: Bytes = values[..., :half] | (values[..., half:] << 4)
    return halves


def _mxfp4(source: Mxfp4, n_per_row: int, _stack: ExitStack) -> Read:
    groups = n_per_row // MXFP4_GROUP
    n_rows = source.experts[0][0].nbytes // (n_per_row // 2)

    def read(buffer: Bytes, first: int, rows: int) -> None:
        blocks = buffer.reshape(rows, groups, 17)
        done = 0
        while done < rows:
            expert, row = divmod(first + done, n_rows)
            count = min(rows - done, n_rows - row)
            _expert(source, expert, row, blocks[done : done + count], n_per_row)
            done += count

    return read


def _expert(source: Mxfp4, expert: int, row: int, blocks: Bytes, n_per_row: int) -> None:
    weights, scales = source.experts[expert]
    rows, groups = blocks.shape[:2]
    packed = np.empty((rows, groups, MXFP4_GROUP // 2), np.uint8)
    factors = np.empty((rows, groups), np.uint8)
    with ExitStack() as stack:
        _fill(_open(weights, stack), packed.reshape(-1), weights, row * n_per_row // 2, source.name)
        _fill(_open(scales, stack), factors.reshape(-1), scales, row * groups, source.name)
    if (factors == 0xFF).any():
        raise QuantizeError(f"tensor `{source.name}`: a scale is not a number")
    blocks[:, :, 0] = factors
    blocks[:, :, 1:] = _halves(packed)


_READERS: Final[dict[type, Callable[[Any, int, ExitStack], Read]]] = {
    Stored: _stored,
    Made: _made,
    Patched: _patched,
    Fp8: _fp8,
    Nvfp4: _nvfp4,
    Mxfp4: _mxfp4,
}
