"""The prompts of a measurement: the built-in ones, or those of a file.

Comes in: nothing, or a file that someone else wrote. Goes out: frozen prompts. Knows nothing of models nor of the hub.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import BenchError, brief
from dflash_gguf.file_text import printable
from dflash_gguf.files import regular_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

FILE_LIMIT: Final = 256 << 20
"""Bytes of a file of prompts, unpacked."""
LABEL_SHOWN: Final = 48
NO_KIND: Final = "prompts"
"""The kind of prompts whose file names none."""

_JSONL: Final = (".jsonl", ".ndjson", ".jsonl.gz")


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """What a user says, turn by turn, and the kind of text it asks for; ``opening``: messages before the first turn."""

    kind: str
    turns: tuple[str, ...]
    opening: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """The first turn on one line, cut."""
        text = printable(" ".join(self.turns[0].split()))
        return text if len(text) <= LABEL_SHOWN else f"{text[: LABEL_SHOWN - 3]}..."


def built_in() -> tuple[BenchPrompt, ...]:
    """The prompts that this package carries."""
    from dflash_gguf.runner.prompts import PROMPTS

    return tuple(BenchPrompt(prompt.kind, (prompt.text,)) for prompt in PROMPTS)


def limited(prompts: Sequence[BenchPrompt], limit: int | None) -> tuple[BenchPrompt, ...]:
    """At most ``limit`` prompts, taken from each kind in turn, in the order of ``prompts``."""
    if limit is None:
        return tuple(prompts)
    kinds = dict.fromkeys(prompt.kind for prompt in prompts)
    places = [[i for i, prompt in enumerate(prompts) if prompt.kind == kind] for kind in kinds]
    in_turn = [i for i in chain.from_iterable(zip_longest(*places)) if i is not None]
    return tuple(prompts[i] for i in sorted(in_turn[:limit]))


def from_file(path: Path) -> tuple[BenchPrompt, ...]:
    """JSON lines with ``prompt``, ``turns`` or ``messages`` and, if wanted, ``kind``; or plain text, a prompt a line.

    A file is taken for JSON lines by its name, or when its first line that is not empty begins with ``{``. Raises
    BenchError naming the file and the line.
    """
    lines = list(numbered_lines(path))
    if not lines:
        raise BenchError(f"`{path}` holds no prompt", remedy="write one a line")
    if str(path).lower().endswith(_JSONL) or lines[0][1].lstrip().startswith("{"):
        return tuple(from_row(json_row(line, where), where) for where, line in lines)
    return tuple(BenchPrompt(NO_KIND, (line.strip(),)) for _, line in lines)


def numbered_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Where each line stands that is not empty, and its text; ``.gz`` is unpacked."""
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            yield f"`{path}`, line {number}", line


def _text(path: Path) -> str:
    try:
        regular_size(path)
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            data = file.read(FILE_LIMIT + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BenchError(f"`{path}` is no whole gzip file: {error}", remedy="get it again") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BenchError(f"`{path}` cannot be read: {reason}", remedy="check the path") from None
    if len(data) > FILE_LIMIT:
        raise BenchError(f"`{path}` is too large", expected=f"at most {FILE_LIMIT} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BenchError(f"`{path}`, line {line} is not UTF-8 text", remedy="save the file as UTF-8") from None


def json_row(line: str, where: str) -> dict[str, Any]:
    """One line as a JSON object."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise BenchError(f"{where} is not JSON", value=brief(line[:80]), expected='{"prompt": "..."}') from None
    if not isinstance(row, dict):
        raise BenchError(where, value=type(row).__name__, expected='a JSON object such as {"prompt": "..."}')
    return row


def from_row(row: Mapping[str, Any], where: str) -> BenchPrompt:
    """The prompt in a row of a file: its ``prompt``, ``turns`` or ``messages``, and its ``kind`` or ``category``."""
    kind = row.get("kind", row.get("category", NO_KIND))
    if not isinstance(kind, str) or not kind.strip():
        raise BenchError(f"{where}: the kind", value=brief(kind), expected="a text")
    given = [name for name in ("prompt", "turns", "messages") if name in row]
    if len(given) != 1:
        found = "none of" if not given else "more than one of"
        raise BenchError(f"{where} has {found} `prompt`, `turns` and `messages`", remedy="give one of them")
    if given == ["messages"]:
        opening, last = _messages(row["messages"], where)
        return BenchPrompt(kind.strip(), (last,), opening)
    return BenchPrompt(kind.strip(), texts(row[given[0]], f"{where}: `{given[0]}`"))


def texts(value: Any, what: str) -> tuple[str, ...]:
    """A text, or several."""
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not found or not all(isinstance(t, str) and t.strip() for t in found):
        raise BenchError(what, value=brief(value), expected="a text, or a list of texts, none empty")
    return tuple(_unicode(found, what))


def _messages(value: Any, where: str) -> tuple[tuple[tuple[str, str], ...], str]:
    what = f"{where}: `messages`"
    if not isinstance(value, list) or not value:
        raise BenchError(what, value=brief(value), expected="a list of messages")
    found = []
    for message in value:
        role, content = (message.get(k) if isinstance(message, dict) else None for k in ("role", "content"))
        if not isinstance(role, str) or not isinstance(content, str):
            raise BenchError(what, value=brief(message), expected="messages with a `role` and a `content` of text")
        found.append((role, content))
    if found[-1][0] != "user" or not found[-1][1].strip():
        raise BenchError(what, value=found[-1][0], expected="a user's message at the end")
    _unicode((content for _, content in found), what)
    return tuple(found[:-1]), found[-1][1]


def _unicode(found: Iterable[str], what: str) -> Iterable[str]:
    found = list(found)
    if any("\ud800" <= char <= "\udfff" for text in found for char in text):
        raise BenchError(f"{what} holds half of a UTF-16 pair", expected="valid text")
    return found
