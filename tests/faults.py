"""A pair with one thing wrong, and edits that make it so.

Comes in: nothing. Goes out: what a case is made of, for the tables of `faulty_drafters` and `faulty_targets`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gguf_bytes as raw
from tiny_vocab import tokenizer_keys

from dflash_gguf.ggml_types import BY_NAME, tensor_bytes

if TYPE_CHECKING:
    from gguf_parts import Parts


@dataclass(frozen=True, slots=True)
class Case:
    """``keys`` None takes one out. ``arch``: of the target. ``edit`` changes the faulty file, by default the drafter's.

    ``several``: what is wrong cannot be wrong alone.
    """

    message: str
    drafter: dict[str, Any] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, bytes | None] = field(default_factory=dict)
    target_keys: dict[str, bytes | None] = field(default_factory=dict)
    arch: str = "qwen3"
    kind: str = "dflash2"
    edit: Any = None
    target_edit: Any = None
    several: bool = False
    check_code: int = 3


def retyped(name: str, kind: str) -> Any:
    """An edit: a tensor of another type, its data zeros."""

    def edit(parts: Parts) -> Parts:
        shape, _, _ = parts.tensors[name]
        number = BY_NAME[kind].id
        return parts.changed(tensors={name: (shape, number, bytes(tensor_bytes(number, shape)))})

    return edit


def without(*names: str) -> Any:
    return lambda parts: parts.changed(tensors=dict.fromkeys(names))


def with_tensor(name: str, shape: tuple[int, ...], kind: str = "F32", data: bytes | None = None) -> Any:
    number = BY_NAME[kind].id
    content = bytes(tensor_bytes(number, shape)) if data is None else data
    return lambda parts: parts.changed(tensors={name: (shape, number, content)})


def reduced(*numbers: int, kind: str = "I64", head: bool = True) -> Any:
    """A list of the tokens that the drafter may write, and its head."""
    rows = struct.pack(f"<{len(numbers)}{'q' if kind == 'I64' else 'i'}", *numbers)
    tensors: dict[str, Any] = {"d2t": ((len(numbers),), BY_NAME[kind].id, rows)}
    if head:
        tensors["output.weight"] = ((64, len(numbers)), 0, bytes(64 * 4 * len(numbers)))
    return lambda parts: parts.changed(tensors=tensors)


TOKENS = tokenizer_keys(320)["tokenizer.ggml.tokens"]


def tokens(**changes: str | bytes) -> bytes:
    """The list of tokens, some replaced: ``t5="x"`` for number 5."""
    texts: list[str | bytes] = list(TOKENS)
    for number, text in changes.items():
        texts[int(number[1:])] = text
    return raw.strings(*texts)
