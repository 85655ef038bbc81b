"""A folder's tokenizer as ``tokenizer.*`` keys, in the order in which llama.cpp's converter writes them.

Comes in: the tokenizer's files, the rule of the target's architecture, the length of the list. Goes out: keys.
A rule is a row of `RULES`; a tokenizer that none of them can write exactly is refused by name.
Source: llama.cpp conversion/base.py and the ``set_vocab`` of the classes named below (0.5.0).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert import architectures as arch
from dflash_gguf.convert.encode import KeyValue, array, scalar
from dflash_gguf.convert.vocab.fast import FastTokenizer, load_fast, special_texts
from dflash_gguf.convert.vocab.files import SENTENCEPIECE, TEMPLATE, TOKENIZER, TokenizerFiles, read_text
from dflash_gguf.convert.vocab.merges import merge_lines
from dflash_gguf.convert.vocab.pre import CHECK_TEXT, recognise
from dflash_gguf.convert.vocab.roles import Roles, read_roles
from dflash_gguf.convert.vocab.templates import template_keys
from dflash_gguf.convert.vocab.tokens import TokenList, byte_level, sentencepiece
from dflash_gguf.errors import CheckpointError
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Table = dict[str, KeyValue]
    Rule = Callable[[TokenizerFiles, int | None], Table]

PRE: Final = Keys.TOKENIZER_PRE
SCORES: Final = Keys.SCORES
TOKEN_TYPE: Final = Keys.TOKEN_TYPES
MERGES: Final = Keys.MERGES
ADD_BOS_TOKEN: Final = Keys.ADD_BOS
ADD_SPACE_PREFIX: Final = "tokenizer.ggml.add_space_prefix"
LOWERCASE: Final = "tokenizer.ggml.normalizer.lowercase"
STRIP_ACCENTS: Final = "tokenizer.ggml.normalizer.strip_accents"

ROLE_KEYS: Final = {
    "bos": Keys.BOS_TOKEN_ID,
    "eos": Keys.EOS_TOKEN_ID,
    "unk": Keys.UNKNOWN_TOKEN_ID,
    "sep": Keys.SEPARATOR_TOKEN_ID,
    "pad": Keys.PADDING_TOKEN_ID,
    "mask": Keys.MASK_TOKEN_ID,
    "eot": Keys.EOT_TOKEN_ID,
    "eom": Keys.EOM_TOKEN_ID,
}
"""Role -> key; llama.cpp has none for ``cls``."""

ADD_KEYS: Final = {
    "bos": ADD_BOS_TOKEN,
    "eos": Keys.ADD_EOS,
    "sep": "tokenizer.ggml.add_sep_token",
}

SCORE: Final = -1000.0
SMALL_GRANITE: Final = 49152
"""The vocabulary size by which the converter tells the small Granite models, and all that share it."""

MUSE_EOT: Final = "<|eot|>"
GLM_ROLES: Final = {"bos": "[gMASK]", "eot": "<|user|>", "unk": "<|endoftext|>", "eom": "<|observation|>"}
GLM4_ROLES: Final = {"eos": "<|endoftext|>", "eot": "<|user|>", "unk": "<|endoftext|>", "bos": "<|endoftext|>"}

GEMMA4_VISIBLE: Final = frozenset(
    {
        "<|channel>",
        "<channel|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        '<|"|>',
    }
)
"""Control tokens of Gemma 4 whose text a chat parser needs to see."""


def tokenizer_table(files: TokenizerFiles, rule: str, size: int | None) -> tuple[KeyValue, ...]:
    """Every ``tokenizer.*`` key; ``size`` is the target's vocab_size. Raises `CheckpointError`."""
    return tuple(RULES[rule](files, size).values())


def _bpe(files: TokenizerFiles, size: int | None, named: Mapping[str, str] = MappingProxyType({})) -> Table:
    """``named``: role -> text of the token that has it unless the files say otherwise."""
    tokenizer = load_fast(files)
    tokens = byte_level(tokenizer, size)
    roles = read_roles(files)
    numbers = {role: tokenizer.vocab[text] for role, text in named.items() if text in tokenizer.vocab}
    roles = Roles(roles.ids | {role: number for role, number in numbers.items() if role not in roles.ids}, roles.added)
    pre = recognise(_ways(tokenizer, roles))
    table = _table(scalar(Keys.TOKENIZER_MODEL, "string", "gpt2"), scalar(PRE, "string", pre))
    return table | _token_keys(tokens) | _special_keys(files, roles, merges=True)


def _qwen(files: TokenizerFiles, size: int | None) -> Table:
    _refuse_sentencepiece(files)
    return _bpe(files, size)


def _llama(files: TokenizerFiles, size: int | None) -> Table:
    _refuse_sentencepiece(files)
    prefix = files.settings.get("add_prefix_space")
    table = _table(scalar(ADD_SPACE_PREFIX, "bool", prefix)) if isinstance(prefix, bool) else {}
    table |= _byte_fallback(files, "llama") if _falls_back_to_bytes(files) else _bpe(files, size)
    return table | (_table(scalar(ADD_BOS_TOKEN, "bool", False)) if size == SMALL_GRANITE else {})


def _gemma4(files: TokenizerFiles, _size: int | None) -> Table:
    if not _falls_back_to_bytes(files):
        what = f"`{files.folder / TOKENIZER}` is not a Gemma 4 tokenizer"
        raise CheckpointError(what, expected="BPE that falls back to bytes", remedy=arch.PASS_THE_GGUF)
    table = _byte_fallback(files, "gemma4")
    return table | _table(scalar(ADD_SPACE_PREFIX, "bool", False), scalar(ADD_BOS_TOKEN, "bool", True))


