"""The merges of a BPE tokenizer, in the form that GGUF keeps them.

Comes in: tokenizer.json's ``model``. Goes out: lines of two tokens with a blank between.
Source: llama.cpp gguf-py/gguf/vocab.py, ``SpecialVocab`` (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

BLANK: Final = "\u0120"
"""What stands for a blank inside a token: the blank's code point + 256."""


def merge_lines(model: Mapping[str, Any]) -> tuple[str, ...]:
    """The merges, from either form that ``tokenizers`` writes: a line, or a list of two."""
    rows = model.get("merges") or []
    if isinstance(rows, list) and all(isinstance(row, str) for row in rows):
        return tuple(rows)
    if isinstance(rows, list) and all(_pair(row) for row in rows):
        return tuple(f"{left.replace(' ', BLANK)} {right.replace(' ', BLANK)}" for left, right in rows)
    raise CheckpointError("`model.merges` of tokenizer.json", expected="a list of texts, or of pairs of texts")


def _pair(row: object) -> bool:
    return isinstance(row, list) and len(row) == 2 and all(isinstance(part, str) for part in row)
