"""The field ``response_format``: what an answer must be.

Comes in: a request's fields. Goes out: a JSON schema, None for plain text, or ApiError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import brief
from dflash_gguf.runner.json_schema import unenforced
from dflash_gguf.serve.errors import FORMAT, ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELD: Final = FORMAT
ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}


def schema_of(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema that the answer must follow. ``strict`` is refused for what the grammar would leave out."""
    value = values.get(FIELD, {"type": "text"})
    kind = value.get("type")
    if kind == "text":
        return None
    if other := next((name for name in ("grammar", "json_schema") if name in values), None):
        raise ApiError(f"`{FIELD}` and `{other}`", param=FIELD, expected="one of the two")
    if kind == "json_object":  # with a schema: llama.cpp's
        return _schema(value.get("schema", ANY_OBJECT), "schema")
    if kind != "json_schema":
        raise ApiError(f"`{FIELD}.type`", param=FIELD, value=brief(kind), expected="text, json_object or json_schema")
    given = value.get("json_schema")
    if not isinstance(given, dict):
        raise ApiError(f"`{FIELD}.json_schema`", param=FIELD, value=brief(given), expected="an object with a `schema`")
    schema = _schema(given.get("schema"), "json_schema.schema")
    left_out = unenforced(schema) if given.get("strict") is True else ()
    if left_out:
        raise ApiError(
            f"`{FIELD}.json_schema.strict` cannot be kept",
            param=FIELD,
            value=", ".join(left_out),
            expected="keywords that a grammar can hold a text to",
            remedy="leave them out, or `strict`",
        )
    return schema


def _schema(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ApiError(f"`{FIELD}.{where}`", param=FIELD, value=brief(value), expected="a JSON schema")
    return value
