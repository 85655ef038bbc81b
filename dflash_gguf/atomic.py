"""Small text files, written whole or not at all.

Comes in: a path and a text. Goes out: the file, by way of a ``.partial`` beside it and a rename.
Knows nothing of what the text means.
"""

from __future__ import annotations

import os
from pathlib import Path

from dflash_gguf.errors import OutputError


def write_text(path: str | os.PathLike[str], text: str, *, force: bool = False) -> Path:
    """Write ``text`` as UTF-8 with its line ends as they are; returns the absolute path.

    Raises `OutputError` when ``path`` exists and ``force`` is false, or when it cannot be written.
    """
    out = Path(path).absolute()
    if out.is_dir():
        raise OutputError(f"`{out}` is a folder", expected="the name of a file")
    if not force and os.path.lexists(out):
        raise OutputError(f"`{out}` exists already", remedy="pass `--force` to replace it")
    partial = out.with_name(f"{out.name}.partial")
    try:
        _write_synced(partial, text.encode())
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"`{out}` could not be written: {reason}") from None
    return out


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
