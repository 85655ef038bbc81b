"""Takes the calls out of a text as it comes.

Comes in: text in pieces, and how calls are written in it. Goes out: the same text, and calls in place of what wrote
them, with the blanks around. A call comes when it is whole; what turns out to be none comes as the text that it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_gguf.serve.tool_calls.form import MalformedCallError, UnfinishedCallError
from dflash_gguf.serve.tool_calls.stretch import Stretch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dflash_gguf.serve.deltas import Call
    from dflash_gguf.serve.tool_calls.form import Form, Tools


class CallSplitter:
    """State: text that is held back because it may be, or may become, a call."""

    def __init__(self, form: Form, tools: Tools) -> None:
        self._form = form
        self._tools = tools
        self._held = Stretch()
        self._behind_call = False
        self._searched = 0  # characters in which no closing mark ends the call

    def add(self, part: Stretch) -> Iterator[Stretch | Call]:
        """What is sure after another part."""
        self._held += part
        yield from self._settle(ended=False)

    def end(self) -> Iterator[Stretch | Call]:
        """What was held back."""
        yield from self._settle(ended=True)
        yield from self._text(len(self._held.text))

    def _settle(self, *, ended: bool) -> Iterator[Stretch | Call]:
        while self._held.text and self._leaves_call():
            place, opening = self._opening()
            if opening is None:
                yield from self._text(len(self._held.text) if ended else self._sure())
                return
            yield from self._text(len(self._held.text[:place].rstrip()))
            place = self._held.text.index(opening)
            found = self._read(place, opening, ended=ended)
            if found is None:
                return
            end, calls = found
            if calls:
                self._take(end)
                yield from calls
            else:
                yield from self._text(end)

    def _leaves_call(self) -> bool:
        """Whether there is more behind a call than blanks and a closing mark that had no opening one."""
        while self._behind_call:
            text = self._held.text.lstrip()
            self._held.cut(len(self._held.text) - len(text))
            closings = set(self._form.marks.values())
            stray = next((mark for mark in closings if text.startswith(mark)), None)
            if stray is not None:
                self._held.cut(len(stray))
            elif not text or any(mark.startswith(text) for mark in (*closings, *self._form.marks)):
                return False
            else:
                self._behind_call = False
        return True

    def _opening(self) -> tuple[int, str | None]:
        """Where the first opening mark stands, and which it is."""
        found = [(place, mark) for mark in self._form.marks if (place := self._held.text.find(mark)) >= 0]
        return min(found, default=(0, None))

    def _sure(self) -> int:
        """Length of the text without an end that may begin an opening mark, and without blanks before that."""
        text = self._held.text
        longest = min(len(text), max(map(len, self._form.marks)) - 1)
        for length in range(longest, 0, -1):
            if any(mark.startswith(text[-length:]) for mark in self._form.marks):
                return len(text[:-length].rstrip())
        return len(text.rstrip())

    def _read(self, place: int, opening: str, *, ended: bool) -> tuple[int, Sequence[Call]] | None:
        """Where the call at ``place`` ends, and what it calls; the end of its mark when it is none; None: not yet."""
        text, closing = self._held.text, self._form.marks[opening]
        start = max(place + len(opening), self._searched)
        while (found := text.find(closing, start)) >= 0:
            end = found + len(closing)
            try:
                return end, self._form.read(text[place:end], self._tools)
            except UnfinishedCallError:
                start = end
            except MalformedCallError:
                return place + len(opening), ()
        if not ended:
            self._searched = max(place + len(opening), len(text) - len(closing) + 1)
            return None
        try:
            return len(text), self._form.read(text[place:], self._tools)
        except (MalformedCallError, UnfinishedCallError):
            return place + len(opening), ()

    def _take(self, length: int) -> None:
        self._held.cut(length)
        self._behind_call, self._searched = True, 0

    def _text(self, length: int) -> Iterator[Stretch]:
        if length:
            self._searched = 0
            yield self._held.cut(length)
