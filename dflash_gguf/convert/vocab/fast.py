"""The ``tokenizers`` library around one tokenizer.json, as transformers sets it up.

Comes in: the tokenizer's files. Goes out: a `FastTokenizer`: ids of texts, the vocabulary, the added tokens.
Whatever the library raises, a panic included, leaves here as a `CheckpointError`.
Source: transformers 4.57 and 5, ``PreTrainedTokenizerFast.__init__``.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tokenizers import AddedToken, Tokenizer

from dflash_gguf.convert.architectures import PASS_THE_GGUF
from dflash_gguf.convert.vocab.files import SETTINGS, TOKENIZER, TokenizerFiles
from dflash_gguf.errors import CheckpointError, DflashError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ID_LIMIT: Final = 1 << 22
"""More tokens than any vocabulary has; larger ids are refused before a list of that length is made."""

NAMED_TOKENS: Final = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
EXTRA_TOKENS: Final = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True, eq=False)
class FastTokenizer:
    """``base_size`` counts the vocabulary without added tokens; ``added`` are those, by id."""

    path: Path
    base_size: int
    vocab: Mapping[str, int]
    added: Mapping[int, AddedToken]
    _library: Tokenizer

    def encode(self, text: str, *, ends: bool = False) -> list[int]:
        """Ids of ``text``; ``ends``: with those that the tokenizer's file puts in front and behind."""
        with failures(self.path):
            return [int(token) for token in self._library.encode(text, add_special_tokens=ends).ids]

    def round_trip(self, text: str) -> str:
        """``text``, encoded and decoded again."""
        ids = self.encode(text)
        with failures(self.path):
            return str(self._library.decode(ids, skip_special_tokens=False))


def load_fast(files: TokenizerFiles) -> FastTokenizer:
    """Load the tokenizer and add what only tokenizer_config.json names; raises `CheckpointError`."""
    path = files.folder / TOKENIZER
    _check(files)
    with failures(path):
        library = Tokenizer.from_file(str(path))
        library.no_truncation()
        library.no_padding()
    with failures(files.folder / SETTINGS):
        extra = _extra_tokens(files)
    with failures(path):
        known = {token.content for token in library.get_added_tokens_decoder().values()}
        library.add_tokens([token for token in extra if token.content not in known])
        vocab = library.get_vocab(with_added_tokens=True)
        added = library.get_added_tokens_decoder()
        base_size = library.get_vocab_size(with_added_tokens=False)
    return FastTokenizer(path, base_size, vocab, added, library)


def special_texts(settings: Mapping[str, Any]) -> list[str]:
    """The texts of the tokens to which tokenizer_config.json gives a role."""
    values = [settings.get(name) for name in NAMED_TOKENS]
    for name in EXTRA_TOKENS:
        more = settings.get(name)
        values += more if isinstance(more, list) else list(more.values()) if isinstance(more, dict) else []
    texts = (content(value) for value in values)
    return list(dict.fromkeys(text for text in texts if text))


def content(value: object) -> str | None:
    """The text of a token given as text, or as an object with ``content``."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turn whatever the library raises into a `CheckpointError` that names the file."""
    try:
        yield
    except (DflashError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 - plain Exception, and a panic that is no Exception
        reason = ascii(str(error).partition("\n")[0])[1:-1].lower()
        raise CheckpointError(f"`{path}` describes no tokenizer: {reason}", remedy=PASS_THE_GGUF) from None


def _check(files: TokenizerFiles) -> None:
    """What the library takes on trust, or counts without bound."""
    path, model = files.folder / TOKENIZER, files.model
    kind = model.get("type", "BPE" if "merges" in model else "WordPiece")
    if kind != "BPE":
        raise CheckpointError(f"the model of `{path}`", value=kind, expected="BPE", remedy=PASS_THE_GGUF)
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not all(_id(number) for number in vocab.values()):
        raise CheckpointError(f"`model.vocab` of `{path}`", expected=f"an object of text to id below {ID_LIMIT}")
    if len(set(vocab.values())) != len(vocab):
        raise CheckpointError(f"`model.vocab` of `{path}` gives one id to two tokens")
    added = files.tokenizer.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(row, dict) and _id(row.get("id")) for row in added):
        raise CheckpointError(f"`added_tokens` of `{path}`", expected=f"a list of objects with an id below {ID_LIMIT}")


def _id(value: object) -> bool:
    return type(value) is int and 0 <= value < ID_LIMIT


def _extra_tokens(files: TokenizerFiles) -> list[AddedToken]:
    """Tokens of tokenizer_config.json, by id, then the special ones that only have a role."""
    path, rows = files.folder, files.settings.get("added_tokens_decoder") or {}
    special = special_texts(files.settings)
    tokens: dict[str, AddedToken] = {}
    if not isinstance(rows, dict) or not all(key.isdecimal() and len(key) < 10 for key in rows):
        raise CheckpointError(f"`added_tokens_decoder` of `{path}`", expected="an object of id to token")
    for key in sorted(rows, key=int):
        text = content(rows[key])
        if not isinstance(rows[key], dict) or text is None:
            raise CheckpointError(f"`added_tokens_decoder.{key}` of `{path}`", expected="a token with `content`")
        flags = {flag: value for flag in FLAGS if isinstance(value := rows[key].get(flag), bool)}
        tokens[text] = AddedToken(text, **flags | ({"special": True} if text in special else {}))
    for text in special:
        tokens.setdefault(text, AddedToken(text, special=True))
    return list(tokens.values())
