"""Calls and their results in the order and places in which some templates look for them.

Comes in: messages as `messages.adapted` makes them, and a template. Goes out: messages. Most templates read OpenAI's
order; Gemma 4's first ones look for results in the message that called, gpt-oss' for one call a message.
Source: the templates; llama.cpp 0.5.0 common/parsers/gemma4.cpp.
"""

from __future__ import annotations

import json
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.runner.chat import Message


def arranged(messages: Sequence[Message], template: str) -> list[Message]:
    """``messages`` for ``template``."""
    inside = "tool_responses" in template and "tool_call_id" not in template
    single = "tool_calls[0]" in template
    out: list[Message] = []
    place = 0
    while place < len(messages):
        message, place = messages[place], place + 1
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        if not calls or not (inside or single):
            out.append(message)
            continue
        results = list(takewhile(lambda each: each.get("role") == "tool", messages[place:]))
        place += len(results)
        out += _gathered(message, results) if inside else _paired(message, calls, results)
    return out


def _gathered(message: Message, results: Sequence[Message]) -> list[Message]:
    """One message that holds the results of its calls."""
    responses = [{"name": result.get("name", ""), "response": _value(result.get("content"))} for result in results]
    return [{**message, "tool_responses": responses} if responses else message]


def _paired(message: Message, calls: Sequence[Any], results: Sequence[Message]) -> list[Message]:
    """A message for each call, followed by its result; results of no call stand at the end."""
    left = list(results)
    out: list[Message] = []
    for number, call in enumerate(calls):
        alone = {**message, "tool_calls": [call]} if number == 0 else _bare(message, call)
        out.append(alone)
        found = next((each for each in left if each.get("tool_call_id") == call.get("id")), None)
        if found is not None:
            left.remove(found)
            out.append(found)
    return [*out, *left]


def _bare(message: Message, call: Any) -> Message:
    """A further call, without what was said and thought before the first."""
    return {"role": message["role"], "content": "", "tool_calls": [call]}


def _value(content: Any) -> Any:
    """What a result holds: it is mostly the text of a JSON value."""
    try:
        return json.loads(content)
    except (TypeError, ValueError, RecursionError):
        return content
