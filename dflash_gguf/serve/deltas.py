"""What an answer consists of, piece by piece, and the message that the pieces make.

Comes in: text of known kinds, and calls. Goes out: OpenAI's ``delta`` and ``message`` objects. Knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dflash_gguf.runner.vocabulary import Span


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function. ``arguments``: the JSON text of an object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """A part of call number ``index``: its head, with ``id`` and ``name``, or a piece of its arguments."""

    index: int
    arguments: str
    id: str | None = None
    name: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As an item of a delta's ``tool_calls``."""
        if self.id is None:
            return {"index": self.index, "function": {"arguments": self.arguments}}
        function = {"name": self.name, "arguments": self.arguments}
        return {"index": self.index, "id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Delta:
    """One piece: of the content, of the reasoning, or of calls. ``drafted``: spans of its text."""

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[CallPart, ...] = ()
    drafted: tuple[Span, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As a chunk's ``delta``."""
        if self.tool_calls:
            return {"tool_calls": [part.as_dict() for part in self.tool_calls]}
        return {"reasoning_content": self.reasoning_content} if self.reasoning_content else {"content": self.content}


def parts_of(call: Call, index: int, name: str) -> tuple[Delta, Delta]:
    """The head of a call, and its arguments. ``name`` is the call's own, its ``id``."""
    return (
        Delta(tool_calls=(CallPart(index, "", id=name, name=call.name),)),
        Delta(tool_calls=(CallPart(index, call.arguments),)),
    )


def message_of(deltas: Iterable[Delta]) -> dict[str, Any]:
    """The whole ``message`` that deltas make: its ``content`` is null where there are only calls."""
    content, reasoning, calls = "", "", dict[int, dict[str, Any]]()
    for delta in deltas:
        content += delta.content
        reasoning += delta.reasoning_content
        for part in delta.tool_calls:
            if part.id is not None:
                function = {"name": part.name, "arguments": ""}
                calls[part.index] = {"id": part.id, "type": "function", "function": function}
            calls[part.index]["function"]["arguments"] += part.arguments
    message: dict[str, Any] = {"role": "assistant", "content": content if content or not calls else None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls.values())
    return message
