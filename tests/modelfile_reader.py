"""A reader of Modelfiles that follows ollama's grammar (parser of v0.33.0-rc2), for round trips."""

from __future__ import annotations

COMMANDS = {
    *("from", "draft", "parameter", "template", "system", "adapter"),
    *("license", "message", "renderer", "parser", "requires"),
}
BLANKS = " \t"


class ModelfileError(Exception):
    """What ollama's parser would refuse."""


def read(text: str) -> list[tuple[str, str]]:
    """Commands in order: (lower-case name, argument); PARAMETER's name is ``parameter:NAME``."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    commands: list[tuple[str, str]] = []
    while lines:
        line = lines.pop(0).lstrip(BLANKS)
        if not line or line.startswith("#"):
            continue
        commands.append(_command(line, lines))
    if not any(name == "from" for name, _ in commands):
        raise ModelfileError("no FROM line")
    return commands


def _command(line: str, lines: list[str]) -> tuple[str, str]:
    size = len(line) - len(line.lstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    name, rest = line[:size].lower(), line[size:]
    if name not in COMMANDS or not rest or rest[0] not in BLANKS:
        raise ModelfileError(f"no command: {line!r}")
    rest = rest[1:]
    if name == "parameter":
        parameter, _, rest = rest.partition(" ")
        if not parameter or not parameter.replace("_", "").isalnum():
            raise ModelfileError(f"unknown parameter {parameter!r}")
        if not rest.strip(BLANKS):
            raise ModelfileError("unexpected EOF")
        name = f"parameter:{parameter}"
    return name, _value(rest, lines)


def _value(rest: str, lines: list[str]) -> str:
    value = _printable(rest).strip(BLANKS)
    for quote in ('"""', '"'):
        if value.startswith(quote):
            return _quoted(value[len(quote) :], quote, lines)
    return value


def _quoted(value: str, quote: str, lines: list[str]) -> str:
    """Up to the first line that ends in ``quote``; nothing is escaped."""
    while not value.rstrip(BLANKS).endswith(quote):
        if not lines:
            raise ModelfileError("unexpected EOF")
        value += "\n" + _printable(lines.pop(0))
    return value.rstrip(BLANKS)[: -len(quote)]


def _printable(text: str) -> str:
    """Go's parser drops what ``unicode.IsPrint`` refuses; tabs count as blanks."""
    return "".join(char for char in text if char.isprintable() or char == "\t")
