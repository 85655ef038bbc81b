"""A grammar for Gemma 4's calls, whose values are no JSON.

Comes in: functions. Goes out: the body of a grammar's rule for a call of one of them, and rules. Parameters are held to
their types and listed texts; what is inside of objects and lists is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.serve.grammars import literal, until
from dflash_gguf.serve.tool_calls import gemma_calls
from dflash_gguf.serve.tool_calls.values import choices, kinds_of, needed_of, properties_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.serve.tool_calls.form import Tools

_QUOTE: Final = literal(gemma_calls.QUOTE)
_BY_KIND: Final = {
    "string": "gemma-text",
    "integer": "gemma-whole",
    "number": "gemma-number",
    "boolean": "gemma-bool",
    "null": '"null"',
    "array": "gemma-list",
    "object": "gemma-dict",
}
RULES: Final = (
    'gemma-dict ::= "{" ( gemma-pair ( "," gemma-pair )* )? "}"',
    'gemma-pair ::= [A-Za-z0-9_.-]+ ":" gemma-value',
    'gemma-list ::= "[" ( gemma-value ( "," gemma-value )* )? "]"',
    f"gemma-value ::= {' | '.join(_BY_KIND.values())}",
    f"gemma-text ::= {_QUOTE} gemma-end-0",
    'gemma-whole ::= "-"? ( "0" | [1-9] [0-9]* )',
    'gemma-number ::= gemma-whole ( "." [0-9]+ )? ( "e" [-+]? [0-9]+ )?',
    'gemma-bool ::= "true" | "false"',
    *until(gemma_calls.QUOTE, "gemma-end"),
)


def body(tools: Tools) -> str:
    """A call of one of ``tools``: parameters that are needed first, in the schema's order, then others."""
    return f"( {' | '.join(_call(name, schema) for name, schema in tools.items())} )"


def _call(name: str, schema: Mapping[str, Any]) -> str:
    properties, needed = properties_of(schema), needed_of(schema)
    fixed = ' "," '.join(_pair(schema, key) for key in needed)
    others = " | ".join(_pair(schema, key) for key in properties if key not in needed)
    if not properties:
        arguments = ""
    elif not others:
        arguments = fixed
    elif not fixed:
        arguments = f'( ( {others} ) ( "," ( {others} ) )* )?'
    else:
        arguments = f'{fixed} ( "," ( {others} ) )*'
    opening = literal(f"{gemma_calls.OPENING}call:{name}{{")
    return f"{opening} {arguments} {literal('}' + gemma_calls.CLOSING)}"


def _pair(schema: Mapping[str, Any], key: str) -> str:
    plain = choices(schema, key)
    kinds = [rule for kind, rule in _BY_KIND.items() if kind in kinds_of(schema, key)]
    values = [literal(f"{gemma_calls.QUOTE}{text}{gemma_calls.QUOTE}") for text in plain] or kinds or ["gemma-value"]
    return f"{literal(f'{key}:')} ( {' | '.join(values)} )"
