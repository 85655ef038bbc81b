"""What libllama demands of the tokenizer's keys.

Comes in: a reader of a header. Goes out: the number of tokens; the faults are in the reader. libllama asserts some of
this while it loads; other faults end the process when a text is first tokenized, by an exception that nothing catches.
Source: llama.cpp src/llama-vocab.cpp, ``load``, ``byte_to_token``, ``token_to_byte`` and ``append_bos`` (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from dflash_gguf.contract.pre_tokenizers import PRE_TOKENIZERS
from dflash_gguf.contract.reader import Bounds
from dflash_gguf.errors import GGUFError
from dflash_gguf.facts import TOKEN_LIMIT
from dflash_gguf.file_text import quoted
from dflash_gguf.gguf_values import items as items_of
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dflash_gguf.contract.reader import Reader

_T = TypeVar("_T")

SENTENCE_PIECE: Final = "llama"
BYTE_PAIRS: Final = "gpt2"
GEMMA4: Final = "gemma4"
MODELS: Final = (BYTE_PAIRS, SENTENCE_PIECE, GEMMA4)
"""The tokenizers of the models that drafters are made for. libllama's others are not tried here."""

NO_MODELS: Final = ("none", "no_vocab")
BYTE_TOKEN: Final = 6
"""LLAMA_TOKEN_TYPE_BYTE."""
WITHOUT_MERGES: Final = "kimi-k2"
"""``tokenizer.ggml.pre`` of byte pairs that come without their merges."""

DEFAULT_BOS: Final = {SENTENCE_PIECE: 1, BYTE_PAIRS: 11}
"""Tokenizer -> the token that begins a text when no key names one."""
DEFAULT_EOS: Final = {SENTENCE_PIECE: 2, BYTE_PAIRS: 11}
"""Likewise the one that ends it."""
ADDS_BOS: Final = frozenset({SENTENCE_PIECE, GEMMA4})
"""Tokenizers that begin each text with it unless a key forbids it, which for Gemma 4 none can. Of byte pairs, some
``pre`` do so."""
ANY_UINT32: Final = Bounds(0, (1 << 32) - 1)
SPLITS_AT_BLANKS: Final = "whitespace"
"""``tokenizer.ggml.pre`` whose texts keep blanks, which the search for a merge asserts away."""

OTHER_PRE: Final = {
    "drafter": "take the target's with `dflash-gguf rekey --target`, or convert the drafter's checkpoint again",
    "target": "download a file that llama.cpp's own converter wrote, or convert the model with that of llama.cpp 0.5.0",
}
"""Side -> what helps against a ``tokenizer.ggml.pre`` that is not known."""

SPECIALS: Final = (
    Keys.BOS_TOKEN_ID, Keys.EOS_TOKEN_ID, Keys.EOT_TOKEN_ID, Keys.EOM_TOKEN_ID, Keys.UNKNOWN_TOKEN_ID,
    Keys.SEPARATOR_TOKEN_ID, Keys.PADDING_TOKEN_ID,
)  # fmt: skip


def check_vocabulary(reader: Reader) -> int | None:
    """Judges the tokenizer; returns its number of tokens, None when that is not known."""
    model = reader.text(Keys.TOKENIZER_MODEL, required=True)
    if model in NO_MODELS:
        reader.fault("file carries no vocabulary, so that its mask token is not read", model, key=Keys.TOKENIZER_MODEL)
        return None
    if model is not None and model not in MODELS:
        reader.fault(f"`{Keys.TOKENIZER_MODEL}` is none of {', '.join(MODELS)}", quoted(model))
        return None
    n_tokens = reader.count(Keys.TOKENS, "string", required=True)
    if model is None or n_tokens is None:
        return n_tokens
    if n_tokens > TOKEN_LIMIT:
        reader.fault(f"`{Keys.TOKENS}` has more than {TOKEN_LIMIT} entries", n_tokens)
        return None
    _lengths(reader, model, n_tokens)
    _texts(reader, model)
    _specials(reader, model, n_tokens)
    return n_tokens


