"""How a model writes calls, and what its readers share.

Comes in: the text of one call. Goes out: calls, or why there are none. Knows nothing of streams.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from dflash_gguf.serve.deltas import Call

Tools = Mapping[str, Mapping[str, Any]]
"""Names of functions -> the JSON schemas of their parameters."""

_NAME: Final = re.compile(r"[\w./:-]{1,256}")


class MalformedCallError(Exception):
    """The text is no call, and will be none whatever follows."""


class UnfinishedCallError(Exception):
    """The text ends inside a value, which may hold what else would end the call."""


Reader = Callable[[str, Tools], Sequence[Call]]
"""The calls of a text that begins with an opening mark and, but at an answer's end, ends with a closing one."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a template's model writes calls.

    ``signs``: what the template holds, all of them; ``unlike``: and none of these. ``marks``: opening -> closing.
    ``quotes``: other marks that must be spelt out. ``in_thoughts``: a call ends the thinking that it stands in.
    """

    name: str
    signs: tuple[str, ...]
    read: Reader
    marks: Mapping[str, str] = field(default_factory=dict)
    unlike: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()
    in_thoughts: bool = False

    def fits(self, template: str) -> bool:
        """Whether ``template`` is of a model that writes calls so."""
        return all(sign in template for sign in self.signs) and not any(sign in template for sign in self.unlike)

    @property
    def spelt(self) -> tuple[str, ...]:
        """The marks that must be spelt out where they are control tokens."""
        return (*self.marks, *self.marks.values(), *self.quotes)


def inside(text: str, opening: str, closing: str) -> str:
    """``text`` without its marks, of which the closing one may be missing, and without blanks around."""
    return text.removeprefix(opening).removesuffix(closing).strip()


def call_of(name: object, arguments: str) -> Call:
    """A call whose name can be one, and whose arguments are text that can be sent."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or not _is_text(arguments):
        raise MalformedCallError
    return Call(name, arguments)


def loads(text: str) -> Any:
    """The value of a JSON text; raises MalformedCallError, as for numbers that JSON does not have."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        raise MalformedCallError from None


def dumps(value: object) -> str:
    """JSON as Python and Hugging Face's templates write it, halves of surrogate pairs escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _is_text(text) else json.dumps(value)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise MalformedCallError
    return value


def _refuse(_name: str) -> NoReturn:
    raise MalformedCallError


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
