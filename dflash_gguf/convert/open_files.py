"""The files of a conversion, each opened once and read at any place by any thread.

Comes in: spans of files. Goes out: their bytes in a buffer. Knows nothing of tensors beyond the name in an error.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Self

from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dflash_gguf.convert.sources import Span


class OpenFiles:
    """Opens a file when it is first read; all are closed at the end of the block."""

    def __init__(self) -> None:
        self._opened: dict[Path, int] = {}
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._opened:
            os.close(self._opened.popitem()[1])

    def fill(self, buffer: NDArray[np.uint8], span: Span, start: int, name: str) -> None:
        """Bytes of ``span`` from ``start`` on, as many as ``buffer`` (uint8, one dimension) holds.

        Raises `CheckpointError` when the file cannot be read or ends early; ``name`` is the tensor's.
        """
        view, done = buffer.data, 0
        if not isinstance(span.file, Path):
            raise CheckpointError(f"`{span.file}` is not here", expected="a file that was downloaded")
        try:
            fd = self._descriptor(span.file)
            while done < len(view):
                count = os.preadv(fd, [view[done:]], span.offset + start + done)
                if count == 0:
                    raise CheckpointError(f"`{span.file}` ends inside tensor `{name}`")
                done += count
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CheckpointError(f"`{span.file}` cannot be read: {reason}") from None

    def _descriptor(self, path: Path) -> int:
        with self._lock:
            if path not in self._opened:
                self._opened[path] = os.open(path, os.O_RDONLY)
            return self._opened[path]
