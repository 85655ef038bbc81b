"""A reader of Modelfiles that follows ollama's grammar (parser of v0.33.0-rc2) character by character.

`read` gives commands, `request` what ollama would make of them; both raise `ModelfileError` where ollama refuses.
"""

from __future__ import annotations

import re

COMMANDS = {
    *("from", "draft", "parameter", "template", "system", "adapter"),
    *("license", "message", "renderer", "parser", "requires"),
}
ROLES = {"system", "user", "assistant"}
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
NAME_CHARS = LETTERS | frozenset("0123456789_")
BLANKS, NEWLINES = " \t", "\r\n"

INTEGERS = {
    *("num_keep", "seed", "num_predict", "top_k", "repeat_last_n", "num_ctx", "num_batch", "num_gpu", "main_gpu"),
    *("num_thread", "draft_num_predict"),
}
FLOATS = {
    *("top_p", "min_p", "typical_p", "temperature", "repeat_penalty", "presence_penalty", "frequency_penalty"),
}
SEMVER = re.compile(
    r"v(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)"
    r"(-((0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)\.?)+)?(\+[0-9A-Za-z.-]+)?)?)?"
)


class ModelfileError(Exception):
    """What ollama would refuse."""


def read(text: str) -> list[tuple[str, str]]:
    """Commands in order: (lower-case name, argument); PARAMETER's name is ``parameter:NAME``."""
    machine = _Machine()
    for char in text.removeprefix("\ufeff"):
        machine.take(char)
    machine.end()
    if not any(name == "from" for name, _ in machine.commands):
        raise ModelfileError("no FROM line")
    return machine.commands


class _Machine:
    """Where the reader is: in nothing, a name, a parameter's name, a role, a value or a comment."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, str]] = []
        self.place, self.text, self.name, self.role = "nothing", "", "", ""

    def take(self, char: str) -> None:
        getattr(self, f"_in_{self.place}")(char)

    def end(self) -> None:
        if self.place == "value" and self._finish():
            return
        if self.place not in ("nothing", "comment"):
            raise ModelfileError("unexpected EOF")

    def _go(self, place: str, text: str = "") -> None:
        self.place, self.text = place, text

    def _in_nothing(self, char: str) -> None:
        if char == "#":
            self._go("comment")
        elif char not in BLANKS + NEWLINES:
            self._go("name", _kept(char))

    def _in_comment(self, char: str) -> None:
        if char in NEWLINES:
            self._go("nothing")

    def _in_name(self, char: str) -> None:
        if char in LETTERS:
            self.text += char
            return
        if char not in BLANKS or self.text.lower() not in COMMANDS:
            raise ModelfileError(f"no command: {self.text!r}")
        self.name = self.text.lower()
        self._go({"parameter": "parameter", "message": "role"}.get(self.name, "value"))

    def _in_parameter(self, char: str) -> None:
        if char in NAME_CHARS:
            self.text += char
        elif char in BLANKS:
            self.name = f"parameter:{self.text}"
            self._go("value")
        else:
            raise ModelfileError("unexpected EOF")

    def _in_role(self, char: str) -> None:
        if char in LETTERS:
            self.text += char
        elif char in BLANKS:
            if self.text not in ROLES:
                raise ModelfileError(f"no role: {self.text!r}")
            self.role = f"{self.text}: "
            self._go("value")
        else:
            raise ModelfileError("unexpected EOF")

    def _in_value(self, char: str) -> None:
        if char in NEWLINES and self._finish():
            self._go("nothing")
        else:
            self.text += char if char in BLANKS + NEWLINES else _kept(char)

    def _finish(self) -> bool:
        """Whether the value ends here; inside quotes it does not."""
        value = _unquoted(self.text.strip(BLANKS + NEWLINES))
        if value is None:
            return False
        self.commands.append((self.name, self.role + value))
        self.role = ""
        return True


def _kept(char: str) -> str:
    """Go drops what ``strconv.IsPrint`` refuses."""
    return char if char.isprintable() else ""


def _unquoted(text: str) -> str | None:
    for quote in ('"""', '"'):
        if text.startswith(quote):
            whole = len(text) >= 2 * len(quote) and text.endswith(quote)
            return text[len(quote) : -len(quote)] if whole else None
    return text


def request(text: str) -> dict[str, object]:
    """What ollama makes of a Modelfile: one value a command, typed parameters under ``parameters``."""
    found: dict[str, object] = {"parameters": {}, "license": []}
    for name, value in read(text):
        if name.startswith("parameter:"):
            _set(found["parameters"], name.removeprefix("parameter:"), value)
        elif name == "license":
            found["license"].append(value)
        elif name == "requires":
            if SEMVER.fullmatch("v" + value.removeprefix("v")) is None:
                raise ModelfileError("requires must be a valid semver")
            found[name] = value.removeprefix("v")
        else:
            found[name] = value
    return found


def _set(parameters: dict[str, object], name: str, value: str) -> None:
    if name == "stop":
        parameters.setdefault("stop", []).append(value)
    elif name in INTEGERS:
        if re.fullmatch(r"[+-]?[0-9]+", value) is None:
            raise ModelfileError(f"invalid int value [{value}]")
        parameters[name] = int(value)
    elif name in FLOATS:
        if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", value) is None:
            raise ModelfileError(f"invalid float value [{value}]")
        parameters[name] = float(value)
    elif name == "use_mmap":
        parameters[name] = {"true": True, "false": False}[value]
    else:
        raise ModelfileError(f"unknown parameter '{name}'")
