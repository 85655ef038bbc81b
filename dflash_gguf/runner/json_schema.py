"""A grammar for a JSON schema, by llama-cpp-python's converter, and what that takes for granted.

Comes in: a schema as text or as a mapping. Goes out: GBNF. Knows nothing of vocabularies.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import SessionError, brief
from dflash_gguf.runner.bounds import LONGEST_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_REPEATED: Final = 1 << 14
"""The converter writes a rule down as often as it may be repeated."""

_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED: Final = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
"""Keywords that hold schemas: by name, in a list, alone."""

UNENFORCED: Final = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired"),
        *("uniqueItems", "contains", "minContains", "maxContains", "not", "if", "then", "else", "dependentSchemas"),
    }
)
"""Keywords that llama-cpp-python's converter leaves out."""

_CHAR: Final = (r'char ::= [^"\\] |', r'char ::= [^"\\\x00-\x1F] |')
"""A character of a text, and that without control characters, which JSON must escape."""

_FORMATS: Final = frozenset({"date", "time", "date-time", "uuid", *(f"uuid{i}" for i in range(1, 6))})

_COUNTS: Final = (("minItems", "maxItems"), ("minLength", "maxLength"))
_ESCAPED: Final = re.compile(r"\\[^u]|\\u00[01]")
_IN_PATTERN: Final = re.compile(r"\{(\d*),?(\d*)\}")


def gbnf_of(schema: object) -> str:
    """GBNF for ``schema``, a JSON text or a mapping. Raises SessionError when it is no JSON schema."""
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        parsed = _parsed(text)
        _check_repetitions(parsed)
        for part in _schemas(parsed):
            _check_literals(part)
        return str(json_schema_to_gbnf(_beside_reference(parsed, text))).replace(*_CHAR)
    except SessionError:
        raise
    except RecursionError:
        raise _too_deep(schema) from None
    except (AssertionError, ValueError) as error:
        reason = brief(str(error)) or "a part of it is not supported"
    except Exception:  # noqa: BLE001  llama_cpp's converter raises whatever the schema's shape leads it into
        reason = "a part of it is not what a schema holds there, or refers to what is not there or to the root"
    raise SessionError(f"`json_schema` cannot be made into a grammar: {reason}", expected="a JSON schema")


def _too_deep(schema: object) -> SessionError:
    """The converter recurses for each level, and for each property that may be left out."""
    try:
        parts = [*_schemas(_parsed(schema if isinstance(schema, str) else json.dumps(schema)))]
    except RecursionError:
        parts = []
    most = max(map(_n_optional, parts), default=0)
    if most < sys.getrecursionlimit() // 4:
        return SessionError("`json_schema` nests too deeply, or refers to itself", expected="a JSON schema")
    return SessionError(
        f"`json_schema` has an object with {most} properties that may be left out, more than a grammar can be made of",
        remedy="name them in `required`, or split it",
    )


def _n_optional(part: dict[str, Any]) -> int:
    properties, required = part.get("properties"), part.get("required")
    needed = required if isinstance(required, list) else []
    return sum(name not in needed for name in properties) if isinstance(properties, dict) else 0


def _beside_reference(schema: dict[str, Any], text: str) -> str:
    """``text``, or where all that ``schema`` says is a reference one that means the same.

    The converter does not look for references in definitions that stand beside one, as pydantic writes a type that
    holds itself.
    """
    if "$ref" not in schema:
        return text
    return json.dumps(schema | {"$ref": None, "anyOf": [{"$ref": schema["$ref"]}]})


def unenforced(schema: object) -> tuple[str, ...]:
    """Keywords of ``schema`` that its grammar does not hold a text to, each once; none when it is no schema."""
    try:
        parsed = _parsed(schema if isinstance(schema, str) else json.dumps(schema))
        found = [name for part in _schemas(parsed) for name in part if _is_unenforced(name, part)]
    except (SessionError, TypeError, ValueError, RecursionError):
        return ()
    return tuple(dict.fromkeys(found))


def _is_unenforced(name: str, part: dict[str, Any]) -> bool:
    if name == "format":
        return part[name] not in _FORMATS
    return name in UNENFORCED or (name == "allOf" and part.get("type", "object") != "object")


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > LONGEST_SCHEMA:
        raise SessionError("`json_schema`", value=f"{len(text)} characters", expected=f"at most {LONGEST_SCHEMA}")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise SessionError(f"`json_schema` is no JSON: {error}", value=brief(text), expected="a JSON schema") from None
    if not isinstance(value, dict):
        raise SessionError("`json_schema`", value=brief(text), expected="a JSON object")
    return value


def _refuse_constant(name: str) -> None:
    raise SessionError("a number in `json_schema`", value=name, expected="one that JSON has")


def _schemas(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """``value`` and every schema in it."""
    waiting: list[object] = [value]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        yield part
        for name in _NAMED:
            named = part.get(name)
            waiting += named.values() if isinstance(named, dict) else []
        for name in _LISTED:
            listed = part.get(name)
            waiting += listed if isinstance(listed, list) else []
        waiting += [part.get(name) for name in _SINGLE]


def _check_literals(part: dict[str, Any]) -> None:
    """Constants and names, which the converter writes down without escaping what JSON escapes; lists that are none."""
    for name in ("enum", "anyOf", "oneOf"):
        if name in part and not (isinstance(part[name], list) and part[name]):
            raise SessionError(f"`{name}` in `json_schema`", value=brief(part[name]), expected="a list that holds some")
    properties = part.get("properties")
    names = [*properties] if isinstance(properties, dict) else []
    for literal in (part.get("const"), *part.get("enum", ()), *names):
        if _ESCAPED.search(json.dumps(literal)):
            raise SessionError(
                "a constant or a name in `json_schema`",
                value=brief(literal),
                expected="no quotes, backslashes or control characters in it",
                remedy="leave its value open, and check the answer",
            )


def _check_repetitions(schema: dict[str, Any]) -> None:
    for part in _objects(schema):
        for names in _COUNTS:
            least, most = (_count(name, part.get(name)) for name in names)
            if least is not None and most is not None and least > most:
                raise SessionError(f"`{names[0]}` in `json_schema`", value=least, expected=f"at most {most}")
        pattern = part.get("pattern")
        for found in _IN_PATTERN.finditer(pattern if isinstance(pattern, str) else ""):
            for digits in filter(None, found.groups()):
                _count("pattern", int(digits[:20]))


def _count(name: str, value: object) -> int | None:
    """A number of repetitions; None where there is none, or a schema of this name stands instead."""
    if value is None or isinstance(value, dict):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_REPEATED:
        raise SessionError(f"`{name}` in `json_schema`", value=brief(value), expected=f"0 to {MOST_REPEATED}")
    return value


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as found:
                yield found
                waiting += found.values()
            case list() as found:
                waiting += found
