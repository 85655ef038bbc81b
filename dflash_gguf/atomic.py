"""Output files, written whole or not at all.

Comes in: a path and what fills it. Goes out: the file, by way of ``NAME.partial`` beside it, which is locked against a
second run, synced and renamed. A failure removes the partial file; one that a killed run left behind is taken over.
Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

READ: Final = frozenset({".json", ".safetensors", ".model", ".jinja", ".txt", ".pt"})
"""Endings of the files that are read of a model's folder."""


def check_out(out: Path, inputs: Iterable[Path] = (), *, force: bool) -> None:
    """Raise `OutputError` when ``out`` is an input or cannot become the output, before any work is done."""
    check_no_input(out, inputs)
    if out.is_dir():
        raise OutputError(f"`{out}` is a folder", expected="the name of a file")
    if out.exists() and not out.is_file():
        raise OutputError(f"`{out}` is no regular file", remedy="choose another name")
    if not out.parent.is_dir():
        raise OutputError(f"the folder `{out.parent}` does not exist")
    if os.path.lexists(out) and not force:
        raise OutputError(f"`{out}` exists already", remedy="pass `--force` to replace it")


def check_no_input(out: Path, inputs: Iterable[Path]) -> None:
    """Raise `OutputError` when ``out`` is one of ``inputs``; a folder stands for what a model's folder is read for."""
    if any(_is_read(place, path) for path in inputs for place in (out, _partial(out))):
        raise OutputError(f"`{out}` is one of the inputs", remedy="choose another name for the output")


def _is_read(place: Path, path: Path) -> bool:
    if not place.exists() or not path.exists():
        return False
    return place.samefile(path) or (path.is_dir() and place.suffix in READ and place.parent.samefile(path))


def _partial(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


@contextmanager
def replacing(out: Path, *, force: bool) -> Iterator[tuple[int, Path]]:
    """The descriptor and path of an empty partial file, which becomes ``out`` when the block ends well.

    Raises `OutputError` when ``out`` exists and ``force`` is false, or when it cannot be written.
    """
    check_out(out, force=force)
    partial = _partial(out)
    with failures(partial):
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        lock_named(fd, partial)
        try:
            with failures(partial):
                os.ftruncate(fd, 0)
            yield fd, partial
            with failures(partial):
                os.fsync(fd)
            _rename(partial, out, force=force)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    finally:
        os.close(fd)
    _sync_folder(out.parent)


def write_text(path: str | os.PathLike[str], text: str, *, force: bool = False) -> Path:
    """Write ``text`` as UTF-8 with its line ends as they are; returns the absolute path."""
    out = Path(path).absolute()
    with replacing(out, force=force) as (fd, partial):
        write_all(fd, partial, text.encode())
    return out


def write_all(fd: int, path: Path, data: bytes | memoryview) -> int:
    """Write every byte of ``data``; returns their number. Raises `OutputError` naming ``path``."""
    view, done = memoryview(data), 0
    while done < len(view):
        with failures(path):
            done += os.write(fd, view[done:])
    return done


def write_at(fd: int, path: Path, data: memoryview, offset: int) -> int:
    """Write every byte of ``data`` at ``offset``, from any thread; returns their number. Raises like `write_all`."""
    done = 0
    while done < len(data):
        with failures(path):
            done += os.pwrite(fd, data[done:], offset + done)
    return done


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turns an OSError into an `OutputError` that names ``path``."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"`{path}` could not be written: {_reason(error)}") from None


def _rename(partial: Path, out: Path, *, force: bool) -> None:
    if force:
        with failures(out):
            partial.replace(out)
        return
    try:
        os.link(partial, out)  # unlike a rename, this refuses a file that was made meanwhile
    except FileExistsError:
        raise OutputError(f"`{out}` was made meanwhile", remedy="pass `--force` to replace it") from None
    except OSError:
        # Some file systems have no links.
        with failures(out):
            partial.replace(out)
        return
    partial.unlink()


def lock(fd: int, path: Path) -> None:
    """Holds an open file or folder, which is ``path``, against a second run; raises `OutputError` when one has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(
            f"`{path}` is being written by another run", remedy="wait until it ends, or choose another place"
        ) from None
    except OSError as error:
        # Some network file systems have no locks; there the last of two runs wins.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise OutputError(f"`{path}` cannot be locked: {_reason(error)}") from None


def lock_named(fd: int, partial: Path) -> None:
    """As `lock`; raises `OutputError`, too, when ``partial`` is the name of another file by now."""
    lock(fd, partial)
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


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
