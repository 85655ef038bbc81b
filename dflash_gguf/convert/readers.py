"""Readers of each kind of source: whole rows into a buffer.

Comes in: a source and the length of its rows. Goes out: a function that fills a buffer with rows of the source's
type, in any order and from any thread. Repacking moves bits and never rounds. Source: llama.cpp conversion/base.py,
ggml/src/ggml-common.h (0.5.0).
"""

from __future__ import annotations

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
    Stored,
    read_span,
)
from dflash_gguf.errors import QuantizeError
from dflash_gguf.ggml_types import BF16, F16, F32, row_bytes
from dflash_gguf.quantize.kernels import quantize_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dflash_gguf.convert.open_files import OpenFiles

    Bytes = NDArray[np.uint8]
    Read = Callable[[Bytes, int, int], None]

NOT_A_NUMBER: Final = 0x7F
"""An E4M3 byte without its sign."""

MANTISSA_BITS: Final = {"F8_E4M3": 3, "F8_E5M2": 2}


def reader(source: Source, n_per_row: int, files: OpenFiles) -> Read:
    """``read(buffer, first, rows)``: uint8 [rows * bytes a row]; it may be called as long as ``files`` are open.

    It raises `CheckpointError` when a file cannot be read or ends early, `QuantizeError` on a value that cannot be
    kept.
    """
    return _READERS[type(source)](source, n_per_row, files)


def _stored(source: Stored, n_per_row: int, files: OpenFiles) -> Read:
    width = row_bytes(source.type, n_per_row)

    def read(buffer: Bytes, first: int, _rows: int) -> None:
        files.fill(buffer, source.span, first * width, source.name)

    return read


def _made(source: Made, n_per_row: int, _files: OpenFiles) -> Read:
    data, width = np.frombuffer(source.data, np.uint8), row_bytes(source.type, n_per_row)

    def read(buffer: Bytes, first: int, rows: int) -> None:
        buffer[:] = data[first * width : (first + rows) * width]

    return read


def _patched(source: Patched, n_per_row: int, files: OpenFiles) -> Read:
    base = _stored(source.base, n_per_row, files)
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


def _fp8(source: Fp8, n_per_row: int, files: OpenFiles) -> Read:
    from dflash_gguf import _core

    scales = source.scales
    grid = as_floats(read_span(scales.span, source.name), scales.dtype).reshape(scales.shape)
    n_down = scales.block[0]
    n_across = min(scales.block[1], n_per_row) if scales.shape[1] > 1 else n_per_row
    mantissa_bits = MANTISSA_BITS[source.dtype]

    def read(buffer: Bytes, first: int, rows: int) -> None:
        packed = np.empty(rows * n_per_row, np.uint8)
        files.fill(packed, source.span, first * n_per_row, source.name)
        factors = np.ascontiguousarray(grid[np.arange(first, first + rows) // n_down], np.float32)
        _core.widen_fp8(packed, mantissa_bits, factors, n_across, buffer, n_per_row)

    return read


# ---------------------------------------------------------------- four bits


def _nvfp4(source: Nvfp4, n_per_row: int, files: OpenFiles) -> Read:
    groups = n_per_row // NVFP4_GROUP

    def read(buffer: Bytes, first: int, rows: int) -> None:
        packed = np.empty((rows, groups, NVFP4_GROUP // 2), np.uint8)
        factors = np.empty((rows, groups), np.uint8)
        files.fill(packed.reshape(-1), source.span, first * n_per_row // 2, source.name)
        files.fill(factors.reshape(-1), source.scales, first * groups, source.name)
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


def _mxfp4(source: Mxfp4, n_per_row: int, files: OpenFiles) -> Read:
    groups = n_per_row // MXFP4_GROUP
    n_rows = source.experts[0][0].nbytes // (n_per_row // 2)

    def read(buffer: Bytes, first: int, rows: int) -> None:
        blocks = buffer.reshape(rows, groups, 17)
        done = 0
        while done < rows:
            expert, row = divmod(first + done, n_rows)
            count = min(rows - done, n_rows - row)
            _expert(source, expert, row, blocks[done : done + count], n_per_row, files)
            done += count

    return read


def _expert(source: Mxfp4, expert: int, row: int, blocks: Bytes, n_per_row: int, files: OpenFiles) -> None:
    weights, scales = source.experts[expert]
    rows, groups = blocks.shape[:2]
    packed = np.empty((rows, groups, MXFP4_GROUP // 2), np.uint8)
    factors = np.empty((rows, groups), np.uint8)
    files.fill(packed.reshape(-1), weights, row * n_per_row // 2, source.name)
    files.fill(factors.reshape(-1), scales, row * groups, source.name)
    if (factors == 0xFF).any():
        raise QuantizeError(f"tensor `{source.name}`: a scale is not a number")
    blocks[:, :, 0] = factors
    blocks[:, :, 1:] = _halves(packed)


_READERS: Final[dict[type, Callable[[Any, int, OpenFiles], Read]]] = {
    Stored: _stored,
    Made: _made,
    Patched: _patched,
    Fp8: _fp8,
    Nvfp4: _nvfp4,
    Mxfp4: _mxfp4,
}
