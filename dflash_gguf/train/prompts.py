"""The prompts that the target answers: a file of JSON lines, checked line by line.

Comes in: a file that someone else wrote. Goes out: messages, no prompt twice. Knows nothing of models.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.bench.prompts import from_row, json_row, numbered_lines
from dflash_gguf.errors import TrainError
from dflash_gguf.train.cache import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

FEWEST: Final = 2
"""Prompts: one to train on, one to hold out."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """``messages``: role and text, the last of them the user's; ``where`` it stands, for messages."""

    messages: tuple[tuple[str, str], ...]
    where: str

    @classmethod
    def of(cls, text: str, where: str = "a prompt") -> Prompt:
        """What a user says, alone."""
        return cls((("user", text),), where)

    @property
    def digest(self) -> str:
        """By which an answer knows what it belongs to."""
        return digest_of(json.dumps(self.messages).encode())


def named(prompts: Sequence[Prompt]) -> str:
    """How many they are, and a digest of them all: by what two lists of prompts are the same."""
    return f"{len(prompts)}:{digest_of(*(prompt.digest.encode() for prompt in prompts))}"


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """JSON lines with a ``prompt`` or ``messages``; ``.gz`` is unpacked. A prompt that comes again is left out.

    Raises BenchError or TrainError naming the file and the line.
    """
    return distinct((_prompt(line, where) for where, line in numbered_lines(path)), f"`{path}`")


def distinct(prompts: Iterable[Prompt], source: str) -> tuple[Prompt, ...]:
    """The first of each; raises TrainError that names ``source`` when there are fewer than `FEWEST`."""
    found: dict[tuple[tuple[str, str], ...], Prompt] = {}
    for prompt in prompts:
        found.setdefault(prompt.messages, prompt)
    if len(found) < FEWEST:
        raise TrainError(f"{source}: different prompts", value=len(found), expected=f"at least {FEWEST}")
    return tuple(found.values())


def _prompt(line: str, where: str) -> Prompt:
    read = from_row(json_row(line, where), where)
    if len(read.turns) > 1:
        raise TrainError(
            f"{where}: prompts in one line",
            value=len(read.turns),
            expected="one",
            remedy="write a conversation as `messages`, with its answers",
        )
    return Prompt((*read.opening, ("user", read.turns[0])), where)
