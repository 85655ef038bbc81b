"""The target's answers on disk: a line says what they were made with, then one line an answer, in the order they ended.

Comes in: answers. Goes out: those that are there, also after a kill at any byte. Knows nothing of models.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from dflash_gguf.atomic import failures, write_all
from dflash_gguf.errors import TrainError, brief
from dflash_gguf.train.cache import check_same, check_start, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

NAME: Final = "answers.jsonl"
KIND: Final = "answers"
OTHERS: Final = "put new prompts behind those of before, choose another folder, or remove the file to make it anew"


@dataclass(frozen=True, slots=True)
class Answer:
    """``ids`` are the prompt's, ``n_prompt`` of them, and the answer's, with the token that ended it if one did."""

    prompt: int
    n_prompt: int
    ids: tuple[int, ...]

    def line(self, asked: str) -> bytes:
        """As the file holds it, with what was ``asked``."""
        row = {"prompt": self.prompt, "asked": asked, "n_prompt": self.n_prompt, "ids": self.ids}
        return f"{json.dumps(row)}\n".encode()


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers behind one another, in the order of the prompts; arrays as in `Corpus`."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    n_prompts: NDArray[np.int32]

    @classmethod
    def of(cls, found: Mapping[int, Answer]) -> Self:
        """``found``: prompt's number -> its answer. Those in front of the first prompt that has none."""
        rows: list[Answer] = []
        while len(rows) in found:
            rows.append(found[len(rows)])
        ids = np.concatenate([np.array(row.ids, np.int32) for row in rows])
        starts = np.cumsum([0, *(len(row.ids) for row in rows)], dtype=np.int64)
        return cls(ids, starts, np.array([row.n_prompt for row in rows], np.int32))

    def __len__(self) -> int:
        return len(self.n_prompts)

    def first(self, n: int) -> Answers:
        """The answers to the first ``n`` prompts."""
        starts = self.starts[: n + 1]
        return Answers(self.ids[: starts[-1]], starts, self.n_prompts[:n])

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

    def __init__(self, fd: int, path: Path, header: Mapping[str, Any], asked: Sequence[str], n_vocab: int) -> None:
        """Reads what is there; half a line at the end, which a killed run left, is cut off.

        ``asked``: a digest of each prompt; answers to later ones are kept. A file that holds no answer is begun anew,
        whatever it was to be made with. Raises TrainError when it was made with something else, holds an answer to
        another prompt, or what no answer can be.
        """
        self._fd, self._path, self._asked = fd, path, asked
        with failures(path), open(fd, "rb", closefd=False) as file:
            data = file.read()
        first = f"{json.dumps(header)}\n".encode()
        lines = data.split(b"\n")[:-1]
        if lines:
            made_with = header if len(lines) > 1 else {"kind": KIND}
            check_same(path, _json(lines[0]), made_with)
        else:
            check_start(path, data, KIND)
        lines = lines if len(lines) > 1 else []
        self.found: dict[int, Answer] = {}
        for number, line in enumerate(lines[1:], 2):
            row = _row(line, n_vocab)
            if row is None or row["prompt"] in self.found:
                raise TrainError(f"`{path}`, line {number}", value=brief(line[:60]), remedy="remove the line")
            ours = asked[row["prompt"]] if row["prompt"] < len(asked) else row["asked"]
            if row["asked"] != ours:
                what = f"`{path}`, line {number} answers another prompt {row['prompt'] + 1}: its digest"
                raise TrainError(what, value=brief(row["asked"]), expected=ours, remedy=OTHERS)
            self.found[row["prompt"]] = Answer(row["prompt"], row["n_prompt"], tuple(row["ids"]))
        whole = sum(len(line) + 1 for line in lines)
        with failures(path):
            os.ftruncate(fd, whole)
            os.lseek(fd, whole, os.SEEK_SET)
        if not lines:
            write_all(fd, path, first)

    def add(self, answer: Answer) -> None:
        """Appends it. Raises OutputError when it cannot be written; what is there stays whole."""
        write_all(self._fd, self._path, answer.line(self._asked[answer.prompt]))
        self.found[answer.prompt] = answer


def _json(line: bytes) -> object:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value


def _row(line: bytes, n_vocab: int) -> dict[str, Any] | None:
    row = _json(line)
    if not isinstance(row, dict) or row.keys() != {"prompt", "asked", "n_prompt", "ids"}:
        return None
    ids, n_prompt = row["ids"], row["n_prompt"]
    if not isinstance(ids, list) or not all(_below(value, n_vocab) for value in ids):
        return None
    return row if _below(row["prompt"], sys.maxsize) and _below(n_prompt, len(ids)) and n_prompt > 0 else None


def _below(value: object, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end
