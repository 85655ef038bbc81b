"""A large file on its way into the cache, which a later run goes on with where an earlier one was stopped.

Comes in: a file on the hub, and the place of its blob. Goes out: the blob, its SHA-256 checked. huggingface_hub itself
goes on after a lost connection, but starts over in a new process. Knows nothing of snapshots.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from dflash_gguf.errors import HubError

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_gguf.hub.ranges import RemoteFile

ENDING: Final = ".dflash-gguf.partial"
SLAB: Final = 4 << 20


def fetch_blob(file: RemoteFile, blob: Path) -> None:
    """Download ``file`` to ``blob`` unless it is there; raises `HubError`, and OSError when the disk is full.

    What has come stays in a file beside it, locked against a second run, until it is whole.
    """
    if blob.exists():
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    partial = blob.with_name(blob.name + ENDING)
    _check_space(file, file.size - (partial.stat().st_size if partial.exists() else 0), blob.parent)
    with partial.open("ab+") as out:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(out, fcntl.LOCK_EX)
        if blob.exists():  # the run that was waited for has brought it
            partial.unlink(missing_ok=True)
            return
        _append(file, out)
        out.flush()
        os.fsync(out.fileno())
        if _digest(out) != file.file.oid:
            out.truncate(0)
            raise HubError(f"`{file}` came damaged: its SHA-256 is another", remedy="try again")
        partial.replace(blob)


def _append(file: RemoteFile, out: BinaryIO) -> None:
    from tqdm import tqdm

    have = out.seek(0, os.SEEK_END)
    if have > file.size:
        have = out.truncate(0)
    with tqdm(
        desc=file.name, total=file.size, initial=have, unit="B", unit_scale=True, disable=None, leave=False
    ) as bar:

        def take(chunk: bytes) -> None:
            out.write(chunk)
            bar.update(len(chunk))

        file.stream(have, file.size - have, take)


def _check_space(file: RemoteFile, missing: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise HubError(
            f"`{file}` does not fit on the disk of `{folder}`",
            value=f"{free / 1e6:.1f} MB free",
            expected=f"{missing / 1e6:.1f} MB",
            remedy="free some space, or choose another folder for downloads with HF_HUB_CACHE or LLAMA_CACHE",
        )


def _digest(out: BinaryIO) -> str:
    digest = hashlib.sha256()
    out.seek(0)
    while slab := out.read(SLAB):
        digest.update(slab)
    return digest.hexdigest()
