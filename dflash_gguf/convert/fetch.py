"""Weights that lie elsewhere, brought here before they are read: whole files into the cache, or just what is needed.

Comes in: a plan. Goes out: the same plan over files of this machine. A drafter's file of which most is needed is
downloaded whole, into the cache; of any other file, a target's above all, exactly the tensors that are needed are
fetched, into a folder that is there as long as the conversion.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.atomic import failures
from dflash_gguf.convert.sources import Span, moved
from dflash_gguf.hub.ranges import RemoteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dflash_gguf.convert.inputs import Inputs
    from dflash_gguf.convert.planned import Plan
    from dflash_gguf.convert.write import Progress
    from dflash_gguf.files import File

MOST: Final = 0.5
"""Share of a drafter's file from which on it is downloaded whole."""


def with_weights(inputs: Inputs, plan: Plan) -> Inputs:
    """Download the drafter's files that ``plan`` needs most of; raises `HubError`."""
    if inputs.shards is None:
        return inputs
    needed: Counter[File] = Counter()
    for span in plan.spans:
        needed[span.file] += span.nbytes
    shards = {
        path: file.here() if isinstance(file, RemoteFile) and needed[file] >= MOST * file.size else file
        for path, file in inputs.shards.items()
    }
    return replace(inputs, shards=shards)


@contextmanager
def fetched(plan: Plan, out: Path, progress: Progress | None) -> Iterator[tuple[Plan, Progress | None]]:
    """The plan over files of this machine; what is fetched for it lies in a folder beside ``out`` meanwhile.

    ``progress`` is called with bytes and bytes in all; the one that comes out counts on from there. Raises `HubError`
    and `OutputError`.
    """
    spans = {span: span.file for span in plan.spans if isinstance(span.file, RemoteFile)}
    if not spans:
        yield plan, progress
        return
    goal = sum(span.nbytes for span in spans)
    with _folder(out) as folder:
        counted = _Counted(progress, goal + plan.n_bytes)
        places = {
            span: Span(_fetch(file, span, folder / str(number), counted.add), 0, span.nbytes)
            for number, (span, file) in enumerate(spans.items())
        }
        tensors = (replace(t, source=moved(t.source, lambda span: places.get(span, span))) for t in plan.tensors)
        yield replace(plan, tensors=tuple(tensors)), lambda done, _total: counted.at(goal + done)


@contextmanager
def _folder(out: Path) -> Iterator[Path]:
    with failures(out.parent):
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(file: RemoteFile, span: Span, place: Path, came: Callable[[int], None]) -> Path:
    with failures(place), place.open("xb") as out:

        def take(chunk: bytes) -> None:
            out.write(chunk)
            came(len(chunk))

        file.stream(span.offset, span.nbytes, take)
    return place


class _Counted:
    """Bytes so far, told to ``progress``."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        self.at(self._done + count)

    def at(self, done: int) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(done, self._total)
