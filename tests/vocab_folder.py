"""Hugging Face tokenizer folders made from the tokenizer keys of a GGUF.

Comes in: keys as plain values. Goes out: tokenizer.json, tokenizer_config.json and the config's part of it, such
that llama.cpp's converter would write those keys. Nothing of this package takes part.
Pre-tokenizers: the expressions of llama.cpp src/llama-vocab.cpp (0.5.0), in ``tokenizers``' spelling.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NORMAL, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 3, 4, 5, 6
ROLES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",
    "pad": "padding_token_id",
    "mask": "mask_token_id",
}

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _bytes(*, regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def _digits(*, single: bool) -> dict[str, Any]:
    return {"type": "Digits", "individual_digits": single}


PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_bytes(regex=True)],
    "mpt": [_bytes(regex=True)],
    "starcoder": [_digits(single=True), _bytes(regex=True)],
    "refact": [_digits(single=True), _bytes(regex=True)],
    "smollm": [_digits(single=True), _bytes(regex=True)],
    "command-r": [_digits(single=True), _bytes(regex=True)],
    "llama-bpe": [_split(rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{REST}"), _bytes(regex=False)],
    "qwen2": [_split(rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{REST}"), _bytes(regex=False)],
    "deepseek-coder": [
        _split("[\r\n]"),
        _split(r"\s?\p{L}+"),
        _split(r"\s?\p{P}+"),
        _split(CJK),
        _digits(single=True),
        _bytes(regex=False),
    ],
    "falcon": [
        {"type": "Punctuation", "behavior": "Contiguous"},
        _bytes(regex=True),
        _digits(single=False),
        _split("[0-9][0-9][0-9]"),
    ],
}


def write_folder(folder: Path, keys: Mapping[str, Any], config: Mapping[str, Any]) -> Path:
    """Write the folder; ``keys`` are ``tokenizer.*`` keys, ``config`` what config.json holds besides."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens, gemma = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.model"] == "gemma4"
    in_settings, in_config = _roles(keys)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    settings |= {f"{role}_token": tokens[number] for role, number in in_settings.items()}
    settings |= _more_special(keys, in_settings) if gemma else {f"add_{r}_token": f for r, f in _flags(keys).items()}
    settings |= _templates(keys) | ({} if gemma else _prefix(keys))
    sizes = {"vocab_size": len(tokens)} | {f"{role}_token_id": number for role, number in in_config.items()}
    _write(folder / "tokenizer.json", tokenizer_json(keys))
    _write(folder / "tokenizer_config.json", settings)
    _write(folder / "config.json", sizes | dict(config))
    return folder


def tokenizer_json(keys: Mapping[str, Any]) -> dict[str, Any]:
    """A byte-level BPE tokenizer, or Gemma's, which falls back to bytes."""
    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    rows = [(i, text, kind) for i, (text, kind) in enumerate(zip(tokens, types, strict=True)) if not _pad(i, text)]
    last = max(i for i, _, kind in rows if kind in (NORMAL, BYTE))
    gemma = keys["tokenizer.ggml.model"] == "gemma4"
    merges = [_merge(line) for line in keys["tokenizer.ggml.merges"]]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(i, text, kind) for i, text, kind in rows if kind in (CONTROL, USER_DEFINED)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"} if gemma else None,
        "pre_tokenizer": None if gemma else {"type": "Sequence", "pretokenizers": _pre(keys)},
        "post_processor": _bos_template(keys),
        "decoder": _gemma_decoder() if gemma else _bytes(regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>" if gemma else None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": gemma,
            "byte_fallback": gemma,
            "ignore_merges": keys.get("tokenizer.ggml.pre") == "llama-bpe",
            "vocab": {text: i for i, text, _ in rows if i <= last},
            "merges": merges,
        },
    }


def _pre(keys: Mapping[str, Any]) -> list[dict[str, Any]]:
    return PRE_TOKENIZERS[keys["tokenizer.ggml.pre"]]


def _bos_template(keys: Mapping[str, Any]) -> dict[str, Any] | None:
    """Llama 3 has its first token in a template; the others' classes add theirs."""
    if keys.get("tokenizer.ggml.pre") != "llama-bpe":
        return None
    number = keys["tokenizer.ggml.bos_token_id"]
    text = keys["tokenizer.ggml.tokens"][number]
    bos, a, b = {"SpecialToken": {"id": text, "type_id": 0}}, _sequence("A", 0), _sequence("B", 1)
    special = {text: {"id": text, "ids": [number], "tokens": [text]}}
    return {"type": "TemplateProcessing", "single": [bos, a], "pair": [bos, a, b], "special_tokens": special}


def _sequence(name: str, kind: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": kind}}


def _gemma_decoder() -> dict[str, Any]:
    back = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    return {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}]}


def _merge(line: str) -> list[str]:
    left, _, right = line.partition(" ")
    return [left, right]


def _added(number: int, text: str, kind: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": kind == USER_DEFINED}
    return {"id": number, "content": text, **flags, "special": kind == CONTROL}


def _pad(number: int, text: str) -> bool:
    return text == f"[PAD{number}]"


def _roles(keys: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Roles as tokenizer_config.json gives them, and those whose place shows that they come from config.json."""
    by_key = {f"tokenizer.ggml.{name}": role for role, name in ROLES.items()}
    written = [(by_key[key], value) for key, value in keys.items() if key in by_key]
    order = list(ROLES)
    added = [kind in (CONTROL, USER_DEFINED) for kind in keys["tokenizer.ggml.token_type"]]
    first = 0
    while first < len(written) and added[written[first][1]]:
        if first and order.index(written[first][0]) < order.index(written[first - 1][0]):
            break
        first += 1
    return dict(written[:first]), dict(written[first:])


def _flags(keys: Mapping[str, Any]) -> dict[str, bool]:
    found = {role: keys.get(f"tokenizer.ggml.add_{role}_token") for role in ROLES}
    return {role: flag for role, flag in found.items() if flag is not None}


def _more_special(keys: Mapping[str, Any], roles: Mapping[str, int]) -> dict[str, Any]:
    types = enumerate(keys["tokenizer.ggml.token_type"])
    rest = [number for number, kind in types if kind == CONTROL and number not in roles.values()]
    return {"additional_special_tokens": [keys["tokenizer.ggml.tokens"][number] for number in rest]}


def _prefix(keys: Mapping[str, Any]) -> dict[str, Any]:
    flag = keys.get("tokenizer.ggml.add_space_prefix")
    return {} if flag is None else {"add_prefix_space": flag}


def _templates(keys: Mapping[str, Any]) -> dict[str, Any]:
    one = keys.get("tokenizer.chat_template")
    head = "tokenizer.chat_template."
    named = {key.removeprefix(head): text for key, text in keys.items() if key.startswith(head)}
    if not named:
        return {} if one is None else {"chat_template": one}
    rows = [{"name": "default", "template": one}] if one is not None else []
    return {"chat_template": rows + [{"name": name, "template": text} for name, text in named.items()]}


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def plain_keys(header: Any) -> dict[str, Any]:
    """The ``tokenizer.*`` keys of a header that this package read, as plain values."""
    readers = {"string": header.string, "bool": header.boolean, "uint32": header.integer}
    arrays = {"array[string]": header.strings, "array[int32]": header.integers}
    keys = [key for key in header.keys if re.match(r"tokenizer\.", key) and "scores" not in key]
    return {key: (readers | arrays)[header.keys[key].type_text](key) for key in keys}
