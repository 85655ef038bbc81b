"""One tensor at a time, from its sources into the output's blocks, through two buffers that are used again.

Comes in: a planned tensor. Goes out: slabs of finished bytes, in order. Knows nothing of the output file.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from dflash_gguf.convert.readers import opened
from dflash_gguf.convert.sources import KEPT
from dflash_gguf.ggml_types import row_bytes
from dflash_gguf.quantize.kernels import quantize_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dflash_gguf.convert.plan import PlannedTensor

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

        Raises `CheckpointError` when a file ends early, `QuantizeError` on a value that cannot be stored.
        """
        n_per_row, n_rows = tensor.shape[0], prod(tensor.shape[1:])
        src_row = row_bytes(tensor.source.type, n_per_row)
        dst_row = row_bytes(tensor.type, n_per_row)
        step = _rows_a_slab(tensor, src_row)
        self._grow(min(step, n_rows) * src_row, min(step, n_rows) * dst_row)
        with opened(tensor.source, n_per_row) as read:
            for first in range(0, n_rows, step):
                rows = min(step, n_rows - first)
                src = self._src[: rows * src_row]
                read(src, first, rows)
                if tensor.transform is not None:
                    src = _deinterleaved(src, tensor, tensor.transform.head_dim)
                yield self._finished(tensor, src, rows * dst_row).data

    def _finished(self, tensor: PlannedTensor, src: Bytes, nbytes: int) -> Bytes:
        if tensor.source.type in KEPT:
            return src
        dst = src if tensor.type == tensor.source.type else self._dst[:nbytes]
        quantize_rows(
            tensor.source.name,
            src,
            tensor.source.type,
            dst,
            tensor.type,
            n_per_row=tensor.shape[0],
            n_threads=self._n_threads,
        )
        return dst

    def _grow(self, src: int, dst: int) -> None:
        if self._src.size < src:
            self._src = np.empty(src, np.uint8)
        if self._dst.size < dst:
            self._dst = np.empty(dst, np.uint8)


def _rows_a_slab(tensor: PlannedTensor, src_row: int) -> int:
    unit = tensor.transform.head_dim if tensor.transform is not None else 1
    return max(1, SLAB // (src_row * unit)) * unit


def _deinterleaved(src: Bytes, tensor: PlannedTensor, head_dim: int) -> Bytes:
    """Rows of a matrix, or values of a vector: in each head the even ones first, then the odd."""
    vector = len(tensor.shape) == 1
    item = row_bytes(tensor.source.type, 1 if vector else tensor.shape[0])
    return np.ascontiguousarray(src.reshape(-1, head_dim // 2, 2, item).swapaxes(1, 2)).reshape(-1)
