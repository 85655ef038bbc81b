"""Folders for files that several tests of one run share."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path


def folder(name: str) -> Path:
    """A new folder for the rest of the run, where `tempfile` makes its own."""
    path = Path(tempfile.mkdtemp(prefix=f"test-{name}-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
