"""What a function's JSON schema says of its parameters."""

from __future__ import annotations

import pytest

from dflash_gguf.serve.tool_calls.values import kinds_of, needed_of, typed

MANY = 1000
TURNING = {
    "properties": {"a": {"$ref": "#/$defs/d"}, "b": {"$ref": "#/$defs/own"}},
    "$defs": {
        "d": {"anyOf": [{"$ref": "#/$defs/d"}] * MANY + [{"$ref": "#/$defs/n"}]},
        "n": {"oneOf": [{"type": ["integer", "null"]}, {"$ref": "#/$defs/d"}]},
        "own": {"$ref": "#/$defs/own"},
    },
}


def test_schemas_that_refer_to_one_another_are_read_once_each():
    assert kinds_of(TURNING, "a") == {"integer", "null"}
    assert kinds_of(TURNING, "b") == frozenset()
    assert typed("7", TURNING, "a") == 7
    assert typed("seven", TURNING, "a") == "seven"


@pytest.mark.parametrize(
    ("required", "names"),
    [
        (["b", "a"], ["b", "a"]),
        (["b", "b", "c"], ["b"]),
        ([["a"], {"a": 1}, 1, None, "a"], ["a"]),
        ("a", []),
        (None, []),
    ],
)
def test_parameters_that_a_call_must_give(required, names):
    assert needed_of({"properties": {"a": {}, "b": {}}, "required": required}) == names
    assert needed_of({"properties": ["a"], "required": ["a"]}) == []
