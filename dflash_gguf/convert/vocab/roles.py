"""Which tokens have a role (first, last, padding), and whether the tokenizer adds them by itself.

Comes in: a tokenizer's files. Goes out: `Roles`. What a post-processor's template adds is only guessed from its
ends, exactly as llama.cpp's converter does.
Source: llama.cpp gguf-py/gguf/vocab.py, ``SpecialVocab`` (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.vocab.fast import content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.convert.vocab.files import TokenizerFiles

ROLES: Final = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
LATER_ENDS: Final = ("eot", "eom")
"""Roles, in order, of an end token that the template's own end token displaces."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Role -> token id, and role -> whether it is added, both in the order in which they are written."""

    ids: dict[str, int]
    added: dict[str, bool]


@dataclass(slots=True)
class _Reading:
    """What is known while the files are read: the settings as amended, and what was decided from them."""

    settings: dict[str, Any]
    n_vocab: int | None
    roles: list[str] = field(default_factory=lambda: list(ROLES))
    added: dict[str, bool] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)
    """Role -> the token that the post-processor is compared with."""


def read_roles(files: TokenizerFiles, n_vocab: int | None = None) -> Roles:
    """Roles by tokenizer_config.json, then by config.json; ids from ``n_vocab`` on are left out."""
    reading = _Reading(dict(files.settings), n_vocab)
    _adopt_ends(reading)
    _read_post_processor(reading, files.tokenizer.get("post_processor"))
    if reading.settings:
        _read_settings(reading, files.tokenizer.get("added_tokens") or [])
    for role in reading.roles:
        _set(reading, role, _config_id(files.config, role))
    return Roles(reading.ids, reading.added)


def _adopt_ends(reading: _Reading) -> None:
    """A tokenizer without first and last token takes its class and separator tokens for them."""
    settings = reading.settings
    for role, other in (("bos", "cls"), ("eos", "sep")):
        if settings and not settings.get(f"{role}_token") and settings.get(f"{other}_token"):
            settings[f"{role}_token"] = settings[f"{other}_token"]
    reading.tokens = {role: settings.get(f"{role}_token") for role in ("bos", "cls", "eos", "sep")}


def _read_post_processor(reading: _Reading, processor: object) -> None:
    if not isinstance(processor, dict):
        return
    steps = processor.get("processors", [processor])
    for step in steps if isinstance(steps, list) else []:
        reader = _STEPS.get(str(step.get("type"))) if isinstance(step, dict) else None
        if reader is not None:
            reader(reading, step)


def _read_byte_level(reading: _Reading, _step: Mapping[str, Any]) -> None:
    reading.added.setdefault("bos", False)
    reading.added.setdefault("eos", False)


def _read_roberta(reading: _Reading, step: Mapping[str, Any]) -> None:
    reading.added |= {"bos": True, "eos": True, "sep": True}
    for role, other in (("cls", "bos"), ("sep", "eos")):
        if reading.settings and not reading.tokens[role]:
            pair = step.get(role)
            _put(reading, role, pair[0] if isinstance(pair, list) and pair else reading.tokens[other])


def _read_template(reading: _Reading, step: Mapping[str, Any]) -> None:
    single = _pieces(step, "single")
    first = _special(single[0]) if len(single) > 1 else None
    last = _special(single[-1]) if len(single) > 1 else None
    if first:
        _read_first(reading, first)
    if last:
        _read_last(reading, last)
    _read_pair(reading, _pieces(step, "pair"), first, last)


def _read_first(reading: _Reading, first: str) -> None:
    tokens = reading.tokens
    if not reading.settings:
        tokens["bos"] = first
    elif first not in (tokens["bos"], tokens["cls"]):
        for role in ("bos", "cls"):
            if not tokens[role]:
                _put(reading, role, first)
    reading.added["bos"] = first in (tokens["bos"], tokens["cls"])


def _read_last(reading: _Reading, last: str) -> None:
    tokens = reading.tokens
    if not reading.settings:
        tokens["eos"] = last
    elif last != tokens["eos"]:
        later = next((role for role in LATER_ENDS if role not in reading.roles), None)
        if later is not None:
            reading.roles.append(later)
            reading.settings[f"{later}_token"] = tokens["eos"]
        _put(reading, "eos", last)
    reading.added["eos"] = last == tokens["eos"]


def _read_pair(reading: _Reading, pair: list[Any], first: str | None, last: str | None) -> None:
    """Look whether something that stands between two sequences separates them."""
    start = 1 if pair and first and _special(pair[0]) == first else 0
    stop = -1 if pair and last and _special(pair[-1]) == last else None
    pair = pair[start:stop]
    if len(pair) < 3 or (_sequence(pair[0]), _sequence(pair[-1])) != ("A", "B"):
        return
    middle, ends = [_special(piece) for piece in pair[1:-1]], (reading.tokens["sep"], reading.tokens["eos"])
    separates = bool(middle[0]) and middle[0] in ends and not last
    separates = separates or (len(middle) == 2 and bool(middle[1]) and middle[1] in ends)
    reading.added["sep"] = separates
    if separates and not reading.tokens["sep"] and reading.settings:
        reading.settings["sep_token"] = reading.tokens["eos"]


_STEPS: Final = {
    "ByteLevel": _read_byte_level,
    "RobertaProcessing": _read_roberta,
    "TemplateProcessing": _read_template,
}


def _read_settings(reading: _Reading, added_tokens: list[Any]) -> None:
    numbers: dict[str, Any] = {}
    for row in added_tokens:
        numbers.setdefault(str(row.get("content")), row.get("id"))
    for role in reading.roles:
        flag = reading.settings.get(f"add_{role}_token")
        if isinstance(flag, bool):
            reading.added.setdefault(role, flag)
        text = content(reading.settings.get(f"{role}_token"))
        if text is not None:
            _set(reading, role, numbers.get(text))


def _config_id(config: Mapping[str, Any], role: str) -> object:
    number = config.get(f"{role}_token_id")
    inner = config.get("text_config")
    return inner.get(f"{role}_token_id") if number is None and isinstance(inner, dict) else number


def _set(reading: _Reading, role: str, number: object) -> None:
    """Give ``role`` its token unless it has one; some configs write -1 for none."""
    if type(number) is int and number >= 0 and (reading.n_vocab is None or number < reading.n_vocab):
        reading.ids.setdefault(role, number)


def _put(reading: _Reading, role: str, token: object) -> None:
    reading.tokens[role] = reading.settings[f"{role}_token"] = token


def _pieces(step: Mapping[str, Any], name: str) -> list[Any]:
    value = step.get(name)
    return value if isinstance(value, list) else []


def _special(piece: object) -> str | None:
    return _piece_id(piece, "SpecialToken")


def _sequence(piece: object) -> str | None:
    return _piece_id(piece, "Sequence")


def _piece_id(piece: object, kind: str) -> str | None:
    inner = piece.get(kind) if isinstance(piece, dict) else None
    value = inner.get("id") if isinstance(inner, dict) else None
    return value if isinstance(value, str) else None
