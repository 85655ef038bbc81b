"""Grammars for calls, for answers that must hold one.

Comes in: the functions of which one is to be called. Goes out: a plan of a grammar's part, by the form's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.serve.grammars import DEFINITIONS, literal, until
from dflash_gguf.serve.tool_calls import forced_gemma, xml_calls
from dflash_gguf.serve.tool_calls.form import Tools, dumps
from dflash_gguf.serve.tool_calls.values import choices, is_plain, needed_of, properties_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_VALUE: Final = "dflash-value"


@dataclass(frozen=True, slots=True)
class Plan:
    """``body`` makes a call of the names of rules for values of ``schemas``; it needs ``rules`` beside them."""

    schemas: Sequence[Mapping[str, Any]]
    body: Callable[[Sequence[str]], str]
    rules: list[str] = field(default_factory=list)


def _json(tools: Tools) -> Plan:
    return _of_objects(tools, lambda name: f'<tool_call>\n{{"name": {dumps(name)}, "arguments": ', "}\n</tool_call>")


def _harmony(tools: Tools) -> Plan:
    channel = "<|channel|>commentary to=functions."
    return _of_objects(tools, lambda name: f"{channel}{name} <|constrain|>json<|message|>", "")


def _of_objects(tools: Tools, head: Callable[[str], str], tail: str) -> Plan:
    """Arguments as one JSON object, between a head and a tail."""

    def body(rules: Sequence[str]) -> str:
        return _any_of(f"{literal(head(name))} {rule} {literal(tail)}" for name, rule in zip(tools, rules, strict=True))

    return Plan([{"type": "object", **schema} for schema in tools.values()], body)


def _xml(tools: Tools) -> Plan:
    """A tag for each argument: those that are needed, then others, each in the schema's order."""
    places = [(name, key) for name, schema in tools.items() for key in _typed_keys(schema)]

    def body(rules: Sequence[str]) -> str:
        kinds = dict(zip(places, rules, strict=True))
        return _any_of(_xml_call(name, schema, kinds) for name, schema in tools.items())

    schemas = [{**_definitions(tools[name]), **tools[name]["properties"][key]} for name, key in places]
    return Plan(schemas, body, until("\n</parameter>\n", _VALUE))


def _xml_call(name: str, schema: Mapping[str, Any], kinds: Mapping[tuple[str, str], str]) -> str:
    properties, needed = properties_of(schema), needed_of(schema)
    end = literal("\n</parameter>\n")
    arguments = []
    for key in [*needed, *(key for key in properties if key not in needed)]:
        kind = kinds.get((name, key))
        plain = choices(schema, key)
        listed = f"{_any_of(map(literal, plain))} {end}" if plain else f"{_VALUE}-0"
        argument = f"{literal(f'<parameter={key}>' + chr(10))} " + (f"{kind} {end}" if kind else listed)
        arguments.append(argument if key in needed else f"( {argument} )?")
    opening = literal(f"{xml_calls.OPENING}\n{xml_calls.FUNCTION}{name}>\n")
    return " ".join([opening, *arguments, literal(f"{xml_calls.FUNCTION_END}\n{xml_calls.CLOSING}")])


def _typed_keys(schema: Mapping[str, Any]) -> list[str]:
    """Parameters whose values are no plain text."""
    return [key for key in properties_of(schema) if not is_plain(schema, key)]


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: schema[name] for name in DEFINITIONS if name in schema}


def _any_of(parts: Iterable[str]) -> str:
    return f"( {' | '.join(parts)} )"


def _gemma(tools: Tools) -> Plan:
    return Plan([], lambda _: forced_gemma.body(tools), list(forced_gemma.RULES))


PLANS: Final[Mapping[str, Callable[[Tools], Plan]]] = {
    "json": _json,
    "harmony": _harmony,
    "xml": _xml,
    "gemma4": _gemma,
}
"""Name of a form -> what plans its calls."""
