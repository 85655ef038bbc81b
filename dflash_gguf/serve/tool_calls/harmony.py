"""gpt-oss' harmony: messages with a header each, of which some are calls.

Comes in: the pieces into which `thinking.Splitter` cuts an answer, headers among them. Goes out: parts of the content
and of the reasoning, and calls. A header names a channel and, for a call, who is called:
``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>``, or the name before the channel.
Source: OpenAI's description of the format; llama.cpp 0.5.0 common/parsers/gpt-oss.cpp.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from dflash_gguf.serve.tool_calls.form import Form, MalformedCallError, call_of, loads
from dflash_gguf.serve.tool_calls.json_calls import arguments_of
from dflash_gguf.serve.tool_calls.stretch import Stretch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dflash_gguf.runner.thinking import Piece
    from dflash_gguf.serve.deltas import Call
    from dflash_gguf.serve.tool_calls.form import Tools

Kind = Literal["content", "reasoning_content"]

_CALLED: Final = re.compile(r"\bto=functions\.([^\s<]+)")
_MESSAGE: Final = "<|message|>"
_MARK: Final = "<|"


def _none(_text: str, _tools: Tools) -> Sequence[Call]:
    """Harmony has no text that holds a whole call: `HarmonyCalls` reads the headers."""
    raise MalformedCallError


FORM: Final = Form("harmony", ("<|channel|>", "functions."), _none)


class HarmonyCalls:
    """State: the header of the message that is written, and the arguments when it is a call."""

    def __init__(self) -> None:
        self._header = Stretch()
        self._body: Stretch | None = None  # of a call
        self._kind: Kind | None = None  # of a message that is none

    def add(self, piece: Piece) -> Iterator[tuple[Kind, Stretch] | Call]:
        """What is sure after another piece."""
        part = Stretch.of(piece)
        if piece.kind == "mark":
            if self._body is not None and not piece.text.isspace():
                yield from self._close()
            if self._kind is not None and not piece.text.isspace():
                self._kind, self._header = None, Stretch()
            self._header += part
            return
        if self._body is None and self._kind is None:
            self._open(piece)
        if self._body is not None:
            self._body += part
        elif self._kind is not None:
            yield self._kind, part

    def end(self) -> Iterator[tuple[Kind, Stretch] | Call]:
        """A call that has ended, and text that never got a header."""
        called = self._body is None and self._kind is None and _CALLED.search(self._header.text)
        if called and self._header.text.rstrip().endswith(_MESSAGE):
            self._body = Stretch()
        if self._body is not None:
            yield from self._close()
        elif self._kind is None and _MARK not in self._header.text and self._header.text.strip():
            yield "content", self._header

    def _open(self, piece: Piece) -> None:
        """Begins the message that the header announces."""
        if _CALLED.search(self._header.text):
            self._body = Stretch()
        else:
            self._kind = "reasoning_content" if piece.kind == "thinking" else "content"

    def _close(self) -> Iterator[tuple[Kind, Stretch] | Call]:
        """Ends a call: as a call or, when its arguments are none, as text with its header."""
        body, header = self._body or Stretch(), self._header
        self._body, self._header = None, Stretch()
        called = _CALLED.search(header.text)
        try:
            text = body.text.strip() or "{}"
            yield call_of(called and called[1], arguments_of(loads(text), text))
        except MalformedCallError:
            yield "content", header + body
