"""Grammars in GBNF for what follows a model's thinking.

Comes in: how the model thinks, the prompt, and what must follow. Goes out: GBNF. Knows nothing of vocabularies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import SessionError
from dflash_gguf.runner.json_schema import gbnf_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dflash_gguf.runner.thinking import Form

HARMONY: Final = "<|channel|>"
DEFINITIONS: Final = ("$defs", "definitions")
"""Where a schema keeps those that it refers to."""
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "[": "\\[", "]": "\\]"}
_THOUGHT: Final = "dflash-thought"
_BODY: Final = "dflash-body"
_ROOT: Final = "root ::= "


def literal(text: str) -> str:
    """A terminal that is ``text``."""
    return '"' + "".join(_ESCAPES.get(char, char) if char not in "[]" else char for char in text) + '"'


def until(mark: str, name: str) -> list[str]:
    """Rules of which the first, ``name-0``, is any text up to the first ``mark``, and that mark.

    One rule for each state of the automaton that looks for it, so that no text is written which would hold it earlier.
    """
    chars = sorted(set(mark))
    rules = []
    for state in range(len(mark)):
        steps = []
        for char in chars:
            seen = mark[:state] + char
            after = next(n for n in range(len(seen), -1, -1) if seen.endswith(mark[:n]))
            steps.append(literal(char) + ("" if after == len(mark) else f" {name}-{after}"))
        others = "".join(_ESCAPES.get(char, char) for char in chars)
        rules.append(f"{name}-{state} ::= {' | '.join(steps)} | [^{others}] {name}-0")
    return rules


def rules_of(schemas: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Names of rules for JSON values, one for each schema; and all rules that they need.

    Raises SessionError for what is no JSON schema.
    """
    if not schemas:
        return [], []
    if len(schemas) == 1:  # by itself, so that it may refer to any part of its own
        (root,), others = _lines(schemas[0])
        return ["dflash-json"], [f"dflash-json ::= {root}", *others]
    try:
        hoisted = [_hoisted(schema, f"dflash-{number}-") for number, schema in enumerate(schemas)]
    except RecursionError:
        raise SessionError("a JSON schema nests too deeply") from None
    definitions = {name: each for _, found in hoisted for name, each in found.items()}
    (root,), others = _lines({"anyOf": [schema for schema, _ in hoisted], "$defs": definitions})
    return root.split(" | "), others


def _lines(schema: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The body of the rule ``root``, and the other rules."""
    lines = gbnf_of(schema).splitlines()
    roots = [line.removeprefix(_ROOT) for line in lines if line.startswith(_ROOT)]
    return roots, [line for line in lines if not line.startswith(_ROOT)]


def after_thinking(body: str, rules: Sequence[str], form: Form | None, prompt: str) -> str:
    """A grammar for ``body``, with thinking before it as the model has it: none once a prompt has closed it."""
    rules = [f"{_BODY} ::= {body}", *rules]
    end = next(iter(form.stages["thinking"].marks)) if form else ""
    if form is None or prompt.rstrip().endswith(end):
        return "\n".join([f"root ::= {_BODY}", *rules])
    thought = f"{_THOUGHT}-0 dflash-blank {_BODY}"
    if form.sign == HARMONY:
        thought = f"{_THOUGHT}-0 {literal('<|start|>assistant')} dflash-start"
    start = f"dflash-start ::= {literal(form.tail)} {thought} | {_BODY}"
    root = f"root ::= {thought if form.opened_by(prompt) else 'dflash-start'}"
    return "\n".join([root, start, "dflash-blank ::= [ \\n]*", *until(end, _THOUGHT), *rules])


def _hoisted(schema: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """``schema`` without its definitions, and these, under names that no other schema has."""
    named = [(place, name) for place in DEFINITIONS for name in _in(schema, place)]
    moved = {f"#/{place}/{name}": f"{prefix}{number}" for number, (place, name) in enumerate(named)}
    bare = {name: value for name, value in schema.items() if name not in DEFINITIONS}
    found = {moved[f"#/{place}/{name}"]: schema[place][name] for place, name in named}
    return _renamed(bare, moved), _renamed(found, moved)


def _in(schema: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    found = schema.get(place)
    return found if isinstance(found, dict) else {}


def _renamed(value: Any, moved: Mapping[str, str]) -> Any:
    """``value`` with its references to what was moved."""
    if isinstance(value, list):
        return [_renamed(each, moved) for each in value]
    if not isinstance(value, dict):
        return value
    path = value.get("$ref")
    if isinstance(path, str) and path in moved:
        return {**value, "$ref": f"#/$defs/{moved[path]}"}
    return {name: _renamed(each, moved) for name, each in value.items()}
