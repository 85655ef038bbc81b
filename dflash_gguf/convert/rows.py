"""A few rows at a time, from their source into the output's blocks.

Comes in: planned tensors. Goes out: slabs, and the finished bytes of one. Knows nothing of the output but where in it a
slab belongs. Threads may make slabs at the same time, each in two buffers of its own that are used again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from dflash_gguf.convert.encode import pad
from dflash_gguf.convert.readers import reader
from dflash_gguf.convert.sources import KEPT
from dflash_gguf.ggml_types import row_bytes
from dflash_gguf.quantize.kernels import quantize_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from dflash_gguf.convert.open_files import OpenFiles
    from dflash_gguf.convert.planned import PlannedTensor
    from dflash_gguf.convert.readers import Read

    Bytes = NDArray[np.uint8]

SLAB: Final = 2 << 20
"""Bytes of source that are read at once, few enough to stay in the cache; always whole rows (or whole heads)."""


@dataclass(frozen=True, slots=True)
class Slab:
    """Rows ``first`` to ``first + rows`` of a tensor; ``offset`` is where their bytes begin in the output.

    ``importance``: float32 [n_per_row], how much each of their columns matters.
    """

    tensor: PlannedTensor
    read: Read
    first: int
    rows: int
    offset: int
    importance: NDArray[np.float32] | None


def slabs(tensors: Iterable[PlannedTensor], start: int, files: OpenFiles) -> Iterator[Slab]:
    """Every row of every tensor, in the output's order; the data of the first tensor begins at ``start``."""
    for tensor in tensors:
        n_per_row, n_rows = tensor.shape[0], prod(tensor.shape[1:])
        read, step = reader(tensor.source, n_per_row, files), _rows_a_slab(tensor)
        # Where each matrix has weights of its own, no slab reaches into the next.
        weights = [None] if tensor.importance is None else list(tensor.importance)
        a_matrix = n_rows // len(weights)
        for matrix, importance in enumerate(weights):
            for first in range(matrix * a_matrix, (matrix + 1) * a_matrix, step):
                offset = start + first * row_bytes(tensor.type, n_per_row)
                rows = min(step, (matrix + 1) * a_matrix - first)
                yield Slab(tensor, read, first, rows, offset, importance)
        start += pad(tensor.nbytes)


class RowMaker:
    """Makes slabs, in as many threads as call it; at most ``n_threads`` of them quantize at a time."""

    def __init__(self, n_threads: int) -> None:
        self._cores = threading.BoundedSemaphore(n_threads)
        self._buffers = threading.local()

    def make(self, slab: Slab) -> memoryview:
        """The finished bytes, valid until this thread makes another slab.

        Raises `CheckpointError` when a file ends early, `QuantizeError` on a value that cannot be stored.
        """
        tensor, n_per_row = slab.tensor, slab.tensor.shape[0]
        src = self._buffer("src", slab.rows * row_bytes(tensor.source.type, n_per_row))
        slab.read(src, slab.first, slab.rows)
        if tensor.transform is not None:
            src = _deinterleaved(src, tensor, tensor.transform.head_dim)
        same = tensor.type == tensor.source.type
        if same and tensor.type in KEPT:
            return src.data
        dst = src if same else self._buffer("dst", slab.rows * row_bytes(tensor.type, n_per_row))
        with self._cores:
            quantize_rows(
                tensor.source.name,
                src,
                tensor.source.type,
                dst,
                tensor.type,
                n_per_row=n_per_row,
                n_threads=1,
                importance=slab.importance,
            )
        return dst.data

    def _buffer(self, name: str, nbytes: int) -> Bytes:
        """One of this thread's two buffers; only its first bytes are used when it is larger."""
        buffer: Bytes | None = getattr(self._buffers, name, None)
        if buffer is None or buffer.size < nbytes:
            buffer = np.empty(nbytes, np.uint8)
            setattr(self._buffers, name, buffer)
        return buffer[:nbytes]


def _rows_a_slab(tensor: PlannedTensor) -> int:
    unit = tensor.transform.head_dim if tensor.transform is not None else 1
    return max(1, SLAB // (row_bytes(tensor.source.type, tensor.shape[0]) * unit)) * unit


def _deinterleaved(src: Bytes, tensor: PlannedTensor, head_dim: int) -> Bytes:
    """Rows of a matrix, or values of a vector: in each head the even ones first, then the odd."""
    vector = len(tensor.shape) == 1
    item = row_bytes(tensor.source.type, 1 if vector else tensor.shape[0])
    return np.ascontiguousarray(src.reshape(-1, head_dim // 2, 2, item).swapaxes(1, 2)).reshape(-1)
