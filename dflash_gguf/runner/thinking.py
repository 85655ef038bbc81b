"""Splits an answer as it comes into what the model thinks and what it says.

Comes in: a chat template, a rendered prompt, and pieces of text. Goes out: the same text, each piece with what it is.
Knows nothing of terminals or of how messages are kept.
Source of the marks: llama.cpp models/templates (0.5.0); OpenAI's harmony response format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dflash_gguf.runner.vocabulary import Span

Kind = Literal["answer", "thinking", "mark"]
"""``mark``: what only separates the two, blanks included."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the answer. ``drafted``: every token that it was made of was an accepted draft."""

    kind: Kind
    text: str
    drafted: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """Where an answer is. ``marks`` -> the stage that each leads to.

    ``opening``: any text but a mark leads to that stage instead. Blanks at the beginning of a stage separate.
    """

    kind: Kind
    marks: Mapping[str, str] = field(default_factory=dict)
    opening: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """How a template writes thinking. ``sign``: what its text holds; ``stages``: the first of them begins an answer.

    ``tail``: a prompt that ends so begins in the stage ``thinking``.
    """

    sign: str
    stages: Mapping[str, Stage]
    tail: str

    def opened_by(self, prompt: str) -> bool:
        """Whether the answer to ``prompt`` begins with thinking, whatever it is."""
        return prompt.rstrip().endswith(self.tail)

    @property
    def marks(self) -> tuple[str, ...]:
        """All marks; those that are control tokens must be spelt out."""
        return tuple({mark: None for stage in self.stages.values() for mark in stage.marks})


def _tags(begin: str, end: str) -> Form:
    """Thinking between two tags, at the beginning of an answer: one that explains tags may write them later."""
    stages = {
        "opening": Stage("answer", {begin: "thinking"}, opening="answer"),
        "thinking": Stage("thinking", {end: "answer"}),
        "answer": Stage("answer"),
    }
    return Form(begin, stages, begin)


_FINAL: Final = "<|message|>"
_HARMONY: Final = Form(
    "<|channel|>",
    {
        "header": Stage("mark", {"<|channel|>analysis<|message|>": "thinking", _FINAL: "answer"}),
        "thinking": Stage("thinking", {"<|end|>": "header"}),
        "answer": Stage("answer", {"<|end|>": "header"}),
    },
    "<|channel|>analysis<|message|>",
)

FORMS: Final = (
    _HARMONY,
    _tags("<|channel>thought", "<channel|>"),
    _tags("<think>", "</think>"),
    _tags("<seed:think>", "</seed:think>"),
    _tags("<mm:think>", "</mm:think>"),
    _tags("[THINK]", "[/THINK]"),
    _tags("<|START_THINKING|>", "<|END_THINKING|>"),
)


def form_of(template: str) -> Form | None:
    """How the answers to prompts of ``template`` are split; None: it knows no thinking."""
    return next((form for form in FORMS if form.sign in template), None)


class Splitter:
    """Splits one answer; ``prompt`` is what it answers. What may yet become a mark is held back."""

    def __init__(self, form: Form | None, prompt: str) -> None:
        self._stages: Mapping[str, Stage] = form.stages if form else {"answer": Stage("answer")}
        thinks = form is not None and form.opened_by(prompt)
        self._enter("thinking" if thinks else next(iter(self._stages)))
        self._text = ""
        self._drafted: list[bool] = []

    def add(self, text: str, drafted: Sequence[Span] = ()) -> Iterator[Piece]:
        """What is sure of the text so far; ``drafted`` are spans of ``text``."""
        flags = [False] * len(text)
        for start, end in drafted:
            flags[start:end] = [True] * (end - start)
        self._text += text
        self._drafted += flags
        while (found := self._first_mark()) is not None:
            place, mark = found
            yield from self._cut(place, self._stage.kind)
            yield from self._cut(len(mark), "mark")
            self._enter(self._stage.marks[mark])
        yield from self._cut(len(self._text) - self._held(), self._stage.kind)

    def end(self) -> Iterator[Piece]:
        """What was held back."""
        yield from self._cut(len(self._text), self._stage.kind)

    def _enter(self, name: str) -> None:
        self._stage = self._stages[name]
        self._fresh = True

    def _first_mark(self) -> tuple[int, str] | None:
        places = [(place, mark) for mark in self._stage.marks if (place := self._text.find(mark)) >= 0]
        if self._stage.opening is not None and not self._may_open():
            self._enter(self._stage.opening)
            return None
        return min(places, default=None)

    def _may_open(self) -> bool:
        text = self._text.lstrip()
        return any(mark.startswith(text) or text.startswith(mark) for mark in self._stage.marks)

    def _held(self) -> int:
        """Length of the longest end of the text that begins a mark, with the blanks before an opening one."""
        if self._stage.opening is not None:
            return len(self._text)
        longest = max(map(len, self._stage.marks), default=1) - 1
        for length in range(min(longest, len(self._text)), 0, -1):
            if any(mark.startswith(self._text[-length:]) for mark in self._stage.marks):
                return length
        return 0

    def _cut(self, length: int, kind: Kind) -> Iterator[Piece]:
        text, self._text = self._text[:length], self._text[length:]
        flags, self._drafted = self._drafted[:length], self._drafted[length:]
        blank = len(text) - len(text.lstrip()) if self._fresh and kind != "mark" and len(self._stages) > 1 else 0
        if kind != "mark" and blank < len(text):
            self._fresh = False
        blanks: list[Kind] = ["mark"] * blank
        kinds = [*blanks, *([kind] * (len(text) - blank))]
        start = 0
        for (of, drafted), group in groupby(zip(kinds, flags, strict=True)):
            end = start + len(list(group))
            yield Piece(of, text[start:end], drafted)
            start = end
