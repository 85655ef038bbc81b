"""How people name a repository: ``ORG/REPO``, with ``@REVISION`` and ``:TAG`` where they are needed.

Comes in: a word of the command line. Goes out: its parts. Asks no server. A folder or file that exists is never
the name of a repository. Source of the names' rules: llama.cpp common/download.cpp (0.5.0).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dflash_gguf.errors import HubError, brief

_WORD: Final = r"[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*"
REPO: Final = re.compile(rf"{_WORD}/{_WORD}")
REPO_LIMIT: Final = 256
REVISION: Final = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][^\s:~^?*\[\\\x00-\x1f]*")
TAG: Final = re.compile(r"[A-Za-z0-9_.-]+")
FILE_ENDINGS: Final = (".gguf", ".safetensors", ".json")
"""What ends so is the path of a file, there or not."""
FORMS: Final = "ORG/REPO, ORG/REPO@REVISION, ORG/REPO:TAG or ORG/REPO@REVISION:TAG"


@dataclass(frozen=True, slots=True)
class HubSpec:
    """A repository; ``revision`` is a branch, a tag of git or a commit, ``tag`` names a type such as Q4_K_M."""

    repo: str
    revision: str | None = None
    tag: str | None = None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.repo}{revision}{f':{self.tag}' if self.tag else ''}"


def parse_spec(text: str) -> HubSpec:
    """The parts of ``text``; raises `HubError` when it is no name of a repository."""
    rest, colon, tag = text.partition(":")
    repo, at, revision = rest.partition("@")
    good = REPO.fullmatch(repo) and len(repo) <= REPO_LIMIT
    if not good or (at and not REVISION.fullmatch(revision)) or (colon and not TAG.fullmatch(tag)):
        raise HubError("the name of a repository", value=brief(text), expected=FORMS)
    return HubSpec(repo, revision or None, tag or None)


def on_hub(place: str | os.PathLike[str]) -> HubSpec | None:
    """The repository that ``place`` names, or None when it is a path: one that exists, or one by its looks."""
    if isinstance(place, os.PathLike) and not isinstance(place, Path):
        return None
    text = str(place)
    if Path(text).exists() or text.endswith(FILE_ENDINGS):
        return None
    try:
        return parse_spec(text)
    except HubError:
        return None
