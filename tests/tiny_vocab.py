"""A byte-level BPE vocabulary of any size from 262 tokens on, as GGUF tokenizer keys."""

from __future__ import annotations

from itertools import product
from typing import Any

SPECIALS = ("<|bos|>", "<|eos|>", "<|im_end|>", "<|mask|>", "<|im_start|>", "<|pad|>")
BOS_ID, EOS_ID, EOT_ID, MASK_ID, START_ID, PAD_ID = range(6)

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_NORMAL, _CONTROL = 1, 3
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def byte_symbols() -> list[str]:
    """The printable stand-in of each byte value, as GPT-2 defines it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [value for value in range(256) if value not in printable]
    table = {value: chr(value) for value in printable} | {v: chr(256 + i) for i, v in enumerate(rest)}
    return [table[value] for value in range(256)]


def merges(count: int) -> list[str]:
    """``count`` merges: a blank and a letter, then pairs of letters, common ones first."""
    pairs = [("\u0120", letter) for letter in _LETTERS] + list(product(_LETTERS, _LETTERS))
    if count > len(pairs):
        msg = f"a tiny vocabulary has at most {len(pairs) + 256 + len(SPECIALS)} tokens"
        raise ValueError(msg)
    return [f"{left} {right}" for left, right in pairs[:count]]


def tokens(vocab: int) -> list[str]:
    """Exactly ``vocab`` tokens: special ones, the 256 bytes, then one for each merge."""
    joined = [merge.replace(" ", "") for merge in merges(vocab - 256 - len(SPECIALS))]
    return [*SPECIALS, *byte_symbols(), *joined]


def tokenizer_keys(vocab: int) -> dict[str, Any]:
    """``tokenizer.ggml.*`` for a model of ``vocab`` tokens."""
    n_special = len(SPECIALS)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens(vocab),
        "tokenizer.ggml.token_type": [_CONTROL] * n_special + [_NORMAL] * (vocab - n_special),
        "tokenizer.ggml.merges": merges(vocab - 256 - n_special),
        "tokenizer.ggml.bos_token_id": BOS_ID,
        "tokenizer.ggml.eos_token_id": EOS_ID,
        "tokenizer.ggml.eot_token_id": EOT_ID,
        "tokenizer.ggml.padding_token_id": PAD_ID,
        "tokenizer.ggml.add_bos_token": False,
    }
