"""JSON schemas of what is nested in a request: messages, functions, formats of an answer.

Comes in: nothing. Goes out: plain dictionaries for the OpenAPI document. What they say is checked where the values are
read: `runner.chat`, `messages`, `tools`, `response_format`.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_OBJECT: Final[Schema] = {"type": "object"}
_PART: Final[Schema] = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": _TEXT},
    "required": ["type", "text"],
}
_CONTENT: Final[Schema] = {"anyOf": [_TEXT, {"type": "array", "items": _PART}]}
_CALL: Final[Schema] = {
    "type": "object",
    "properties": {
        "function": {
            "type": "object",
            "properties": {
                "name": _TEXT,
                "arguments": {
                    "anyOf": [_TEXT, _OBJECT, {"type": "null"}],
                    "description": "An object, or its JSON text.",
                },
            },
            "required": ["name"],
        },
    },
    "required": ["function"],
}
_SAID: Final[Schema] = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "not": {"const": "assistant"}, "description": "Such as user, system or tool."},
        "content": _CONTENT,
    },
    "required": ["role", "content"],
}
_ANSWERED: Final[Schema] = {
    "type": "object",
    "properties": {
        "role": {"const": "assistant"},
        "content": {"anyOf": [*_CONTENT["anyOf"], {"type": "null"}]},
        "tool_calls": {"anyOf": [{"type": "array", "items": _CALL}, {"type": "null"}]},
    },
    "required": ["role"],
}
MESSAGE: Final[Schema] = {"anyOf": [_SAID, _ANSWERED]}


def tool(name: str) -> Schema:
    """A function that may be called; ``name`` is the pattern of names."""
    function = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": f"^{name}$"},
            "description": {"type": ["string", "null"]},
            "parameters": {"type": ["object", "null"], "description": "A JSON schema."},
        },
        "required": ["name"],
    }
    properties = {"type": {"const": "function"}, "function": function}
    return {"type": "object", "properties": properties, "required": ["type", "function"]}


TOOL_CHOICE: Final[Schema] = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {"type": "object", "properties": {"name": _TEXT}, "required": ["name"]},
    },
    "required": ["type", "function"],
}

RESPONSE_FORMAT: Final[Schema] = {
    "anyOf": [
        {"type": "object", "properties": {"type": {"const": "text"}}, "required": ["type"]},
        {"type": "object", "properties": {"type": {"const": "json_object"}, "schema": _OBJECT}, "required": ["type"]},
        {
            "type": "object",
            "properties": {
                "type": {"const": "json_schema"},
                "json_schema": {"type": "object", "properties": {"schema": _OBJECT}, "required": ["schema"]},
            },
            "required": ["type", "json_schema"],
        },
    ]
}

STREAM_OPTIONS: Final[Schema] = {"type": "object", "properties": {"include_usage": {"type": ["boolean", "null"]}}}
