"""The thin writer: a plan and the old file become the new file, whole or not at all.

Comes in: a plan and two paths. Goes out: the file; `dflash_gguf.atomic` sees to its coming about. Tensor data is
copied in pieces of a few MiB, byte for byte.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from dflash_gguf import atomic
from dflash_gguf.convert.encode import pad
from dflash_gguf.errors import GGUFError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dflash_gguf.rekeying.plan import RekeyPlan

    Progress = Callable[[int, int], None]

CHUNK: Final = 4 << 20


def write_rekeyed(plan: RekeyPlan, old: Path, out: Path, *, force: bool, progress: Progress | None = None) -> int:
    """Write the new file; returns its bytes. ``progress`` gets bytes done and bytes in all.

    Raises `OutputError` when it cannot be written, `GGUFError` when ``old`` cannot be read or is no longer the file
    that was planned for.
    """
    report = progress or _silent
    with _opened(old, plan) as source, atomic.replacing(out, force=force) as (fd, partial):
        done = 0
        for piece in _pieces(source, old, plan):
            done += atomic.write_all(fd, partial, piece)
            report(done, plan.n_bytes)
        if done != plan.n_bytes:
            raise OutputError(f"bytes written to `{partial}`", value=done, expected=str(plan.n_bytes))
    return done


def _pieces(source: int, old: Path, plan: RekeyPlan) -> Iterator[bytes]:
    if not plan.changed:
        yield from _span(source, old, 0, plan.n_bytes)
        return
    yield plan.header
    for tensor in plan.tensors:
        yield from _span(source, old, tensor.source, tensor.nbytes)
        yield bytes(pad(tensor.nbytes) - tensor.nbytes)


def _span(source: int, old: Path, start: int, nbytes: int) -> Iterator[bytes]:
    end = start + nbytes
    while start < end:
        with _readable(old):
            piece = os.pread(source, min(CHUNK, end - start), start)
        if not piece:
            raise GGUFError(f"`{old}` ends at byte {start}", expected=f"at least {end}")
        start += len(piece)
        yield piece


@contextmanager
def _opened(old: Path, plan: RekeyPlan) -> Iterator[int]:
    with _readable(old):
        fd = os.open(old, os.O_RDONLY)
    try:
        size, blob = os.fstat(fd).st_size, plan.source.blob
        if size != plan.source.size or b"".join(_span(fd, old, 0, len(blob))) != blob:
            raise GGUFError(f"`{old}` was changed while it was read")
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _readable(old: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise GGUFError(f"`{old}` cannot be read: {(error.strerror or str(error)).lower()}") from None


def _silent(_done: int, _total: int) -> None:
    return
