"""A grammar for a JSON schema, by llama-cpp-python's converter, and what that takes for granted.

Comes in: a schema as text or as a mapping. Goes out: GBNF. Knows nothing of vocabularies.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import SessionError, brief

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_REPEATED: Final = 1 << 14
"""The converter writes a rule down as often as it may be repeated."""

_COUNTS: Final = (("minItems", "maxItems"), ("minLength", "maxLength"))
_IN_PATTERN: Final = re.compile(r"\{(\d*),?(\d*)\}")


def gbnf_of(schema: object) -> str:
    """GBNF for ``schema``, a JSON text or a mapping. Raises SessionError when it is no JSON schema."""
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        _check_repetitions(_parsed(text))
        return str(json_schema_to_gbnf(text))
    except SessionError:
        raise
    except RecursionError:
        raise SessionError("`json_schema` nests too deeply, or refers to itself", expected="a JSON schema") from None
    except Exception as error:  # noqa: BLE001  llama_cpp's converter raises whatever the schema's shape leads it into
        raise SessionError(
            f"`json_schema` cannot be made into a grammar: {brief(str(error))}", expected="a JSON schema"
        ) from None


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise SessionError(f"`json_schema` is no JSON: {error}", value=brief(text), expected="a JSON schema") from None
    if not isinstance(value, dict):
        raise SessionError("`json_schema`", value=brief(text), expected="a JSON object")
    return value


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
