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
from dflash_gguf.train.cache import VERSION, appending, check_same, check_start, failures_reading, fingerprint

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
FROM: Final = (
    "give the target or the `--features-from` of before, choose another folder, or remove the file to make it anew"
)
HEADER_BYTES: Final = 4096
"""What the rows were made with, as JSON and spaces; rows begin behind it, at a page."""
BYTES: Final = 2
"""Of a number."""


def check_source(folder: Path, header: GGUFHeader, taps: Sequence[int]) -> None:
    """Raises TrainError when what is in ``folder`` is none, or the features of another file or of other taps."""
    for path in (folder / NAME, folder / PARTIAL):
        if not path.is_file():
            continue
        if path.name == NAME or path.stat().st_size > HEADER_BYTES:
            asked, found = _source(header, taps), _read_header(path)
            check_same(path, found, {name: value for name, value in asked.items() if name != "target"})
            check_same(path, found, asked, FROM)
        else:
            with failures_reading(path):
                check_start(path, path.read_bytes(), KIND)


def capture(
    target: Path,
    header: GGUFHeader,
    answers: tuple[Answers, int],
    folder: Path,
    taps: Sequence[int],
    settings: CorpusSettings,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.uint16]:
    """`NAME` in ``folder``, made or gone on with: BF16 as uint16 [tokens, n_taps * n_embd], mapped.

    ``answers`` are all that there are, and along how many features are asked for: a file along fewer is gone on with,
    of one along more the first rows are handed out. ``taps`` are layers whose outputs are kept, from 0. ``progress``
    gets tokens done and tokens in all. Raises TrainError when the file was made with something else, SessionError when
    libllama refuses, OutputError when it cannot be written; what is there of it is gone on with next time.
    """
    there, n_asked = answers
    made_with = _MadeWith(_source(header, taps), there, len(taps) * (target_facts(header).hidden_size or 0))
    path = folder / NAME
    n = made_with.check(path, _read_header(path)) if path.exists() else 0
    if n:
        _mapped(path, int(there.starts[n]), made_with.width)  # told before it grows, when it is none
    if n < n_asked:
        n = _make(_Source(target, tuple(tap + 1 for tap in taps), settings), path, made_with, n_asked, progress)
    return _mapped(path, int(there.starts[n]), made_with.width)[: there.starts[n_asked]]


def n_answers(folder: Path) -> int:
    """Along how many answers the whole file in ``folder`` goes; 0 when there is none."""
    path = folder / NAME
    return _n_answers(_read_header(path)) if path.is_file() else 0


def _n_answers(found: object) -> int:
    n = found.get("n_answers") if isinstance(found, dict) else None
    return n if type(n) is int and n > 0 else 0


def _source(header: GGUFHeader, taps: Sequence[int]) -> dict[str, Any]:
    return {"kind": KIND, "version": VERSION, "target": fingerprint(header), "taps": list(taps)}


@dataclass(frozen=True, slots=True)
class _MadeWith:
    """What the rows of a file are made with: of which layers, along which answers, how wide."""

    source: dict[str, Any]
    answers: Answers
    width: int

    def values(self, n: int) -> dict[str, Any]:
        """Of a file along the first ``n`` answers."""
        part = self.answers.first(n)
        return {**self.source, "n_answers": n, "answers": part.digest, "shape": [len(part.ids), self.width]}

    def header(self, n: int) -> bytes:
        """The same, as the file begins."""
        return json.dumps(self.values(n)).encode().ljust(HEADER_BYTES - 1) + b"\n"

    def check(self, path: Path, found: object) -> int:
        """Along how many of the answers the file goes; raises TrainError when it is a file of something else."""
        n = min(_n_answers(found) or len(self.answers), len(self.answers))
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


def _make(
    source: _Source,
    path: Path,
    made_with: _MadeWith,
    n_asked: int,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Fills ``NAME.partial`` from where a run before stopped, and gives it its name; along how many answers it goes.

    A whole file that is to grow is called so again, and locked all the time.
    """
    partial, answers = path.with_name(PARTIAL), made_with.answers
    there = path if path.exists() else partial
    with appending(there, there=there == path) as fd:
        if there == path and partial.exists():
            raise TrainError(f"`{partial}` lies beside a whole `{NAME}`", remedy="remove one of the two")
        done = _done(fd, there, made_with)
        n = max(done, n_asked)
        todo = list(answers.first(n))[done:]
        _check_room(path.parent, sum(map(len, todo)) * made_with.width * BYTES)
        with failures(there):
            there.replace(partial)
        _begin(fd, partial, made_with, (done, n))
        n_done, n_tokens = int(answers.starts[done]), int(answers.starts[n])
        if todo and progress is not None:
            progress(n_done, n_tokens)
        for text, rows in zip(todo, source.rows(todo) if todo else (), strict=True):
            if not np.isfinite(rows).all():
                raise TrainError("the target's features hold numbers that are none", remedy="try another file of it")
            write_all(fd, partial, narrowed(rows).data.cast("B"))
            n_done += len(text)
            if progress is not None:
                progress(n_done, n_tokens)
        with failures(path):
            os.fsync(fd)
            partial.replace(path)
    return n


def _done(fd: int, path: Path, made_with: _MadeWith) -> int:
    """How many answers the file has all rows of; 0 for one of no more than a header, whatever it was to be made with.

    Raises TrainError when it is a file of something else.
    """
    with failures(path):
        size, found = os.fstat(fd).st_size, os.pread(fd, HEADER_BYTES, 0)
    if size > HEADER_BYTES:
        n_rows = (size - HEADER_BYTES) // (made_with.width * BYTES)
        n = made_with.check(path, _json(found))
        return min(n, int(np.searchsorted(made_with.answers.starts, n_rows, side="right")) - 1)
    check_start(path, found, KIND)
    return 0


def _begin(fd: int, path: Path, made_with: _MadeWith, numbers: tuple[int, int]) -> None:
    """Cuts the file behind the answers that are done, and has it say along how many it will go."""
    done, n = numbers
    header = made_with.header(n)
    with failures(path):
        os.ftruncate(fd, HEADER_BYTES + int(made_with.answers.starts[done]) * made_with.width * BYTES if done else 0)
        same = os.pread(fd, HEADER_BYTES, 0) == header
        os.lseek(fd, 0, os.SEEK_SET)
    if not same:
        write_all(fd, path, header)
    with failures(path):
        os.lseek(fd, 0, os.SEEK_END)


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
            remedy="free some, choose another folder, or give fewer prompts",
        )


def _mapped(path: Path, n_rows: int, width: int) -> NDArray[np.uint16]:
    size = HEADER_BYTES + n_rows * width * BYTES
    with failures_reading(path):
        found = path.stat().st_size
        if found != size:
            raise TrainError(f"bytes of `{path}`", value=found, expected=str(size), remedy="remove it")
        return np.memmap(path, np.dtype("<u2"), "r", HEADER_BYTES, (n_rows, width))
