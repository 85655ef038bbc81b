"""An importance matrix from real drafting, in llama.cpp's own form, so that llama-quantize takes it too.

Comes in: a target, its drafter, a text. Goes out: a file: for each matrix of the drafter that something was multiplied
with, the sums of squares of what that was, and how many rows it were.
Source: llama.cpp tools/imatrix/imatrix.cpp, ``save_imatrix`` (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

import numpy as np

from dflash_gguf import atomic
from dflash_gguf.convert.encode import array, encode_header, pad, scalar
from dflash_gguf.errors import QuantizeError
from dflash_gguf.ggml_types import F32
from dflash_gguf.gguf_header import read_header
from dflash_gguf.quantize.imatrix import CHUNK_COUNT, CHUNK_SIZE, COUNTS, DATASETS, SUMS
from dflash_gguf.runner.along import Text, draft_along
from dflash_gguf.runner.settings import SessionOptions, Settings
from dflash_gguf.schema import BLOCK_LIMIT, Keys

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from dflash_gguf._core import Activations
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.along import Counts

DEFAULT_OUT: Final = "imatrix.gguf"


@dataclass(frozen=True, slots=True)
class Made:
    """What `make_imatrix` wrote. ``names`` are the tensors that it has entries for, ``unseen`` the other matrices.

    ``unused``: of experts, how many never came to their turn.
    """

    path: Path
    n_bytes: int
    drafted: Counts
    names: tuple[str, ...]
    unseen: tuple[str, ...]
    unused: int


def make_imatrix(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    text: Text,
    out: str | os.PathLike[str] = DEFAULT_OUT,
    *,
    dataset: str = "",
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[SessionOptions],
) -> Made:
    """Draft along ``text`` and write the matrix to ``out``; ``dataset`` is what the file calls the text.

    ``options`` are those of `Session`, the context's length apart. ``progress`` gets tokens done and tokens in all.
    Raises PairError or SessionError when the pair does not run, OutputError when the file cannot be written.
    """
    from dflash_gguf import _core

    path = Path(out).absolute()
    atomic.check_out(path, {Path(target), Path(draft)}, force=force)
    header = read_header(draft)
    activations = _core.Activations()
    for name, shape in _matrices(header):
        activations.add(name, shape[0], prod(shape[2:]))
    behind = header.integer(Keys.BLOCK_SIZE, BLOCK_LIMIT) + 1
    settings = replace(Settings.of(options), n_ctx=text.chunk + behind)
    drafted = draft_along(target, draft, text, settings, activations, progress)
    entries = {name: _entry(activations, name) for name, _ in sorted(_matrices(header))}
    seen = {name: entry for name, entry in entries.items() if entry[1].any()}
    if not seen:
        raise QuantizeError("nothing ran through the drafter's matrices", remedy="report this, with the drafter's name")
    n_bytes = _write(path, seen, dataset, drafted.n_chunks, text.chunk, force=force)
    unused = sum(int((counts == 0).sum()) for _, counts in seen.values())
    return Made(path, n_bytes, drafted, tuple(seen), tuple(name for name in entries if name not in seen), unused)


def _matrices(header: GGUFHeader) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Every tensor that may be multiplied with; a file may leave the ones at the end of a shape out."""
    tensors = header.tensors.items()
    return [(name, info.shape) for name, info in tensors if name.endswith(".weight") and len(info.shape) > 1]


def _entry(activations: Activations, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Sums, float32 [n_matrices, n_per_row], and counts, float32 [n_matrices]."""
    return activations.sums(name), np.array(activations.counts(name), np.float32)


def _write(
    path: Path,
    entries: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]],
    dataset: str,
    n_chunks: int,
    chunk: int,
    *,
    force: bool,
) -> int:
    keys = (
        scalar("general.type", "string", "imatrix"),
        array(DATASETS, "string", [dataset]),
        scalar(CHUNK_COUNT, "uint32", n_chunks),
        scalar(CHUNK_SIZE, "uint32", chunk),
    )
    rows, blobs, offset = [], [], 0
    for name, (sums, counts) in entries.items():
        for suffix, values in ((SUMS, sums), (COUNTS, counts[:, None])):
            blob = np.ascontiguousarray(values, "<f4").tobytes()
            rows.append((name + suffix, _shape(values), F32, offset))
            blobs.append(blob + bytes(pad(len(blob)) - len(blob)))
            offset += len(blobs[-1])
    with atomic.replacing(path, force=force) as (fd, partial):
        return sum(atomic.write_all(fd, partial, piece) for piece in (encode_header(keys, rows), *blobs))


def _shape(values: NDArray[np.float32]) -> tuple[int, ...]:
    """In ggml's order, without the ones at its end."""
    n_matrices, n_per_row = values.shape
    return (n_per_row, n_matrices) if n_matrices > 1 else (n_per_row,)
