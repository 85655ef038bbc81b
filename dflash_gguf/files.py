"""Input files: their size, once they were found to be files at all, and their bytes by offset.

Comes in: a path, or a file that lies elsewhere. Goes out: sizes and bytes. A pipe or a device would block a reader, or
never end. Knows nothing of where elsewhere is.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Elsewhere(Protocol):
    """A file that is not on this machine, of which ranges can be read; ``str()`` names it in messages."""

    @property
    def name(self) -> str:
        """The last part of its path."""

    @property
    def size(self) -> int:
        """Bytes in all."""

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer only at the end."""


File: TypeAlias = "Path | Elsewhere"


class FileSource:
    """A file of this machine, read by offset; raises OSError when it is missing or no regular file."""

    def __init__(self, path: Path) -> None:
        self.size = regular_size(path)
        self._fd = os.open(path, os.O_RDONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        return os.pread(self._fd, length, offset)


def opened(file: File) -> AbstractContextManager[FileSource | Elsewhere]:
    """The bytes of ``file``, wherever it lies."""
    return FileSource(file) if isinstance(file, Path) else nullcontext(file)


def regular_size(path: Path) -> int:
    """Bytes of ``path``; raises OSError when it is missing or no regular file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return status.st_size
