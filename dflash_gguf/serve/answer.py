"""Reads an answer as it comes: what it says, what it thinks, and which functions it calls.

Comes in: a target's chat template, the prompt that is answered, the functions that may be called, and text. Goes out:
deltas. What may yet become a mark or a call is held back; nothing but marks and the blanks beside them is left out.
"""

from __future__ import annotations

import uuid
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from dflash_gguf.runner import thinking
from dflash_gguf.runner.vocabulary import spans_of
from dflash_gguf.serve import tool_calls
from dflash_gguf.serve.deltas import Call, Delta, parts_of
from dflash_gguf.serve.tool_calls.harmony import FORM as HARMONY
from dflash_gguf.serve.tool_calls.harmony import HarmonyCalls
from dflash_gguf.serve.tool_calls.splitter import CallSplitter
from dflash_gguf.serve.tool_calls.stretch import Stretch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dflash_gguf.runner.generation import FinishReason
    from dflash_gguf.runner.thinking import Piece
    from dflash_gguf.runner.vocabulary import Span
    from dflash_gguf.serve.tool_calls.form import Tools
    from dflash_gguf.serve.tool_calls.harmony import Kind

_Part = tuple["Kind", Stretch] | Call


class AnswerParser:
    """One answer. ``tools``: the functions that it may call; without any, calls stay text.

    ``n_calls``: those that were found by now.
    """

    def __init__(self, template: str, prompt: str, tools: Tools | None = None) -> None:
        form = tool_calls.form_of(template) if tools else None
        self._splitter = thinking.Splitter(thinking.form_of(template), prompt)
        self._harmony = HarmonyCalls() if form is HARMONY else None
        self._spoken = CallSplitter(form, tools) if form and tools and form is not HARMONY else None
        self._thought = CallSplitter(form, tools) if form and tools and form.in_thoughts else None
        self._thinks = False
        self.n_calls = 0

    def feed(self, text: str, drafted: Sequence[Span] = ()) -> list[Delta]:
        """What is sure after more text; ``drafted`` are spans of it."""
        return list(self._deltas(self._parts(self._splitter.add(text, drafted))))

    def end(self) -> list[Delta]:
        """What was held back."""
        return list(self._deltas(self._last_parts()))

    def reason(self, reason: FinishReason) -> Literal["stop", "length", "tool_calls"]:
        """OpenAI's ``finish_reason`` of an answer that ended for ``reason``."""
        return "tool_calls" if reason == "stop" and self.n_calls else reason

    def _last_parts(self) -> Iterator[_Part]:
        yield from self._parts(self._splitter.end())
        yield from self._leave(thinks=True)
        yield from self._leave(thinks=False)
        if self._harmony is not None:
            yield from self._harmony.end()

    def _parts(self, pieces: Iterable[Piece]) -> Iterator[_Part]:
        for piece in pieces:
            if self._harmony is not None:
                yield from self._harmony.add(piece)
            elif piece.kind != "mark":
                thinks = piece.kind == "thinking"
                if thinks != self._thinks:
                    yield from self._leave(thinks=self._thinks)
                    self._thinks = thinks
                yield from self._split(piece, thinks=thinks)

    def _split(self, piece: Piece, *, thinks: bool) -> Iterator[_Part]:
        calls = self._thought if thinks else self._spoken
        found = [Stretch.of(piece)] if calls is None else calls.add(Stretch.of(piece))
        yield from _of_kind(found, thinks=thinks)

    def _leave(self, *, thinks: bool) -> Iterator[_Part]:
        calls = self._thought if thinks else self._spoken
        if calls is not None:
            yield from _of_kind(calls.end(), thinks=thinks)

    def _deltas(self, parts: Iterable[_Part]) -> Iterator[Delta]:
        """Neighbours of one kind joined."""
        for kind, group in groupby(parts, lambda part: None if isinstance(part, Call) else part[0]):
            text = Stretch()
            for part in group:
                if isinstance(part, Call):
                    yield from parts_of(part, self.n_calls, f"call_{uuid.uuid4().hex[:24]}")
                    self.n_calls += 1
                else:
                    text += part[1]
            if kind == "content":
                yield Delta(content=text.text, drafted=spans_of(text.flags))
            elif kind is not None:
                yield Delta(reasoning_content=text.text, drafted=spans_of(text.flags))


def _of_kind(found: Iterable[Stretch | Call], *, thinks: bool) -> Iterator[_Part]:
    kind: Kind = "reasoning_content" if thinks else "content"
    for each in found:
        yield each if isinstance(each, Call) else (kind, each)
