"""The target's answers on disk: a line says what they were made with, then one line an answer, in the order they ended.

Comes in: answers. Goes out: those that are there, also after a kill at any byte. Knows nothing of models.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from dflash_gguf.atomic import failures, write_all
from dflash_gguf.errors import TrainError, brief
from dflash_gguf.train.cache import check_same, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

NAME: Final = "answers.jsonl"


@dataclass(frozen=True, slots=True)
class Answer:
    """``ids`` are the prompt's, ``n_prompt`` of them, and the answer's, with the token that ended it if one did."""

    prompt: int
    n_prompt: int
    ids: tuple[int, ...]

    def line(self) -> bytes:
        """As the file holds it."""
        return f"{json.dumps({'prompt': self.prompt, 'n_prompt': self.n_prompt, 'ids': self.ids})}\n".encode()


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers behind one another, in the order of the prompts; arrays as in `Corpus`."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    n_prompts: NDArray[np.int32]

    @classmethod
    def of(cls, found: Mapping[int, Answer]) -> Self:
        """``found``: prompt's number -> its answer."""
        rows = [found[number] for number in sorted(found)]
        ids = np.concatenate([np.array(row.ids, np.int32) for row in rows])
        starts = np.cumsum([0, *(len(row.ids) for row in rows)], dtype=np.int64)
        return cls(ids, starts, np.array([row.n_prompt for row in rows], np.int32))

    def __len__(self) -> int:
        return len(self.n_prompts)

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        """Token ids of each."""
        for start, end in zip(self.starts, self.starts[1:], strict=False):
            yield self.ids[start:end]

    @property
    def digest(self) -> str:
        """By which features know what they belong to."""
        return digest_of(self.ids.tobytes(), self.starts.tobytes(), self.n_prompts.tobytes())


class AnswersFile:
    """An open `NAME`: ``found`` are the answers in it, and `add` appends one."""

    def __init__(self, fd: int, path: Path, header: Mapping[str, Any], n_prompts: int, n_vocab: int) -> None:
        """Reads what is there; half a line at the end, which a killed run left, is cut off.

        A file that holds no answer is begun anew, whatever it was to be made with.
        Raises TrainError when it was made with something else, or holds what no answer can be.
        """
        self._fd, self._path = fd, path
        with failures(path), open(fd, "rb", closefd=False) as file:
            data = file.read()
        first = f"{json.dumps(header)}\n".encode()
        lines = data.split(b"\n")[:-1]
        if lines or not first.startswith(data):
            made_with = header if len(lines) > 1 else {"kind": header["kind"]}
            check_same(path, _json(data.split(b"\n")[0]), made_with)
        lines = lines if len(lines) > 1 else []
        self.found: dict[int, Answer] = {}
        for number, line in enumerate(lines[1:], 2):
            answer = _answer(line, n_prompts, n_vocab)
            if answer is None or answer.prompt in self.found:
                raise TrainError(f"`{path}`, line {number}", value=brief(line[:60]), remedy="remove the line")
            self.found[answer.prompt] = answer
        whole = sum(len(line) + 1 for line in lines)
        with failures(path):
            os.ftruncate(fd, whole)
            os.lseek(fd, whole, os.SEEK_SET)
        if not lines:
            write_all(fd, path, first)

    def add(self, answer: Answer) -> None:
        """Appends it. Raises OutputError when it cannot be written; what is there stays whole."""
        write_all(self._fd, self._path, answer.line())
        self.found[answer.prompt] = answer


def _json(line: bytes) -> object:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value


def _answer(line: bytes, n_prompts: int, n_vocab: int) -> Answer | None:
    row = _json(line)
    if not isinstance(row, dict) or row.keys() != {"prompt", "n_prompt", "ids"}:
        return None
    prompt, n_prompt, ids = row["prompt"], row["n_prompt"], row["ids"]
    if not isinstance(ids, list) or not all(_below(value, n_vocab) for value in ids):
        return None
    if not _below(prompt, n_prompts) or not _below(n_prompt, len(ids)) or n_prompt == 0:
        return None
    return Answer(prompt, n_prompt, tuple(ids))


def _below(value: object, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end
