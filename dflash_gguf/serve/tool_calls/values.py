"""Values of arguments that a model wrote as plain text, typed by the function's JSON schema.

Comes in: a text, and the schema of the parameters. Goes out: a JSON value. A text that is not what the schema asks for
stays a text: whoever is called has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dflash_gguf.serve.tool_calls.form import MalformedCallError, loads

_PYTHON: Final[Mapping[str, Any]] = {"True": True, "False": False, "None": None}
"""Templates write these values as Jinja does, and models repeat that."""

_KINDS: Final[Mapping[str, Any]] = {
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}
_FARTHEST: Final = 8
"""References behind references that are followed for a parameter's choices."""


def typed(text: str, parameters: Mapping[str, Any], key: str) -> Any:
    """The value of parameter ``key``: the text itself where the schema says nothing else of it."""
    if is_plain(parameters, key):
        return text
    kinds = kinds_of(parameters, key)
    value = _plain(text)
    if not kinds:  # any value
        return text if value is None and text.strip() != "null" else value
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None or text.strip() in ("null", "None"):
        return value if any(kind in _KINDS and _KINDS[kind](value) for kind in kinds) else text
    return text


def is_plain(parameters: Mapping[str, Any], key: str) -> bool:
    """Whether the value of parameter ``key`` is a text whatever it looks like: as for one that is not known."""
    known = isinstance(properties_of(parameters).get(key), Mapping)
    return not known or kinds_of(parameters, key) == {"string"}


def properties_of(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schemas of parameters, by name."""
    found = parameters.get("properties")
    return found if isinstance(found, Mapping) else {}


def needed_of(parameters: Mapping[str, Any]) -> list[str]:
    """Names of the parameters that a call must give, each once."""
    required = parameters.get("required")
    names = filter(_is_text, required if isinstance(required, list) else [])
    return [name for name in dict.fromkeys(names) if name in properties_of(parameters)]


def choices(parameters: Mapping[str, Any], key: str) -> list[str]:
    """The texts that parameter ``key`` may be, where its schema lists them; none where it does not."""
    schema = properties_of(parameters).get(key)
    for _ in range(_FARTHEST):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            break
        schema = _referred(schema["$ref"], parameters)
    listed = schema.get("enum") if isinstance(schema, Mapping) else None
    return [each for each in listed if _is_text(each)] if isinstance(listed, list) else []


def kinds_of(parameters: Mapping[str, Any], key: str) -> frozenset[str]:
    """JSON's types that parameter ``key``, which has a schema, may be of; none: any."""
    return frozenset(_kinds(parameters["properties"][key], parameters))


def _plain(text: str) -> Any:
    """The JSON value that ``text`` is; None when it is none."""
    bare = text.strip()
    if bare in _PYTHON:
        return _PYTHON[bare]
    try:
        return loads(bare)
    except MalformedCallError:
        return None


def _kinds(schema: Any, root: Mapping[str, Any]) -> Iterator[str]:
    """The types that a schema allows; none where it names none. Schemas may refer to one another: each is read once."""
    waiting, seen = [schema], set[int]()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        yield from _own_kinds(part)
        for name in ("anyOf", "oneOf", "allOf"):
            parts = part.get(name)
            waiting += parts if isinstance(parts, list) else []
        if isinstance(part.get("$ref"), str):
            waiting.append(_referred(part["$ref"], root))


def _own_kinds(schema: Mapping[str, Any]) -> Iterator[str]:
    """The types that a schema names itself."""
    kind = schema.get("type")
    yield from [kind] if isinstance(kind, str) else filter(_is_text, kind if isinstance(kind, list) else [])
    if schema.get("nullable") is True:
        yield "null"
    if kind is None and isinstance(schema.get("enum"), list) and all(map(_is_text, schema["enum"])):
        yield "string"


def _referred(path: str, root: Mapping[str, Any]) -> Any:
    """The schema that ``#/...`` stands for; None when there is none."""
    found: Any = root
    for name in path.removeprefix("#/").split("/"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str)
