"""Calls in JSON: Qwen3's and Hermes' ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

Comes in: the text of one call. Goes out: the call, its arguments as the model wrote them, so that the next prompt can
repeat them to the letter.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.serve.tool_calls.form import MalformedCallError, UnfinishedCallError, call_of, inside, loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.serve.deltas import Call
    from dflash_gguf.serve.tool_calls.form import Tools

OPENING: Final = "<tool_call>"
CLOSING: Final = "</tool_call>"
_BLANKS: Final = re.compile(r"[ \t\r\n]*")


def read(text: str, _tools: Tools) -> list[Call]:
    """The call of a text with its marks."""
    members = _members(inside(text, OPENING, CLOSING))
    if "name" not in members:
        raise MalformedCallError
    return [call_of(members["name"][0], arguments_of(*members.get("arguments", ({}, "{}"))))]


def arguments_of(value: object, text: str) -> str:
    """The text of arguments, which may also be a string that holds it; raises MalformedCallError for other values."""
    text = value if isinstance(value, str) else text
    if not isinstance(loads(text), dict):
        raise MalformedCallError
    return text


def _members(text: str) -> dict[str, tuple[Any, str]]:
    """The members of a JSON object: each name with its value, and the value's own text."""
    try:
        value, end = json.JSONDecoder(parse_constant=_refuse).raw_decode(text)
    except (ValueError, RecursionError) as error:
        # A string that is not closed holds what looks like the end of the call.
        unfinished = isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string")
        raise (UnfinishedCallError if unfinished else MalformedCallError) from None
    if not isinstance(value, dict) or text[end:].strip():
        raise MalformedCallError
    return dict(_each(text))


def _each(text: str) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Of an object that is known to be whole."""
    decoder = json.JSONDecoder()
    place = _after_blanks(text, 1)
    while text[place] != "}":
        name, place = decoder.raw_decode(text, place)
        start = _after_blanks(text, _after_blanks(text, place) + 1)  # behind the colon
        value, end = decoder.raw_decode(text, start)
        yield name, (value, text[start:end])
        place = _after_blanks(text, end)
        if text[place] == ",":
            place = _after_blanks(text, place + 1)


def _after_blanks(text: str, place: int) -> int:
    found = _BLANKS.match(text, place)
    return found.end() if found else place


def _refuse(_name: str) -> None:
    raise MalformedCallError
