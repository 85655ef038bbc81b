"""One question to a model of ollama, with its drafter and without.

Comes in: a model's name and a prompt. Goes out: an `Asked`: both speeds, and whether both answers are the same.
Source: ollama server/sched.go (v0.33.0-rc2): a model that is loaded is used again when only its drafter differs, but
not when `draft_num_predict` does. So the question without the drafter comes first, and what is loaded then is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.modelfile.parameters import DEPTH
from dflash_gguf.ollama.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST: Final = 256
"""Tokens of an answer: enough to measure."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its text, thoughts included, and ollama's own count and time."""

    text: str
    n_tokens: int
    seconds: float

    @property
    def per_second(self) -> float | None:
        """Tokens per second of writing; None when ollama tells no time."""
        return self.n_tokens / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Asked:
    """Both answers."""

    drafted: Answer
    plain: Answer

    @property
    def ratio(self) -> float | None:
        """How many times faster the drafter makes it."""
        with_drafter, without = self.drafted.per_second, self.plain.per_second
        return with_drafter / without if with_drafter and without else None


def ask_both(name: str, prompt: str, depth: int, host: str, piece: Callable[[str], None] = lambda _: None) -> Asked:
    """Ask model ``name`` twice, greedily; ``piece`` hears the answer that the drafter helped with."""
    with Client(host) as client:
        plain = _answer(client, name, prompt, 0, lambda _: None)
        return Asked(_answer(client, name, prompt, depth, piece), plain)


def _answer(client: Client, name: str, prompt: str, depth: int, piece: Callable[[str], None]) -> Answer:
    options = {DEPTH: depth, "temperature": 0, "seed": 0, "num_predict": LONGEST}
    texts: list[str] = []
    last: dict[str, Any] = {}
    for last in client.generate({"model": name, "prompt": prompt, "stream": True, "options": options}):
        for key in ("thinking", "response"):
            text = last.get(key)
            if isinstance(text, str) and text:
                texts.append(text)
                piece(text)
    return Answer("".join(texts), _count(last, "eval_count"), _count(last, "eval_duration") / 1e9)


def _count(record: dict[str, Any], name: str) -> int:
    value = record.get(name)
    return value if type(value) is int and value > 0 else 0
