"""A client's messages as chat templates read them.

Comes in: messages of OpenAI's API, and the target's template. Goes out: messages for `Session.render`. Templates differ
in what they call an earlier answer's thinking, and in whether arguments of calls are objects or their text.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from dflash_gguf.errors import TemplateError, brief
from dflash_gguf.runner.conversation import THINKING_FIELDS
from dflash_gguf.serve.errors import ApiError
from dflash_gguf.serve.turns import arranged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dflash_gguf.runner.chat import ChatTemplate, Message

Arguments = Literal["object", "text"]

MOST_CALLS: Final = 1024
"""Of one message: some templates want calls and results in another order, which takes longer than they are many."""

_PROBES: Final = 64
"""Arguments that are looked for in a prompt, at the most: each is a search through all of it."""

_THOUGHTS: Final = ("reasoning_content", "reasoning", "thinking")
"""How clients call what an earlier answer thought."""


def rendered(messages: Sequence[Message], template: ChatTemplate, render: Callable[[list[Message]], str]) -> str:
    """The prompt that ``render`` makes of ``messages``.

    Arguments of calls are given as objects; as text to a template that fails on these, or writes them as Python does.
    """
    objects = adapted(messages, template, "object")
    shown = [str(value) for value in islice(filter(None, _arguments(objects)), _PROBES)]
    try:
        text = render(objects)
    except TemplateError:
        if not shown:
            raise
        try:
            return render(adapted(messages, template, "text"))
        except TemplateError:
            pass
        raise
    return render(adapted(messages, template, "text")) if any(each in text for each in shown) else text


def described(tools: Sequence[Mapping[str, Any]], template: ChatTemplate) -> list[Mapping[str, Any]]:
    """Tools with a description each, which gpt-oss' template adds to a text; for other templates as they are."""
    if '"// " + tool.description' not in template.source:
        return list(tools)
    return [{**tool, "function": _described(tool["function"])} for tool in tools]


def _described(function: Mapping[str, Any]) -> dict[str, Any]:
    return {**function, "description": function.get("description") or ""}


def adapted(messages: Sequence[Message], template: ChatTemplate, arguments: Arguments) -> list[Message]:
    """Messages with the names and types that ``template`` reads."""
    called: dict[Any, str] = {}
    found = [_adapted(number, message, template, arguments, called) for number, message in enumerate(messages)]
    return arranged(found, template.source)


def _adapted(
    number: int, message: Message, template: ChatTemplate, arguments: Arguments, called: dict[Any, str]
) -> Message:
    role = message.get("role")
    if role == "developer" and "developer" not in template.source:
        return {**message, "role": "system"}
    if role == "tool" and "name" not in message and _key(message.get("tool_call_id")) in called:
        return {**message, "name": called[_key(message.get("tool_call_id"))]}
    return _of_assistant(number, message, template, arguments, called) if role == "assistant" else message


def _of_assistant(
    number: int, message: Message, template: ChatTemplate, arguments: Arguments, called: dict[Any, str]
) -> Message:
    found = {name: value for name, value in message.items() if name not in (*_THOUGHTS, "tool_calls")}
    content = message.get("content")
    found["content"] = "" if content is None else content  # templates add to it
    thought = next((message[name] for name in _THOUGHTS if isinstance(message.get(name), str)), "")
    field = next((name for name in THINKING_FIELDS if name in template.source), None)
    if thought and field:
        found[field] = thought
    calls = message.get("tool_calls")
    if calls is None:
        return found
    if not isinstance(calls, list) or len(calls) > MOST_CALLS:
        raise _wrong(number, "tool_calls", calls, f"a list of at most {MOST_CALLS} calls")
    if calls:
        found["tool_calls"] = [_call(number, i, call, arguments) for i, call in enumerate(calls)]
        called |= {_key(call.get("id")): call["function"]["name"] for call in found["tool_calls"]}
        if field == "thinking" and thought and isinstance(found["content"], str) and found["content"]:
            # gpt-oss' template takes one of the two beside a call, and writes either as thinking.
            found |= {"content": "", field: f"{thought}\n{found['content']}"}
    return found


def _call(number: int, i: int, call: Any, arguments: Arguments) -> dict[str, Any]:
    where = f"tool_calls[{i}]"
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise _wrong(number, where, call, "a call with a `function` that has a `name` and `arguments`")
    value = function.get("arguments")
    given = value if isinstance(value, dict) else _object(value, number, f"{where}.function.arguments")
    text = value if isinstance(value, str) and value.strip() else json.dumps(given, ensure_ascii=False)
    return {**call, "type": "function", "function": {**function, "arguments": given if arguments == "object" else text}}


def _object(value: Any, number: int, where: str) -> dict[str, Any]:
    """The arguments of a call that was made without any, or of the text that OpenAI's API has."""
    try:
        found = json.loads(value.strip() or "{}") if isinstance(value, str) else {} if value is None else value
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _wrong(number, where, value, "the JSON text of an object")
    return found


def _arguments(messages: Sequence[Message]) -> Iterator[Mapping[str, Any]]:
    return (
        call["function"]["arguments"]
        for message in messages
        if message.get("role") == "assistant"
        for call in message.get("tool_calls", ())
    )


def _key(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _wrong(number: int, where: str, value: object, expected: str) -> ApiError:
    name = f"messages[{number}].{where}"
    return ApiError(f"`{name}`", param=name, value=brief(value), expected=expected)
