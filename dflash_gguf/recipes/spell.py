"""How steps are spelt: commands for a shell, settings as JSON or YAML.

Comes in: words and values, any text at all. Goes out: text that a shell, or a reader of that format, takes apart into
exactly these again.
"""

from __future__ import annotations

import json
import shlex
import unicodedata
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REFUSED: Final = ("Cc", "Cs")
"""Categories of characters that no line holds, line breaks and tabs apart: controls, and halves of characters."""
WIDTH: Final = 88
"""Columns up to which a command stands on one line."""


def command(rows: Sequence[Sequence[str]]) -> str:
    """A command over several lines, one for each row of words."""
    lines = [" ".join(map(_word, row)) for row in rows]
    if len(" ".join(lines)) <= WIDTH:
        return " ".join(lines)
    return " \\\n  ".join(lines)


def export(name: str, value: str) -> str:
    """A variable for the command that follows."""
    return f"export {name}={_word(value)}"


def document(form: str, values: Mapping[str, object]) -> str:
    """A settings file; ends with a newline."""
    return FORMS[form](values)


def _word(word: str) -> str:
    """One word for a shell. Raises `TemplateError` for one that cannot be shown."""
    _writable(word)
    return shlex.quote(word)


def _json(values: Mapping[str, object]) -> str:
    return json.dumps(_checked(values), indent=2, ensure_ascii=False) + "\n"


def _checked(value: object) -> object:
    if isinstance(value, dict):
        return {_checked(key): _checked(item) for key, item in value.items()}
    if isinstance(value, str):
        _writable(value)
    return value


def _yaml(values: Mapping[str, object], indent: str = "") -> str:
    """Nested mappings of scalars; every text in double quotes."""
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{key}:\n{_yaml(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: object) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    _writable(value)
    return "".join(char if char.isprintable() else _escaped(char) for char in json.dumps(value, ensure_ascii=False))


def _escaped(char: str) -> str:
    """YAML's escapes; JSON's pairs of surrogates are none."""
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _writable(text: str) -> None:
    """Raises `TemplateError` on what no file of text can hold, or what a terminal would act on."""
    odd = next((char for char in text if unicodedata.category(char) in REFUSED and char not in "\n\t"), None)
    if odd is not None:
        what = (
            "is no UTF-8 text" if unicodedata.category(odd) == "Cs" else f"holds the control character U+{ord(odd):04X}"
        )
        raise TemplateError(f"the path {ascii(text)[:160]} {what}", remedy="link to it under another name")


FORMS: Final[dict[str, Callable[[Mapping[str, object]], str]]] = {"json": _json, "yaml": _yaml}
