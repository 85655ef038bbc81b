"""Importance matrices as llama.cpp writes them: GGUF files, and the older binary ones.

Comes in: a path. Goes out: a frozen `Matrix`: for each tensor the mean square of each of its inputs. Knows nothing of
drafters. The arithmetic is upstream's, value for value.
Source: llama.cpp common/imatrix-loader.cpp; tools/quantize/quantize.cpp, ``load_imatrix`` (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from dflash_gguf.errors import QuantizeError
from dflash_gguf.file_text import shown
from dflash_gguf.files import regular_size
from dflash_gguf.ggml_types import F32
from dflash_gguf.gguf_header import read_header
from dflash_gguf.gguf_parser import MAGIC
from dflash_gguf.quantize.imatrix_legacy import read_legacy

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dflash_gguf.gguf_header import GGUFHeader

    Floats = NDArray[np.float32]

DATASETS: Final = "imatrix.datasets"
CHUNK_COUNT: Final = "imatrix.chunk_count"
CHUNK_SIZE: Final = "imatrix.chunk_size"
SUMS: Final = ".in_sum2"
COUNTS: Final = ".counts"
FILE_LIMIT: Final = 1 << 30
"""Bytes of an older file. A drafter's has a few MB, the largest target's some hundred."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Of one tensor. ``weights``: the mean squares, float32 of all its matrices' columns, one matrix after another.

    ``unused``: matrices, of how many, that no row went through: they have ones.
    """

    weights: Floats = field(repr=False, compare=False)
    unused: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A whole file; ``dataset`` is the text that it was measured on, by its maker's name."""

    path: Path
    entries: Mapping[str, Entry]
    dataset: str
    n_chunks: int


def read_imatrix(path: str | os.PathLike[str]) -> Matrix:
    """Raises `QuantizeError` or `GGUFError` for a file that is cut off, holds what is no number, or is none at all."""
    file = Path(path)
    try:
        size = regular_size(file)
        with file.open("rb") as opened:
            gguf = opened.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise QuantizeError(f"`{file}` cannot be read: {(error.strerror or str(error)).lower()}") from None
    if not gguf and size > FILE_LIMIT:
        raise QuantizeError(f"`{file}` is no importance matrix", value=size, expected=f"at most {FILE_LIMIT} bytes")
    found = _of_gguf(read_header(file)) if gguf else _of_legacy(file)
    if not found.entries:
        raise QuantizeError(f"the importance matrix `{file}` has no entries")
    return found


def _of_legacy(file: Path) -> Matrix:
    """One number of calls an entry, which its sums were multiplied by."""
    found = read_legacy(file)
    entries = {name: _normalized(str(file), name, sums, calls) for name, (sums, calls) in found.entries.items()}
    return Matrix(file, entries, found.dataset, found.n_chunks)


def _of_gguf(header: GGUFHeader) -> Matrix:
    for key in (DATASETS, CHUNK_COUNT, CHUNK_SIZE):
        if key not in header.keys:
            raise QuantizeError(f"`{header.name}` is no importance matrix: it has no key `{key}`")
    stems = {name.removesuffix(SUMS) for name in header.tensors if name.endswith(SUMS)}
    counted = {name.removesuffix(COUNTS) for name in header.tensors if name.endswith(COUNTS)}
    alone = sorted(stems ^ counted)
    if alone:
        raise QuantizeError(f"the importance matrix `{header.name}` has only sums or only counts of `{alone[0]}`")
    datasets = header.strings(DATASETS)
    entries = {stem: _entry(header, stem) for stem in sorted(stems)}
    return Matrix(Path(header.name), entries, datasets[0] if datasets else "", header.integer(CHUNK_COUNT))


def _entry(header: GGUFHeader, stem: str) -> Entry:
    sums, counts = (_floats(header, stem + suffix) for suffix in (SUMS, COUNTS))
    if not counts.size or sums.size % counts.size:
        raise _wrong(header.name, stem, f"{sums.size} sums of {counts.size} matrices")
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise _wrong(header.name, stem, "a count is negative or not finite")
    return _normalized(header.name, stem, sums, np.floor(counts + 0.5).astype(np.float32))


def _floats(header: GGUFHeader, name: str) -> Floats:
    info = header.tensors[name]
    if info.type != F32:
        raise _wrong(header.name, name, "its numbers are not F32")
    with Path(header.name).open("rb") as file:
        file.seek(header.data_offset + info.offset)
        return np.fromfile(file, "<f4", prod(info.shape))


def _normalized(name: str, stem: str, sums: Floats, counts: Floats) -> Entry:
    """Sums over counts; a matrix that nothing went through has ones, as upstream has it."""
    if not np.isfinite(sums).all() or (sums < 0).any():
        raise _wrong(name, stem, "a sum is negative or not finite")
    unused = int((counts == 0).sum())
    if unused == counts.size:
        raise _wrong(name, stem, "its counts are zero: nothing ever went through it")
    rows = sums.reshape(counts.size, -1)
    weights = np.ones_like(rows)
    np.divide(rows, counts[:, None], out=weights, where=counts[:, None] > 0)
    return Entry(weights.reshape(-1), (unused, counts.size))


def _wrong(name: str, stem: str, what: str) -> QuantizeError:
    return QuantizeError(f"the importance matrix `{name}`, entry `{shown(stem)}`: {what}")
