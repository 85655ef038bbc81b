"""Text that comes from a file, made fit to be shown: on one line, of a bounded length, and nothing a terminal acts on.

Comes in: any text. Goes out: text for a message, a terminal or a JSON object. Knows nothing of files.
"""

from __future__ import annotations

from math import isfinite
from shlex import quote
from typing import TYPE_CHECKING, Final
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME_SHOWN: Final = 80
"""Characters of a text from a file that a message shows."""
LIST_SHOWN: Final = 5
"""Items of a list from a file that a message shows."""


def printable(text: str) -> str:
    """What a terminal would act on, or not show, is spelt out. Doing so twice is doing so once."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def without_controls(text: str) -> str:
    """What commands a terminal is spelt out, but for line breaks and tabs; the parts of an emoji stay together."""
    return "".join(char if char in "\n\t" or category(char) != "Cc" else f"\\x{ord(char):02x}" for char in text)


def shown(text: str) -> str:
    """``text`` cut to `NAME_SHOWN` characters, and printable."""
    return printable(text if len(text) <= NAME_SHOWN else f"{text[: NAME_SHOWN - 3]}...")


def shell_word(path: object) -> str:
    """A path for a shell, in quotes where it needs them; no command takes it for an option."""
    return quote(f"./{path}" if str(path).startswith("-") else str(path))


def quoted(text: str) -> str:
    """A text in quotes and in ASCII, of at most `NAME_SHOWN` characters."""
    return ascii(text[:NAME_SHOWN])[:NAME_SHOWN]


def listed(items: Sequence[object], mark: str = "") -> str:
    """The first `LIST_SHOWN` of ``items``, each between two of ``mark``, and how many more there are."""
    first = ", ".join(f"{mark}{shown(str(item))}{mark}" for item in items[:LIST_SHOWN])
    return first if len(items) <= LIST_SHOWN else f"{first} and {len(items) - LIST_SHOWN} more"


def json_value(value: object) -> object:
    """JSON has no NaN and no infinity: they become text. Nor has UTF-8 the halves that a path's odd bytes become."""
    if isinstance(value, dict):
        return {json_value(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return str(value) if isinstance(value, float) and not isfinite(value) else value
