"""Input files: their size, once they were found to be files at all.

Comes in: a path. Goes out: a size in bytes. A pipe or a device would block a reader, or never end.
"""

from __future__ import annotations

import errno
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def regular_size(path: Path) -> int:
    """Bytes of ``path``; raises OSError when it is missing or no regular file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return status.st_size
