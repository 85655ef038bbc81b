"""How a value is spelt in a Modelfile, so that ollama reads back exactly that.

Comes in: a path, a name or a text. Goes out: the argument of a command, or `TemplateError`. Knows no command.
Source of the rules: ollama's parser (v0.33.0-rc2). An unquoted value runs to the end of its line and is trimmed at
both ends; nothing is escaped; a quoted value ends at the first line whose text so far ends in its quotes; characters
that Go's ``strconv.IsPrint`` refuses are dropped without a word.
"""

from __future__ import annotations

import re
from typing import Final

from dflash_gguf.errors import TemplateError

TRIPLE: Final = '"""'
_LINE: Final[frozenset[str]] = frozenset()
_TEXT: Final = frozenset("\n\t")

_PART: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
MODEL_NAME: Final = re.compile(rf"(?:{_PART}(?::[0-9]+)?/)?(?:{_PART}/)?{_PART}(?::{_PART})?")
"""A model's name in ollama: HOST/NAMESPACE/MODEL:TAG, of which only MODEL is needed."""


def line_value(value: str) -> str:
    """A path as the argument of a one-line command; raises `TemplateError` when no spelling of it survives."""
    _printable(value, _LINE, "rename the file or folder, or link to it under another name")
    if not value or value.startswith('"'):
        raise TemplateError(
            "a Modelfile value cannot be empty or start with a quote", value=value, remedy="rename the file"
        )
    return value if value == value.strip(" ") else f'"{value}"'


def text_value(text: str) -> str:
    """A text as the argument of ``SYSTEM``, ``TEMPLATE`` or ``LICENSE``: bare where that is safe, else quoted."""
    text = plain(text)
    bare = text and "\n" not in text and text == text.strip(" \t") and not text.startswith('"')
    return text if bare else f"{TRIPLE}{text}{TRIPLE}"


def quoted_value(text: str) -> str:
    """A text in quotes, whatever it holds: what ``PARAMETER stop`` takes. CR is refused, since it would be another."""
    _representable(text)
    return f"{TRIPLE}{text}{TRIPLE}" if "\n" in text or '"' in text else f'"{text}"'


def model_name(name: str) -> str:
    """``name`` when it can be that of a model of ollama; raises `TemplateError` for what looks like a path."""
    if MODEL_NAME.fullmatch(name) is None or name.lower().endswith(".gguf"):
        raise TemplateError("the name of an ollama model", value=name, expected="one such as qwen3:8b")
    return name


def plain(text: str) -> str:
    """The text with LF for its line ends; ollama would keep CR inside quotes, and end a bare line at it."""
    text = text.replace("\r\n", "\n")
    _representable(text)
    return text


def _representable(text: str) -> None:
    _printable(text, _TEXT, "take it out of the text")
    if TRIPLE in text:
        raise TemplateError("a Modelfile text cannot hold three quotes in a row: it would end there", value=text[:80])


def _printable(value: str, also: frozenset[str], remedy: str) -> None:
    dropped = next((char for char in value if not char.isprintable() and char not in also), None)
    if dropped is not None:
        raise TemplateError(
            f"a Modelfile cannot hold the character U+{ord(dropped):04X}", value=value[:4096], remedy=remedy
        )
