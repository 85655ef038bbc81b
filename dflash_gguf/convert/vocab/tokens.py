"""The list of tokens and their types, as llama.cpp's converter writes them.

Comes in: a loaded tokenizer. Goes out: a `TokenList`. Source: llama.cpp conversion/base.py, ``get_vocab_base``,
and gguf-py/gguf/vocab.py, ``LlamaHfVocab`` (0.5.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.architectures import PASS_THE_GGUF
from dflash_gguf.convert.vocab.fast import ID_LIMIT, FastTokenizer
from dflash_gguf.errors import CheckpointError
from dflash_gguf.padding import pad_text

if TYPE_CHECKING:
    from collections.abc import Collection

NORMAL: Final = 1
CONTROL: Final = 3
USER_DEFINED: Final = 4
UNUSED: Final = 5
BYTE: Final = 6

SPECIAL_LOOKING: Final = frozenset({"<pad>", "<mask>", "<2mass>", "[@BOS@]"})
SPECIAL_ENDS: Final = (("<|", "|>"), ("<\uff5c", "\uff5c>"), ("<unused", ">"))
BYTE_TOKEN: Final = re.compile(r"<0x[0-9A-Fa-f]{2}>")
SPACE_SYMBOL: Final = "\u2581"


@dataclass(frozen=True, slots=True)
class TokenList:
    """Token ``i`` has text ``texts[i]`` and type ``types[i]``."""

    texts: tuple[str, ...]
    types: tuple[int, ...]


def byte_level(tokenizer: FastTokenizer, size: int | None) -> TokenList:
    """Every token, padded with unused ones to ``size`` (None: as many as there are)."""
    by_id = {number: text for text, number in tokenizer.vocab.items()}
    length = max(by_id, default=-1) + 1
    size = length if size is None else size
    if not length <= size <= ID_LIMIT:
        expected = f"from {length}, the number of its tokens, to {ID_LIMIT}"
        raise CheckpointError("the target's vocab_size", value=size, expected=expected)
    rows = [_byte_level_row(tokenizer, number, by_id.get(number)) for number in range(size)]
    return TokenList(tuple(text for text, _ in rows), tuple(kind for _, kind in rows))


def sentencepiece(tokenizer: FastTokenizer, special: Collection[str], visible: Collection[str] = ()) -> TokenList:
    """Tokens of a BPE tokenizer that falls back to bytes; ``visible`` ones are user-defined whatever their role."""
    by_id = {number: text for text, number in tokenizer.vocab.items()}
    if set(by_id) != set(range(len(by_id))):
        hole = next(number for number in range(len(by_id)) if number not in by_id)
        raise CheckpointError(f"`{tokenizer.path}` has no token {hole}", remedy=PASS_THE_GGUF)
    texts = [by_id[number] for number in range(len(by_id))]
    types = [_sentencepiece_type(text, number >= tokenizer.base_size, special) for number, text in enumerate(texts)]
    types = [USER_DEFINED if text in visible else kind for text, kind in zip(texts, types, strict=True)]
    return TokenList(tuple(texts), tuple(types))


def looks_special(text: str) -> bool:
    """Whether this is a control token whatever its tokenizer says."""
    return text in SPECIAL_LOOKING or any(text.startswith(head) and text.endswith(tail) for head, tail in SPECIAL_ENDS)


def _byte_level_row(tokenizer: FastTokenizer, number: int, text: str | None) -> tuple[str, int]:
    if text is None:
        return pad_text(number), UNUSED
    added = tokenizer.added.get(number)
    if added is None:
        return text, NORMAL
    if not added.normalized:
        text = tokenizer.round_trip(text)
    if added.special or looks_special(text):
        return text, CONTROL
    return text.replace(SPACE_SYMBOL, " "), USER_DEFINED


def _sentencepiece_type(text: str, is_added: bool, special: Collection[str]) -> int:
    if not is_added and BYTE_TOKEN.fullmatch(text):
        return BYTE
    if text in special:
        return CONTROL
    return USER_DEFINED if is_added else NORMAL
