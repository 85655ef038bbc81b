"""Calls in tags: Qwen3-Coder's and Qwen3.5's ``<function=NAME>`` with a ``<parameter=KEY>`` for each value.

Comes in: the text of one ``<tool_call>``, or of a function whose model left that tag out; the schemas of the functions.
Goes out: calls. Source of the form: the models' own templates (llama.cpp 0.5.0 models/templates).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.serve.tool_calls.form import MalformedCallError, UnfinishedCallError, call_of, dumps
from dflash_gguf.serve.tool_calls.values import typed

if TYPE_CHECKING:
    from dflash_gguf.serve.deltas import Call
    from dflash_gguf.serve.tool_calls.form import Tools

OPENING: Final = "<tool_call>"
CLOSING: Final = "</tool_call>"
FUNCTION: Final = "<function="
FUNCTION_END: Final = "</function>"

_FUNCTION: Final = re.compile(r"\s*<function=([^>\n]+)>")
_PARAMETER: Final = re.compile(r"\s*<parameter=([^>\n]+)>\n?")
_VALUE_END: Final = re.compile(r"\n?</parameter>(?=\s*(?:<parameter=|</function>))")
_END: Final = re.compile(r"\s*</function>\s*")


def read(text: str, tools: Tools) -> list[Call]:
    """The calls of a text with its marks. A function outside of ``<tool_call>`` must be one of ``tools``."""
    tagged = text.startswith(OPENING)
    place, calls = len(OPENING) if tagged else 0, []
    while (head := _FUNCTION.match(text, place)) is not None:
        name = head[1].strip()
        arguments, place = _arguments(text, head.end(), tools.get(name, {}))
        calls.append(call_of(name, dumps(arguments)))
        if not tagged and name not in tools:
            raise MalformedCallError
    if not calls or text[place:].strip() not in ("", CLOSING):
        raise MalformedCallError
    return calls


def _arguments(text: str, place: int, schema: Any) -> tuple[dict[str, Any], int]:
    """The values from ``place`` on, and where the function ends."""
    values: dict[str, Any] = {}
    while (head := _PARAMETER.match(text, place)) is not None:
        end = _VALUE_END.search(text, head.end())
        if end is None:
            raise UnfinishedCallError
        key = head[1].strip()
        # A value that is empty shares its line break with the tags.
        values[key] = typed(text[head.end() : end.start()], schema, key)
        place = end.end()
    closing = _END.match(text, place)
    if closing is None:
        raise MalformedCallError
    return values, closing.end()