def _lengths(reader: Reader, model: str, n_tokens: int) -> None:
    """Arrays beside the tokens, which libllama reads ``n_tokens`` entries of."""
    for key, items in ((Keys.TOKEN_TYPES, ("int32",)), (Keys.SCORES, ("float32", "int32"))):
        value = reader.header.keys.get(key)
        if value is None:
            continue
        if value.type_text not in {f"array[{item}]" for item in items}:
            reader.fault(f"`{key}` is not an array of {items[0]}", value.type_text)
        elif value.count < n_tokens:
            reader.fault(f"`{key}` has fewer entries than the {n_tokens} tokens", value.count)
    pre = reader.text(Keys.TOKENIZER_PRE)
    if pre == SPLITS_AT_BLANKS:
        reader.fault(f"`{Keys.TOKENIZER_PRE}` is one that libllama cannot tokenize text by", pre)
    elif model == BYTE_PAIRS and pre and pre not in PRE_TOKENIZERS:
        what = f"`{Keys.TOKENIZER_PRE}` is none that libllama 0.5.0 knows, which refuses the file"
        reader.fault(what, quoted(pre), remedy=OTHER_PRE[reader.side])
    if model != SENTENCE_PIECE and pre != WITHOUT_MERGES:
        reader.count(Keys.MERGES, "string", required=True)


def _texts(reader: Reader, model: str) -> None:
    try:
        texts = reader.header.strings(Keys.TOKENS)
    except GGUFError:
        reader.fault(f"`{Keys.TOKENS}` holds text that is not UTF-8", "bytes")
        return
    # libllama reads each up to its first zero byte, and gives empty ones names of their own.
    seen = [text.split("\0", 1)[0] or f"[EMPTY_{number}]" for number, text in enumerate(texts)]
    unique = set(seen)
    if len(unique) != len(seen):
        twice = next(repeated(seen))
        reader.fault("tokens are not all different, which libllama asserts", f"{quoted(twice)} twice")
    if model == SENTENCE_PIECE:
        missing = [byte for byte in range(256) if f"<0x{byte:02X}>" not in unique and not _as_character(byte, unique)]
        if missing:
            reader.fault("vocabulary cannot spell every byte", f"no token for {len(missing)}, first 0x{missing[0]:02X}")
    _byte_tokens(reader, texts)


def repeated(values: Iterable[_T]) -> Iterator[_T]:
    """Each value that came before."""
    seen: set[_T] = set()
    for value in values:
        if value in seen:
            yield value
        seen.add(value)


def _as_character(byte: int, texts: set[str]) -> bool:
    return 0 < byte < 128 and chr(byte) in texts


def _byte_tokens(reader: Reader, texts: Sequence[str]) -> None:
    """A token of the type "byte" is read from its fourth character on."""
    value = reader.header.keys.get(Keys.TOKEN_TYPES)
    if value is None or value.type_text != "array[int32]" or value.count < len(texts):
        return
    # There may be more types than tokens, in any number.
    for number, (text, kind) in enumerate(zip(texts, items_of(reader.header, Keys.TOKEN_TYPES), strict=False)):
        if kind == BYTE_TOKEN and len(text.encode()) < len("<0x"):
            reader.fault(f"token {number} is marked as a byte but is not written `<0x..>`", quoted(text))
            return


def _specials(reader: Reader, model: str, n_tokens: int) -> None:
    ids = {key: _named(reader, key, n_tokens) for key in SPECIALS}
    add_bos, add_eos = reader.flag(Keys.ADD_BOS), reader.flag(Keys.ADD_EOS)
    begins = model == GEMMA4 or (add_bos if add_bos is not None else model in ADDS_BOS)
    for added, key, default in (
        (begins, Keys.BOS_TOKEN_ID, DEFAULT_BOS.get(model, n_tokens)),
        (add_eos, Keys.EOS_TOKEN_ID, DEFAULT_EOS.get(model, n_tokens)),
    ):
        if added and ids[key] is None and default >= n_tokens:
            reader.fault(f"tokenizer adds a token to every text that `{key}` does not name", "none")


def _named(reader: Reader, key: str, n_tokens: int) -> int | None:
    """The token of a role. libllama passes over one that is not there, and converters may write one."""
    number = reader.integer(key, ANY_UINT32)
    if number is not None and number >= n_tokens:
        what = f"`{key}` is none of its {n_tokens} tokens, which libllama passes over"
        reader.fault(what, number, warning=True, remedy="nothing needs to be done")
        return None
    return number