def _nemotron_h(files: TokenizerFiles, size: int | None) -> Table:
    return _bpe(files, None if size is None else -(-size // 8) * 8)


def _muse_glimmer(files: TokenizerFiles, size: int | None) -> Table:
    table = _bpe(files, size)
    texts = table[Keys.TOKENS].value
    if not isinstance(texts, tuple) or MUSE_EOT not in texts:
        return table
    return table | _table(scalar(Keys.EOT_TOKEN_ID, "uint32", texts.index(MUSE_EOT)))


def _minimax_01(files: TokenizerFiles, size: int | None) -> Table:
    table, path = _bpe(files, size), files.folder / TEMPLATE
    return table | _table(scalar(Keys.CHAT_TEMPLATE, "string", read_text(path))) if path.is_file() else table


def _glm(files: TokenizerFiles, size: int | None) -> Table:
    return _bpe(files, size, GLM_ROLES)


def _glm4(files: TokenizerFiles, size: int | None) -> Table:
    return _bpe(files, size, GLM4_ROLES)


RULES: Final[dict[str, Rule]] = {
    arch.BPE: _bpe,
    arch.QWEN: _qwen,
    arch.LLAMA: _llama,
    arch.GEMMA4: _gemma4,
    arch.NEMOTRON_H: _nemotron_h,
    arch.MUSE_GLIMMER: _muse_glimmer,
    arch.MINIMAX_01: _minimax_01,
    arch.GLM: _glm,
    arch.GLM4: _glm4,
}


def _byte_fallback(files: TokenizerFiles, model: str) -> Table:
    tokenizer = load_fast(files)
    gemma = model == "gemma4"
    tokens = sentencepiece(tokenizer, set(special_texts(files.settings)), GEMMA4_VISIBLE if gemma else ())
    table = _table(scalar(Keys.TOKENIZER_MODEL, "string", model))
    if not gemma:
        table |= _table(scalar(PRE, "string", "default"))
    scores = array(SCORES, "float32", (SCORE,) * len(tokens.texts))
    roles = read_roles(files, None if gemma else len(tokens.texts))
    return table | _token_keys(tokens, scores) | _special_keys(files, roles, merges=gemma)


def _token_keys(tokens: TokenList, *between: KeyValue) -> Table:
    texts = array(Keys.TOKENS, "string", tokens.texts)
    return _table(texts, *between, array(TOKEN_TYPE, "int32", tokens.types))


def _special_keys(files: TokenizerFiles, roles: Roles, *, merges: bool) -> Table:
    lines = merge_lines(files.model) if merges else ()
    pairs = [array(MERGES, "string", lines)] if lines else []
    pairs += [scalar(ROLE_KEYS[role], "uint32", number) for role, number in roles.ids.items() if role in ROLE_KEYS]
    pairs += [scalar(ADD_KEYS[role], "bool", flag) for role, flag in roles.added.items() if role in ADD_KEYS]
    pairs += template_keys(files)
    pairs += [scalar(key, "bool", flag) for key, flag in _normalizer_flags(files.tokenizer.get("normalizer")).items()]
    return _table(*pairs)


def _normalizer_flags(normalizer: object) -> dict[str, bool]:
    if not isinstance(normalizer, dict):
        return {}
    kind = normalizer.get("type")
    flags: dict[str, bool] = {}
    if kind == "Sequence":
        for step in normalizer.get("normalizers") or []:
            flags |= _normalizer_flags(step)
    given = {LOWERCASE: kind == "Lowercase" or None, STRIP_ACCENTS: kind == "StripAccents" or None}
    if kind == "BertNormalizer":
        given = {LOWERCASE: normalizer.get("lowercase"), STRIP_ACCENTS: normalizer.get("strip_accents")}
    flags |= {key: flag for key, flag in given.items() if isinstance(flag, bool)}
    return {key: flags[key] for key in (LOWERCASE, STRIP_ACCENTS) if key in flags}


def _falls_back_to_bytes(files: TokenizerFiles) -> bool:
    decoder = files.tokenizer.get("decoder")
    kind = decoder.get("type") if isinstance(decoder, dict) else None
    return files.model.get("type") == "BPE" and bool(files.model.get("byte_fallback")) and kind == "Sequence"


def _refuse_sentencepiece(files: TokenizerFiles) -> None:
    path = files.folder / SENTENCEPIECE
    if path.is_file():
        what = f"the target's tokenizer is the SentencePiece model `{path}`, which cannot be read here"
        raise CheckpointError(what, remedy=arch.PASS_THE_GGUF)


def _ways(tokenizer: FastTokenizer, roles: Roles) -> list[list[int]]:
    """Ids of the check text: as the file asks for, bare, and with what a loading class may add at the ends."""
    bare = tokenizer.encode(CHECK_TEXT)
    first, last = ([roles.ids[role] for role in ends if role in roles.ids] for ends in (("bos", "cls"), ("eos", "sep")))
    heads: list[list[int]] = [[], *([number] for number in first)]
    tails: list[list[int]] = [[], *([number] for number in last)]
    return [tokenizer.encode(CHECK_TEXT, ends=True), *([*head, *bare, *tail] for head in heads for tail in tails)]


def _table(*pairs: KeyValue) -> Table:
    return {pair.key: pair for pair in pairs}
