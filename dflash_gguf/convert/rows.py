"""One tensor at a time, from its file into the output's blocks, through two buffers that are used again.

Comes in: a planned tensor. Goes out: slabs of finished bytes, in order. Knows nothing of the output file.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from dflash_gguf.errors import CheckpointError
from dflash_gguf.ggml_types import row_bytes
from dflash_gguf.quantize.kernels import quantize_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dflash_gguf.convert.plan import PlannedTensor, Source

    Bytes = NDArray[np.uint8]

SLAB: Final = 4 << 20
"""Bytes of source that are read at once, few enough to stay in the cache; always whole rows (or whole heads)."""


class RowReader:
    """Holds the two buffers between tensors."""

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads
        self._src = np.empty(0, np.uint8)
        self._dst = np.empty(0, np.uint8)

    def slabs(self, tensor: PlannedTensor) -> Iterator[memoryview]:
        """Finished bytes of ``tensor``; each slab is valid until the next one is asked for.

        Raises `CheckpointError` when its file ends early, `QuantizeError` on a value that cannot be stored.
        """
        n_per_row, n_rows = tensor.shape[0], prod(tensor.shape[1:])
        src_row = row_bytes(tensor.source.type, n_per_row)
        dst_row = row_bytes(tensor.type, n_per_row)
        step = _rows_a_slab(tensor, src_row)
        self._grow(min(step, n_rows) * src_row, min(step, n_rows) * dst_row)
        with _opened(tensor.source) as fd:
            for first in range(0, n_rows, step):
                rows = min(step, n_rows - first)
                src = self._src[: rows * src_row]
                _fill(fd, src, tensor.source, first * src_row)
                if tensor.transform is not None:
                    src = _deinterleaved(src, tensor, tensor.transform.head_dim)
                dst = src if tensor.type == tensor.source.type else self._dst[: rows * dst_row]
                quantize_rows(
                    tensor.source.name,
                    src,
                    tensor.source.type,
                    dst,
                    tensor.type,
                    n_per_row=n_per_row,
                    n_threads=self._n_threads,
                )
                yield dst.data

    def _grow(self, src: int, dst: int) -> None:
        if self._src.size < src:
            self._src = np.empty(src, np.uint8)
        if self._dst.size < dst:
            self._dst = np.empty(dst, np.uint8)


def _rows_a_slab(tensor: PlannedTensor, src_row: int) -> int:
    unit = tensor.transform.head_dim if tensor.transform is not None else 1
    return max(1, SLAB // (src_row * unit)) * unit


@contextmanager
def _opened(source: Source) -> Iterator[int]:
    try:
        fd = os.open(source.file, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(source, error) from None
    try:
        yield fd
    finally:
        os.close(fd)


def _fill(fd: int, buffer: Bytes, source: Source, start: int) -> None:
    view, done = buffer.data, 0
    while done < len(view):
        try:
            count = os.preadv(fd, [view[done:]], source.offset + start + done)
        except OSError as error:
            raise _unreadable(source, error) from None
        if count == 0:
            raise CheckpointError(f"`{source.file}` ends inside tensor `{source.name}`")
        done += count


def _unreadable(source: Source, error: OSError) -> CheckpointError:
    return CheckpointError(f"`{source.file}` cannot be read: {(error.strerror or str(error)).lower()}")


def _deinterleaved(src: Bytes, tensor: PlannedTensor, head_dim: int) -> Bytes:
    """Rows of a matrix, or values of a vector: in each head the even ones first, then the odd."""
    values = prod(tensor.shape) if len(tensor.shape) == 1 else tensor.shape[1]
    item = tensor.source.nbytes // values
    return np.ascontiguousarray(src.reshape(-1, head_dim // 2, 2, item).swapaxes(1, 2)).reshape(-1)
