"""Gemma 4's calls: ``<|tool_call>call:NAME{key:value,...}<tool_call|>``, texts between ``<|"|>``.

Comes in: the text of one call. Goes out: the call. Source of the form: the models' own template and llama.cpp 0.5.0
common/parsers/gemma4.cpp.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.serve.tool_calls.form import MalformedCallError, UnfinishedCallError, call_of, dumps, loads

if TYPE_CHECKING:
    from dflash_gguf.serve.deltas import Call
    from dflash_gguf.serve.tool_calls.form import Tools

OPENING: Final = "<|tool_call>"
CLOSING: Final = "<tool_call|>"
QUOTE: Final = '<|"|>'

_HEAD: Final = re.compile(r"<\|tool_call>\s*call:([^{\s]+)\s*(?=\{)")
_BARE_KEY: Final = re.compile(r"[^:{}\[\],<]+")
_LITERAL: Final = re.compile(r"[A-Za-z]+|[-+.\dEe]+")
_BLANKS: Final = re.compile(r"\s*")
_DEEPEST: Final = 64


def read(text: str, _tools: Tools) -> list[Call]:
    """The call of a text with its marks."""
    head = _HEAD.match(text)
    if head is None:
        raise MalformedCallError
    cursor = _Cursor(text, head.end())
    arguments = cursor.value(_DEEPEST)
    if text[cursor.place :].strip() not in ("", CLOSING):
        raise MalformedCallError
    return [call_of(head[1], dumps(arguments))]


@dataclass(slots=True)
class _Cursor:
    """State: how far a text has been read."""

    text: str
    place: int

    def value(self, deepest: int) -> Any:
        """The value that stands here."""
        if deepest == 0:
            raise MalformedCallError
        self._blanks()
        if self._take("{"):
            return self._mapping(deepest - 1)
        if self._take("["):
            return self._list(deepest - 1)
        return self._text() if self._at_text() else self._literal()

    def _mapping(self, deepest: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not self._ends("}", first=not values):
            key = self._text() if self._at_text() else self._match(_BARE_KEY).strip()
            self._blanks()
            if not self._take(":"):
                raise MalformedCallError
            values[key] = self.value(deepest)
        return values

    def _list(self, deepest: int) -> list[Any]:
        values: list[Any] = []
        while not self._ends("]", first=not values):
            values.append(self.value(deepest))
        return values

    def _ends(self, closing: str, *, first: bool) -> bool:
        """Whether no item follows; takes the comma before one that does."""
        self._blanks()
        if self._take(closing):
            return True
        if not first and not self._take(","):
            raise MalformedCallError
        self._blanks()
        return False

    def _at_text(self) -> bool:
        return self.text.startswith((QUOTE, '"'), self.place)

    def _text(self) -> str:
        if not self._take(QUOTE):
            return self._json_text()
        end = self.text.find(QUOTE, self.place)
        if end < 0:
            raise UnfinishedCallError
        found, self.place = self.text[self.place : end], end + len(QUOTE)
        return found

    def _json_text(self) -> str:
        try:
            found, self.place = json.JSONDecoder().raw_decode(self.text, self.place)
        except json.JSONDecodeError as error:  # of a text there is no other
            raise (UnfinishedCallError if "Unterminated" in error.msg else MalformedCallError) from None
        return str(found)

    def _literal(self) -> Any:
        return loads(self._match(_LITERAL))

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.place)
        if found is None:
            raise MalformedCallError
        self.place = found.end()
        return found[0]

    def _take(self, mark: str) -> bool:
        taken = self.text.startswith(mark, self.place)
        self.place += len(mark) if taken else 0
        return taken

    def _blanks(self) -> None:
        self._match(_BLANKS)
