"""Kinds of values that a request's fields may have: each with its check and its JSON schema.

Comes in: values as JSON gives them. Goes out: the same checked, or ApiError with the field's name. Knows nothing of
what fields mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import brief
from dflash_gguf.serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dflash_gguf.limits import Range
    from dflash_gguf.runner.bounds import Bounds

LONGEST_LIST: Final = 1 << 20


class WrongError(Exception):
    """A value that is none of a kind."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``take`` gives the value as it is used, or raises WrongError; ``expected`` says what it takes."""

    expected: str
    schema: Mapping[str, Any]
    take: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a request. ``needed``: there must be one; null is none."""

    name: str
    kind: Kind
    help: str
    needed: bool = False

    def take(self, body: Mapping[str, Any]) -> Any:
        """The checked value; None when the body has none."""
        value = body.get(self.name)
        if value is None:
            if self.needed:
                raise ApiError(f"`{self.name}` is missing", param=self.name, expected=self.kind.expected)
            return None
        try:
            return self.kind.take(value)
        except WrongError:
            raise ApiError(f"`{self.name}`", param=self.name, value=brief(value), expected=self.kind.expected) from None

    @property
    def schema(self) -> dict[str, Any]:
        """Of its values, for the OpenAPI document."""
        kind = dict(self.kind.schema)
        if self.needed:
            return {**kind, "description": self.help}
        if isinstance(kind.get("type"), str):
            kind["type"] = [kind["type"], "null"]
        else:
            kind = {"anyOf": [kind, {"type": "null"}]}
        return {**kind, "description": self.help}


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one route."""

    table: Sequence[Field] = field(default_factory=tuple)

    def take(self, body: Any) -> dict[str, Any]:
        """Checked values by name, those alone that were given."""
        if not isinstance(body, dict):
            raise ApiError("the body", value=type(body).__name__, expected="a JSON object")
        values = {one.name: one.take(body) for one in self.table}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def schema(self) -> dict[str, Any]:
        """Of the body, for the OpenAPI document: fields that are not named are ignored."""
        needed = [one.name for one in self.table if one.needed]
        properties = {one.name: one.schema for one in self.table}
        return {"type": "object", "properties": properties, **({"required": needed} if needed else {})}


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongError
    return value


SWITCH: Final = Kind("true or false", {"type": "boolean"}, _bool)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongError
    return value


TEXT: Final = Kind("text", {"type": "string"}, _text)


def _words(value: Any) -> str:
    if not _text(value):
        raise WrongError
    return str(value)


WORDS: Final = Kind("text that is not empty", {"type": "string", "minLength": 1}, _words)


def short_text(most: int) -> Kind:
    """Text of at most so many code points."""

    def take(value: Any) -> str:
        if len(_text(value)) > most:
            raise WrongError
        return str(value)

    return Kind(f"text of at most {most} characters", {"type": "string", "maxLength": most}, take)


def number(bounds: Bounds) -> Kind:
    """A number within ``bounds``."""

    def take(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not bounds.least <= value <= bounds.most:
            raise WrongError
        return float(value)

    schema = {"type": "number", "minimum": bounds.least, "maximum": bounds.most}
    return Kind(str(bounds), schema, take)


def whole(allowed: Range) -> Kind:
    """A whole number of a range; JSON knows one kind of number, so that 3.0 is one."""

    def take(value: Any) -> int:
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not allowed.least <= value <= allowed.most:
            raise WrongError
        return value

    schema = {"type": "integer", "minimum": allowed.least, "maximum": allowed.most}
    return Kind(f"a whole number from {allowed.least} to {allowed.most}", schema, take)


def one_or_more(kind: Kind, most: int) -> Kind:
    """A value of a kind, or a list of up to ``most`` such values; taken as a tuple."""

    def take(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            return (kind.take(value),)
        if len(value) > most:
            raise WrongError
        return tuple(kind.take(one) for one in value)

    schema = {"anyOf": [dict(kind.schema), {"type": "array", "items": dict(kind.schema), "maxItems": most}]}
    return Kind(f"{kind.expected}, or a list of at most {most}", schema, take)


def list_of(kind: Kind, least: int = 0, most: int = LONGEST_LIST) -> Kind:
    """A list of values of a kind."""

    def take(value: Any) -> list[Any]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise WrongError
        return [kind.take(one) for one in value]

    schema = {"type": "array", "items": dict(kind.schema), "minItems": least, "maxItems": most}
    return Kind(f"a list of {kind.expected}", schema, take)


def either(*kinds: Kind) -> Kind:
    """A value of the first of the kinds that takes it."""

    def take(value: Any) -> Any:
        for kind in kinds:
            try:
                return kind.take(value)
            except WrongError:
                continue
        raise WrongError

    return Kind(", or ".join(kind.expected for kind in kinds), {"anyOf": [dict(k.schema) for k in kinds]}, take)


def only(*values: Any) -> Kind:
    """One of a few values."""

    def take(value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in values):
            raise WrongError
        return value

    return Kind(", or ".join(map(repr, values)), {"enum": list(values)}, take)


def record(expected: str, schema: Mapping[str, Any] | None = None) -> Kind:
    """An object, whose inside is checked elsewhere."""

    def take(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise WrongError
        return value

    return Kind(expected, schema or {"type": "object"}, take)
