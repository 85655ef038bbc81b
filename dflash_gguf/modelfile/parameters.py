"""The parameters that a Modelfile can set, as a table: their names, and the type that ollama gives each.

Comes in: names and values, or ``NAME=VALUE`` texts. Goes out: checked values, the lines of a Modelfile.
Source: ollama api/types.go, ``Options`` (v0.33.0-rc2). Legacy names that it only warns of are not here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from dflash_gguf.errors import TemplateError
from dflash_gguf.modelfile.syntax import quoted_value

DEPTH: Final = "draft_num_predict"
STOP: Final = "stop"

TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(
        (
            *("num_keep", "seed", "num_predict", "top_k", "repeat_last_n", "num_ctx", "num_batch", "num_gpu"),
            *("main_gpu", "num_thread", DEPTH),
        ),
        int,
    ),
    **dict.fromkeys(
        (
            *("top_p", "min_p", "typical_p", "temperature"),
            *("repeat_penalty", "presence_penalty", "frequency_penalty"),
        ),
        float,
    ),
    "use_mmap": bool,
    STOP: str,
}
"""Name -> type; `STOP` may be given more than once."""

INT_LIMIT: Final = (1 << 63) - 1
FLOAT_LIMIT: Final = 3.4028235e38

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_EXPECTED: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_BOOLEANS: Final = {"true": True, "false": False}

Value = int | float | bool | str
Parameters = tuple[tuple[str, Value], ...]
Given = Mapping[str, Value | Sequence[str]]


def parsed(texts: Sequence[str]) -> Parameters:
    """Parameters from texts of the form ``NAME=VALUE``; raises `TemplateError` on one that ollama would refuse."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise TemplateError("a parameter", value=text, expected="NAME=VALUE")
        pairs.append((name, _typed(name, value)))
    return _checked(pairs)


def given(values: Given) -> Parameters:
    """Parameters from a mapping; the value of ``stop`` may be a list."""
    pairs: list[tuple[str, object]] = []
    for name, value in values.items():
        several = isinstance(value, Sequence) and not isinstance(value, str)
        pairs += [(name, item) for item in value] if several else [(name, value)]  # type: ignore[union-attr]
    return _checked(pairs)


def lines(parameters: Parameters) -> str:
    """The commands that set them, each on a line."""
    return "".join(f"PARAMETER {name} {_spelt(value)}\n" for name, value in parameters)


def as_options(parameters: Parameters) -> dict[str, object]:
    """What the API takes: ``stop`` as a list, everything else as it is."""
    options: dict[str, object] = {name: value for name, value in parameters if name != STOP}
    stops = [value for name, value in parameters if name == STOP]
    return options | ({STOP: stops} if stops else {})


def _checked(pairs: Sequence[tuple[str, object]]) -> Parameters:
    found: list[tuple[str, Value]] = []
    for name, value in pairs:
        if name not in TYPES:
            raise TemplateError("unknown parameter", value=name, expected=f"one of {', '.join(sorted(TYPES))}")
        if name == DEPTH:
            raise TemplateError(f"`{DEPTH}` among the parameters", remedy="it is an option of its own")
        if name != STOP and any(name == other for other, _ in found):
            raise TemplateError(f"parameter `{name}` is given twice", remedy="give it once")
        found.append((name, _valid(name, value)))
    return tuple(found)


def _valid(name: str, value: object) -> Value:
    kind = TYPES[name]
    if kind is float and type(value) is int:
        value = float(value) if abs(value) <= INT_LIMIT else value
    good = type(value) is kind
    if isinstance(value, int) and abs(value) > INT_LIMIT:
        good = False
    if isinstance(value, float) and not (math.isfinite(value) and abs(value) <= FLOAT_LIMIT):
        good = False
    if not good or not isinstance(value, int | float | str):
        raise TemplateError(f"parameter `{name}`", value=value, expected=_EXPECTED[kind])
    if isinstance(value, str):
        quoted_value(value)
    return value


def _typed(name: str, text: str) -> object:
    """A text in the type of its parameter; a text that has another form stays one, and is refused as that."""
    kind = TYPES.get(name, str)
    if kind is int and _INTEGER.fullmatch(text) and len(text) < 24:
        return int(text)
    if kind is float and _NUMBER.fullmatch(text) and len(text) < 64:
        return float(text)
    return _BOOLEANS.get(text, text) if kind is bool else text


def _spelt(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return quoted_value(value) if isinstance(value, str) else str(value)
