"""What the caches of a corpus were made of, and whether that is what is asked for now.

Comes in: files and values. Goes out: descriptions to compare, or an error that names what differs. Knows nothing of
what the caches hold.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.atomic import failures, lock, lock_named
from dflash_gguf.errors import TrainError, brief
from dflash_gguf.files import FileSource
from dflash_gguf.shards import shards_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dflash_gguf.gguf_header import GGUFHeader

VERSION: Final = 2
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 1 << 16


def fingerprint(header: GGUFHeader) -> str:
    """Of each file of a model its size and a digest of `_SAMPLES` pieces spread over it, first and last among them.

    Every quantization of a model differs in all of its pieces; reading 20 GB to know that would take longer than many a
    use of the cache.
    """
    return " ".join(_fingerprint(path) for path, _ in shards_of(Path(header.name), header))


def _fingerprint(path: Path) -> str:
    with failures_reading(path), FileSource(path) as file:
        last = max(0, file.size - _SAMPLE_BYTES)
        places = sorted({last * i // (_SAMPLES - 1) for i in range(_SAMPLES)})
        digest = hashlib.sha256()
        for place in places:
            digest.update(file.read(place, _SAMPLE_BYTES))
    return f"{file.size}:{digest.hexdigest()[:32]}"


def digest_of(*parts: bytes | memoryview) -> str:
    """A digest of bytes, for comparing."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:32]


ANEW: Final = "choose another folder, or remove the file to make it anew"


def check_same(path: Path, found: object, asked: Mapping[str, Any], remedy: str = ANEW) -> None:
    """Raises TrainError naming the first value by which the cache ``path`` was made otherwise."""
    if not isinstance(found, dict) or found.get("kind") != asked["kind"]:
        raise TrainError(f"`{path}` is no cache of {asked['kind']}", remedy="choose another folder")
    check_equal(path, found, asked, remedy)


def check_start(path: Path, data: bytes, kind: str) -> None:
    """Raises TrainError when ``data``, a header that was cut off somewhere, is none of a cache of ``kind``."""
    start = json.dumps({"kind": kind})[:-1].encode()
    if data[: len(start)] != start[: len(data)]:
        check_same(path, None, {"kind": kind})


def check_equal(path: Path, found: Mapping[str, Any], asked: Mapping[str, Any], remedy: str) -> None:
    """Raises TrainError naming the first value of ``asked`` by which ``path`` was made otherwise."""
    for name, value in asked.items():
        if found.get(name) != value:
            raise TrainError(
                f"`{path}` was made with another `{name}`",
                value=brief(found.get(name)),
                expected=str(brief(value)),
                remedy=remedy,
            )


@contextmanager
def failures_reading(path: Path) -> Iterator[None]:
    """Turns an OSError into a TrainError that names ``path``."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TrainError(f"`{path}` cannot be read: {reason}", remedy="check the path") from None


@contextmanager
def appending(path: Path, *, there: bool = False) -> Iterator[int]:
    """The descriptor of a file that is made or goes on, locked against a second run, and synced at the end.

    ``there``: it was seen, and is not made when it is gone.
    """
    with failures(path):
        fd = os.open(path, os.O_RDWR | (0 if there else os.O_CREAT) | os.O_NOFOLLOW, 0o666)
    try:
        lock_named(fd, path)
        try:
            yield fd
        finally:
            with failures(path):
                os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Holds ``folder`` against a second run that would do the same there."""
    with failures(folder):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock(fd, folder)
        yield
    finally:
        os.close(fd)
