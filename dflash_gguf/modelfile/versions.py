"""Versions of ollama: which one does what, and how two compare.

Comes in: a version's text. Goes out: what sorts as ollama's releases do. Asks no server.
Source: the tagged files of ollama (v0.19.0 to v0.33.0-rc2), read 2026-11-30; golang.org/x/mod/semver for the spelling.
"""

from __future__ import annotations

import re
from typing import Final

from dflash_gguf.errors import TemplateError
from dflash_gguf.facts import DFLASH2

MIN_OLLAMA: Final = "0.32.7"
"""The first release that launches a GGUF drafter as DFlash; older ones take it for an MTP drafter."""

MIN_SAFETENSORS: Final = "0.19.0"
"""The first release that takes folders of safetensors; its `--experimental` refuses a lower `REQUIRES`."""

MIN_RENDERERS: Final = {"qwen3.8": "0.32.12"}
"""Renderer -> the first release that has it, where that is later than `MIN_OLLAMA`."""

LAST_WITHOUT_DFLASH2: Final = "0.33.0-rc2"
"""The newest ollama whose llama.cpp is known to be too old for DFlash 2; which release came first is not known."""

DFLASH2_BUILD: Final = "b10665"
"""The first build of llama.cpp that loads DFlash 2."""

MLX_PULL_REQUEST: Final = "https://github.com/ollama/ollama/pull/17865"
"""Brings DFlash 2, and Qwen targets, to ollama's safetensors lane."""

DFLASH2_NOTE: Final = (
    f"# DFlash 2 needs an ollama newer than {LAST_WITHOUT_DFLASH2}: its llama.cpp must be {DFLASH2_BUILD} or later.\n"
)
DFLASH2_MLX_NOTE: Final = f"# DFlash 2 beside safetensors needs an ollama that holds {MLX_PULL_REQUEST}.\n"

LONGEST: Final = 256
"""Characters of a version; a longer one is a slip, or not ollama's."""

_NUMBER: Final = r"(0|[1-9][0-9]*)"
_PRE: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
SEMVER: Final = re.compile(
    rf"v?{_NUMBER}\.{_NUMBER}(?:\.{_NUMBER}((?:-{_PRE}(?:\.{_PRE})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?))?"
)
"""A version as ollama takes it: two or three numbers; what follows them only behind three."""

Version = tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]


def version_key(text: str) -> Version | None:
    """A version such that newer ones compare greater: a pre-release is older than what it leads to."""
    match = SEMVER.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    major, minor, patch = (int(part or 0) for part in match.groups()[:3])
    pre = (match[4] or "").partition("+")[0]
    parts = tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.findall(r"\d+|\D+", pre))
    return (major, minor, patch), not pre, parts


def known_key(text: str) -> Version:
    """`version_key` of a version from this module's own tables."""
    version = version_key(text)
    if version is None:
        raise TemplateError(f"`{text}` is no version")
    return version


def needed(kind: str, version: str) -> str:
    """Why the ollama of ``version`` cannot run a GGUF drafter of ``kind``, or an empty text.

    A build without a version (0.0.0) is a developer's, of which nothing is known.
    """
    found = version_key(version)
    if found is None or not any(found[0]):
        return ""
    if found < known_key(MIN_OLLAMA):
        return f"a DFlash drafter needs {MIN_OLLAMA} or newer: older ones launch it as an MTP drafter"
    if kind == DFLASH2 and found <= known_key(LAST_WITHOUT_DFLASH2):
        return f"DFlash 2 needs one newer than {LAST_WITHOUT_DFLASH2}, whose llama.cpp is {DFLASH2_BUILD} or later"
    return ""


def required(given: str | None, lane_least: str, renderer: str | None) -> tuple[str, tuple[str, ...]]:
    """The value of ``REQUIRES`` and what to say about it; ``lane_least`` is what the kind of files needs.

    Raises `TemplateError` when ``given`` is no version, or one that ``ollama create`` refuses.
    """
    least = max(lane_least, MIN_RENDERERS.get(renderer or "", lane_least), key=known_key)
    if given is None:
        return least, ()
    found = version_key(given)
    if found is None:
        raise TemplateError("`REQUIRES`", value=given[:LONGEST], expected=f"a version such as {least}")
    plain = given.removeprefix("v")
    if found >= known_key(least):
        return plain, ()
    if found >= known_key(lane_least):
        return plain, (f"ollama below {least} does not have the renderer `{renderer}`",)
    if lane_least == MIN_SAFETENSORS:
        raise TemplateError("`REQUIRES`", value=given, expected=f"{lane_least} or more, or `--experimental` refuses it")
    return plain, (
        f"ollama below {lane_least} does not run this as it is meant: it does not know a DFlash drafter as one",
    )
