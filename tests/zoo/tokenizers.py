"""Tiny tokenizers as Hugging Face stores them: the byte-level one of ``tiny_vocab``, and one of Gemma's kind.

Comes in: a vocabulary's size. Goes out: ``tokenizer.json`` and ``tokenizer_config.json`` that AutoTokenizer loads.
"""

from __future__ import annotations

from typing import Any

from tiny_vocab import CHAT_TEMPLATE, SPECIALS, merges, tokens

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GEMMA_SPECIALS = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|channel>")
LETTERS = "\u2581etaoinshrdlucmfwypvbgkjqxz"

Files = dict[str, dict[str, Any]]


def byte_level(vocab: int, renamed: dict[int, str] | None = None) -> Files:
    """A tokenizer of Qwen's kind over exactly the tokens of ``tiny_vocab``; ``renamed`` replaces special ones."""
    names = {i: (renamed or {}).get(i, token) for i, token in enumerate(SPECIALS)}
    every = {names.get(i, token): i for i, token in enumerate(tokens(vocab))}
    byte = {"add_prefix_space": False, "trim_offsets": False, "type": "ByteLevel", "use_regex": False}
    split = {"behavior": "Isolated", "invert": False, "pattern": {"Regex": SPLIT}, "type": "Split"}
    model = {
        "byte_fallback": False,
        "continuing_subword_prefix": "",
        "dropout": None,
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "ignore_merges": False,
        "merges": [merge.split(" ") for merge in merges(vocab - 256 - len(SPECIALS))],
        "type": "BPE",
        "unk_token": None,
        "vocab": every,
    }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(i, name) for i, name in names.items()],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"pretokenizers": [split, byte], "type": "Sequence"},
        "post_processor": byte,
        "decoder": byte,
        "model": model,
    }
    config = {
        "add_bos_token": False,
        "added_tokens_decoder": {str(i): _decoder(name) for i, name in names.items()},
        "bos_token": names[0],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": names[1],
        "model_max_length": 2048,
        "pad_token": names[5],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}


def gemma(vocab: int) -> Files:
    """A tokenizer of Gemma 4's kind: blanks as U+2581, bytes as a fallback."""
    letters = list(LETTERS)
    pairs = [(left, right) for left in letters for right in letters[1:]]
    chosen = pairs[: vocab - len(GEMMA_SPECIALS) - 256 - len(letters)]
    names = [*GEMMA_SPECIALS, *(f"<0x{i:02X}>" for i in range(256)), *letters, *(a + b for a, b in chosen)]
    fuse = [{"content": " ", "pattern": {"String": "\u2581"}, "type": "Replace"}, {"type": "ByteFallback"}]
    model = {
        "byte_fallback": True,
        "continuing_subword_prefix": None,
        "dropout": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "ignore_merges": False,
        "merges": [list(pair) for pair in chosen],
        "type": "BPE",
        "unk_token": "<unk>",
        "vocab": {name: i for i, name in enumerate(names)},
    }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(i, name) for i, name in enumerate(GEMMA_SPECIALS)],
        "normalizer": {"content": "\u2581", "pattern": {"String": " "}, "type": "Replace"},
        "pre_tokenizer": {
            "behavior": "MergedWithPrevious",
            "invert": False,
            "pattern": {"String": " "},
            "type": "Split",
        },
        "post_processor": None,
        "decoder": {"decoders": [*fuse, {"type": "Fuse"}], "type": "Sequence"},
        "model": model,
    }
    config = {
        "added_tokens_decoder": {str(i): _decoder(name) for i, name in enumerate(GEMMA_SPECIALS)},
        "bos_token": "<bos>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<eos>",
        "mask_token": "<mask>",
        "model_max_length": 2048,
        "pad_token": "<pad>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}


def _decoder(content: str) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {"content": content, **flags, "special": True}


def _added(index: int, content: str) -> dict[str, Any]:
    return {"id": index, **_decoder(content)}
