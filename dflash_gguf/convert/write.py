"""The thin writer: a plan becomes a file, whole or not at all.

Comes in: a plan and a path. Goes out: the file. It is written as NAME.partial, synced and renamed; a failure
removes the partial file, and one that a killed run left behind is taken over.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dflash_gguf.convert.encode import pad
from dflash_gguf.convert.rows import RowReader
from dflash_gguf.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dflash_gguf.convert.plan import Plan

    Progress = Callable[[int, int], None]


def check_out(out: Path, inputs: set[Path], *, force: bool) -> None:
    """Raise `OutputError` when ``out`` cannot become the output, before any work is done."""
    if out.is_dir():
        raise OutputError(f"`{out}` is a folder", expected="the name of a file")
    if not out.parent.is_dir():
        raise OutputError(f"the folder `{out.parent}` does not exist")
    if os.path.lexists(out) and not force:
        raise OutputError(f"`{out}` exists already", remedy="pass `--force` to replace it")
    if out.exists() and any(path.exists() and out.samefile(path) for path in inputs):
        raise OutputError(f"`{out}` is one of the inputs", remedy="choose another name for the output")


def write_plan(plan: Plan, out: Path, *, force: bool, n_threads: int, progress: Progress | None = None) -> int:
    """Write ``plan`` to ``out``; returns the bytes written. ``progress`` gets bytes done and bytes in all.

    Raises `OutputError` when the file cannot be written, and whatever reading the checkpoint raises.
    """
    partial = out.with_name(f"{out.name}.partial")
    with _partial_file(partial) as fd:
        written = _write_all(fd, partial, plan, n_threads, progress or _silent)
        if written != plan.n_bytes:
            raise OutputError(f"bytes written to `{partial}`", value=written, expected=str(plan.n_bytes))
        with _failures(partial):
            os.fsync(fd)
        if os.path.lexists(out) and not force:
            raise OutputError(f"`{out}` was made meanwhile", remedy="pass `--force` to replace it")
        with _failures(out):
            partial.replace(out)
    _sync_folder(out.parent)
    return written


def _write_all(fd: int, partial: Path, plan: Plan, n_threads: int, progress: Progress) -> int:
    total, reader = plan.n_bytes, RowReader(n_threads)
    done = _write(fd, partial, plan.header)
    progress(done, total)
    for tensor in plan.tensors:
        for slab in reader.slabs(tensor):
            done += _write(fd, partial, slab)
            progress(done, total)
        done += _write(fd, partial, bytes(pad(tensor.nbytes) - tensor.nbytes))
    progress(done, total)
    return done


def _write(fd: int, partial: Path, data: bytes | memoryview) -> int:
    view, done = memoryview(data), 0
    while done < len(view):
        with _failures(partial):
            done += os.write(fd, view[done:])
    return done


@contextmanager
def _partial_file(partial: Path) -> Iterator[int]:
    """An empty file, locked against a second run; removed on any failure."""
    with _failures(partial):
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _lock(fd, partial)
        try:
            with _failures(partial):
                os.ftruncate(fd, 0)
            yield fd
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    finally:
        os.close(fd)


def _lock(fd: int, partial: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(f"`{partial}` is being written by another run") from None
    except OSError as error:
        # Some network file systems have no locks; there the last of two runs wins.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise OutputError(f"`{partial}` cannot be locked: {_reason(error)}") from None
    if not partial.exists() or os.fstat(fd).st_ino != partial.stat().st_ino:
        # The other run renamed the file between our opening and our locking it: it is its output now.
        raise OutputError(f"`{partial}` was just finished by another run")


def _sync_folder(folder: Path) -> None:
    # Not every folder can be opened and synced; the file itself is on disk.
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def _failures(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"`{path}` could not be written: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _silent(_done: int, _total: int) -> None:
    return
