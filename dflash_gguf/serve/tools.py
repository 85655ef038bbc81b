"""The functions that a request offers, and whether one of them must be called.

Comes in: the fields ``tools``, ``tool_choice`` and ``parallel_tool_calls``. Goes out: one frozen value, or ApiError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import brief
from dflash_gguf.serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.serve.tool_calls.form import Tools

MOST_TOOLS: Final = 128
"""OpenAI's."""
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
CHOICES: Final = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class Offer:
    """``listed``: tools as the template takes them; ``schemas``: of their parameters, by name.

    ``forced``: of the names one must be called; ``many``: more than one call may be written.
    """

    listed: tuple[Mapping[str, Any], ...] = ()
    schemas: Tools = field(default_factory=dict)
    forced: tuple[str, ...] = ()
    many: bool = True

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Offer:
        """Of a request's fields. With the choice ``none`` nothing is offered."""
        listed = tuple(_tool(number, tool) for number, tool in enumerate(values.get("tools", ())))
        schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in listed}
        if len(schemas) < len(listed):
            raise ApiError("`tools`", param="tools", expected="functions of different names")
        choice = values.get("tool_choice", "auto")
        if choice == "none":
            return cls()
        forced = _forced(choice, schemas)
        many = values.get("parallel_tool_calls", True) and not isinstance(choice, dict)
        return cls(listed, schemas, forced, many)


def _tool(number: int, tool: Mapping[str, Any]) -> Mapping[str, Any]:
    where = f"tools[{number}]"
    if tool.get("type") != "function":
        raise _wrong(f"{where}.type", tool.get("type"), "'function'")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise _wrong(f"{where}.function", function, "an object")
    name = function.get("name")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise _wrong(f"{where}.function.name", name, "letters, digits, `_`, `-` and `.`, at most 128")
    for key, kind, expected in (("description", str, "text"), ("parameters", dict, "a JSON schema")):
        if not isinstance(function.get(key), kind | None):
            raise _wrong(f"{where}.function.{key}", function[key], expected)
    return tool


def _forced(choice: Any, schemas: Tools) -> tuple[str, ...]:
    if choice == "auto":
        return ()
    if choice == "required":
        if not schemas:
            raise ApiError("`tool_choice`", param="tool_choice", value="required", expected="`tools` to choose from")
        return tuple(schemas)
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) and choice.get("type") == "function" else None
    if not isinstance(name, str) or name not in schemas:
        expected = 'one of "auto", "none", "required", or {"type": "function", "function": {"name": ...}} of a tool'
        raise ApiError("`tool_choice`", param="tool_choice", value=brief(choice), expected=expected)
    return (name,)


def _wrong(where: str, value: object, expected: str) -> ApiError:
    return ApiError(f"`{where}`", param=where, value=brief(value), expected=expected)
