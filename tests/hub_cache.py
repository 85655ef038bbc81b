"""A hub's cache on disk as huggingface_hub and llama.cpp lay it out, without a hub.

Comes in: a folder, and repositories as tables of bytes. Goes out: refs, blobs, and a snapshot of links to them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_repo(
    cache: Path, repo: str, files: Mapping[str, bytes], commit: str = COMMIT, ref: str | None = "main"
) -> Path:
    """Adds a commit of ``repo``, named by ``ref``; returns its snapshot."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    if ref is not None:
        (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / ref).write_text(commit, encoding="ascii")
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    snapshot = folder / "snapshots" / commit
    for path, data in files.items():
        blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        link = snapshot / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return snapshot
