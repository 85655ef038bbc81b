"""The thin writer: a plan becomes a file, whole or not at all.

Comes in: a plan and a path. Goes out: the file; `dflash_gguf.atomic` sees to its coming about.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from dflash_gguf import atomic
from dflash_gguf.convert.encode import pad
from dflash_gguf.convert.in_order import in_order
from dflash_gguf.convert.open_files import OpenFiles
from dflash_gguf.convert.rows import RowMaker, Slab, slabs
from dflash_gguf.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dflash_gguf.convert.planned import Plan, PlannedTensor

    Progress = Callable[[int, int], None]


def write_plan(plan: Plan, out: Path, *, force: bool, n_threads: int, progress: Progress | None = None) -> int:
    """Write ``plan`` to ``out``; returns the bytes written. ``progress`` gets bytes done and bytes in all.

    Raises `OutputError` when the file cannot be written, and whatever reading the checkpoint raises.
    """
    with atomic.replacing(out, force=force) as (fd, partial):
        written = write_tensors(fd, partial, plan.header, plan.tensors, n_threads, progress)
        if written != plan.n_bytes:
            raise OutputError(f"bytes written to `{partial}`", value=written, expected=str(plan.n_bytes))
    return written


def write_tensors(
    fd: int,
    path: Path,
    header: bytes,
    tensors: Sequence[PlannedTensor],
    n_threads: int,
    progress: Progress | None = None,
) -> int:
    """Write ``header`` and, behind it, ``tensors`` to the empty file ``fd``; returns the bytes written.

    Each thread reads, quantizes and writes rows of its own; there is one more than may quantize at a time. ``path`` is
    for messages. Raises what `write_plan` does.
    """
    told, maker = progress or _silent, RowMaker(n_threads)
    total = len(header) + sum(pad(tensor.nbytes) for tensor in tensors)
    done = atomic.write_all(fd, path, header)
    with atomic.failures(path):
        os.ftruncate(fd, total)  # what is not written between two tensors is zero
    told(done, total)

    def write(slab: Slab) -> int:
        return atomic.write_at(fd, path, maker.make(slab), slab.offset)

    # Closed on every way out: no thread may write once the file is.
    with OpenFiles() as files, closing(in_order(write, slabs(tensors, done, files), n_threads + 1)) as results:
        for written in results:
            done += written
            told(done, total)
    done += sum(pad(tensor.nbytes) - tensor.nbytes for tensor in tensors)
    told(done, total)
    return done


def _silent(_done: int, _total: int) -> None:
    return
