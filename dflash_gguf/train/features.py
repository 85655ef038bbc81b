"""The inputs of the target's tapped layers along each answer, on disk: what the loop would inject there.

Comes in: answers and a GGUF target. Goes out: a file of BF16 rows, mapped into memory. They come from the core that the
loop runs on. BF16 keeps the range of float32, which features need that are thousands of times their median, and its
eight bits are what training rounds them to in its first product anyway.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dflash_gguf.atomic import failures, write_all
from dflash_gguf.errors import TrainError
from dflash_gguf.facts import target_facts
from dflash_gguf.runner.along import Reader
from dflash_gguf.runner.assembly import opened
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.models import Model
from dflash_gguf.train.bf16 import narrowed
from dflash_gguf.train.cache import VERSION, appending, check_same, failures_reading, fingerprint
from dflash_gguf.train.shape import check_taps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.train.answers import Answers
    from dflash_gguf.train.settings import CorpusSettings

NAME: Final = "features.bf16"
PARTIAL: Final = f"{NAME}.partial"
KIND: Final = "features"
HEADER_BYTES: Final = 4096
"""What the rows were made with, as JSON and spaces; rows begin behind it, at a page."""
BYTES: Final = 2
"""Of a number."""


def capture(
    target: Path,
    header: GGUFHeader,
    answers: Answers,
    folder: Path,
    taps: Sequence[int],
    settings: CorpusSettings,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.uint16]:
    """`NAME` in ``folder``, made or gone on with: BF16 as uint16 [tokens, n_taps * n_embd], mapped.

    ``taps`` are layers whose outputs are kept, from 0. ``progress`` gets tokens done and tokens in all. A file along
    the first of ``answers`` is gone on with. Raises TrainError when it was made with something else, SessionError when
    libllama refuses, OutputError when it cannot be written; what is there of it is gone on with next time.
    """
    check_taps(header, taps)
    width = len(taps) * (target_facts(header).hidden_size or 0)
    path = folder / NAME
    made_with = _MadeWith(fingerprint(header), answers, tuple(taps), width)
    if path.exists():
        n_there = made_with.check(path, _read_header(path))
        rows = _mapped(path, len(answers.first(n_there).ids), width)
        if n_there == len(answers):
            return rows
        with failures(path):
            path.replace(path.with_name(PARTIAL))
    _make(_Source(target, tuple(tap + 1 for tap in taps), settings), path, made_with, progress)
    return _mapped(path, len(answers.ids), width)


def n_answers(folder: Path) -> int:
    """Along how many answers the whole file in ``folder`` goes; 0 when there is none."""
    path = folder / NAME
    found = _read_header(path) if path.is_file() else None
    n = found.get("n_answers") if isinstance(found, dict) else 0
    return n if isinstance(n, int) else 0


@dataclass(frozen=True, slots=True)
class _MadeWith:
    """What the rows of a file are made with."""

    target: str
    answers: Answers
    taps: tuple[int, ...]
    width: int

    def values(self, n: int) -> dict[str, Any]:
        """Of a file along the first ``n`` answers."""
        part = self.answers.first(n)
        return {
            "kind": KIND,
            "version": VERSION,
            "target": self.target,
            "taps": list(self.taps),
            "n_answers": n,
            "answers": part.digest,
            "shape": [len(part.ids), self.width],
        }

    def header(self) -> bytes:
        """Of the file along all answers."""
        return json.dumps(self.values(len(self.answers))).encode().ljust(HEADER_BYTES - 1) + b"\n"

    def check(self, path: Path, found: object) -> int:
        """Along how many of the answers the file goes; raises TrainError when it is a file of something else."""
        n = found.get("n_answers") if isinstance(found, dict) else None
        n = n if isinstance(n, int) and 0 < n <= len(self.answers) else len(self.answers)
        check_same(path, found, self.values(n))
        return n


@dataclass(frozen=True, slots=True)
class _Source:
    """``layers`` are those whose inputs are read, in GGUF's numbering."""

    target: Path
    layers: tuple[int, ...]
    settings: CorpusSettings

    def rows(self, texts: Sequence[NDArray[np.int32]]) -> Iterator[NDArray[np.float32]]:
        """Features float32 [tokens, n_features] along each text, the target read anew for each."""
        longest = max(map(len, texts))
        with ExitStack() as stack:
            model = opened(stack, Model(self.target, self.settings.session.placement))
            reader = Reader.opened(
                stack, model, Drafting(layers=self.layers), replace(self.settings.session, n_ctx=longest)
            )
            for text in texts:
                yield reader.features(text.tolist())


def _make(source: _Source, path: Path, made_with: _MadeWith, progress: Callable[[int, int], None] | None) -> None:
    """Fills ``NAME.partial`` from where a run before stopped, and gives it its name."""
    partial, answers = path.with_name(PARTIAL), made_with.answers
    with appending(partial) as fd:
        done = _begin(fd, partial, made_with)
        todo = list(answers)[done:]
        _check_room(path.parent, sum(map(len, todo)) * made_with.width * BYTES)
        n_done = int(answers.starts[done])
        for text, rows in zip(todo, source.rows(todo) if todo else (), strict=True):
            if not np.isfinite(rows).all():
                raise TrainError("the target's features hold numbers that are none", remedy="try another file of it")
            write_all(fd, partial, narrowed(rows).data.cast("B"))
            n_done += len(text)
            if progress is not None:
                progress(n_done, len(answers.ids))
    with failures(path):
        partial.replace(path)


def _begin(fd: int, path: Path, made_with: _MadeWith) -> int:
    """Writes the header, and cuts the file behind its last whole answer; how many answers it holds.

    A file of a header alone is begun anew, whatever it was to be made with.
    """
    starts, header, whole = made_with.answers.starts, made_with.header(), 0
    with failures(path):
        size, found = os.fstat(fd).st_size, os.pread(fd, HEADER_BYTES, 0)
    if size > HEADER_BYTES:
        n_rows = (size - HEADER_BYTES) // (made_with.width * BYTES)
        whole = min(made_with.check(path, _json(found)), int(np.searchsorted(starts, n_rows, side="right")) - 1)
    elif not header.startswith(found):
        check_same(path, _json(found), {"kind": KIND})
    with failures(path):
        os.ftruncate(fd, HEADER_BYTES + int(starts[whole]) * made_with.width * BYTES if whole else 0)
        os.lseek(fd, 0, os.SEEK_SET)
    write_all(fd, path, header)
    with failures(path):
        os.lseek(fd, 0, os.SEEK_END)
    return whole


def _read_header(path: Path) -> object:
    """What the rows of a file were made with, if it says so."""
    with failures_reading(path), path.open("rb") as file:
        return _json(file.read(HEADER_BYTES))


def _json(data: bytes) -> object:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value


def _check_room(folder: Path, needed: int) -> None:
    with failures(folder):
        free = shutil.disk_usage(folder).free
    if needed > free:
        raise TrainError(
            f"the features need {needed / 1e9:.1f} GB in `{folder}`",
            expected=f"at most the {free / 1e9:.1f} GB that are free",
            remedy="free some, choose another folder, or give fewer prompts or taps",
        )


def _mapped(path: Path, n_rows: int, width: int) -> NDArray[np.uint16]:
    size = HEADER_BYTES + n_rows * width * BYTES
    with failures_reading(path):
        found = path.stat().st_size
        if found != size:
            raise TrainError(f"bytes of `{path}`", value=found, expected=str(size), remedy="remove it")
        return np.memmap(path, np.dtype("<u2"), "r", HEADER_BYTES, (n_rows, width))
