"""The entries that fill a list of tokens up to the length that its model has rows for.

Source: llama.cpp conversion/base.py, ``get_vocab_base`` (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def pad_text(number: int) -> str:
    """Text of such an entry."""
    return f"[PAD{number}]"


def padding(texts: Sequence[str]) -> int:
    """How many entries at the end of a list are such."""
    used = len(texts)
    while used and texts[used - 1] == pad_text(used - 1):
        used -= 1
    return len(texts) - used
