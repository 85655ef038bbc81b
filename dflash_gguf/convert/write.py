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
    from collections.abc import Callable
    from pathlib import Path

    from dflash_gguf.convert.planned import Plan

    Progress = Callable[[int, int], None]


def check_out(out: Path, inputs: set[Path], *, force: bool) -> None:
    """Raise `OutputError` when ``out`` cannot become the output, before any work is done."""
    atomic.check_out(out, force=force)
    if out.exists() and any(path.exists() and out.samefile(path) for path in inputs):
        raise OutputError(f"`{out}` is one of the inputs", remedy="choose another name for the output")


def write_plan(plan: Plan, out: Path, *, force: bool, n_threads: int, progress: Progress | None = None) -> int:
    """Write ``plan`` to ``out``; returns the bytes written. ``progress`` gets bytes done and bytes in all.

    Raises `OutputError` when the file cannot be written, and whatever reading the checkpoint raises.
    """
    with atomic.replacing(out, force=force) as (fd, partial):
        written = _write_all(fd, partial, plan, n_threads, progress or _silent)
        if written != plan.n_bytes:
            raise OutputError(f"bytes written to `{partial}`", value=written, expected=str(plan.n_bytes))
    return written


def _write_all(fd: int, partial: Path, plan: Plan, n_threads: int, progress: Progress) -> int:
    """Each thread reads, quantizes and writes rows of its own; there is one more than may quantize at a time."""
    total, maker = plan.n_bytes, RowMaker(n_threads)
    done = atomic.write_all(fd, partial, plan.header)
    with atomic.failures(partial):
        os.ftruncate(fd, total)  # what is not written between two tensors is zero
    progress(done, total)

    def write(slab: Slab) -> int:
        return atomic.write_at(fd, partial, maker.make(slab), slab.offset)

    # Closed on every way out: no thread may write once the file is.
    with OpenFiles() as files, closing(in_order(write, slabs(plan.tensors, done, files), n_threads + 1)) as results:
        for written in results:
            done += written
            progress(done, total)
    done += sum(pad(tensor.nbytes) - tensor.nbytes for tensor in plan.tensors)
    progress(done, total)
    return done


def _silent(_done: int, _total: int) -> None:
    return
