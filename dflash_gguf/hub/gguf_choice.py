"""Which file of a repository is meant: a model by its tag, a drafter beside it, the further parts of a split one.

Comes in: the paths that a repository holds, and a tag. Goes out: paths, the best first asked for; several where the
names do not settle it. Opens nothing, and knows nothing of what a file holds.
Source of the rules: llama.cpp common/download.cpp (0.5.0), which takes the first that fits in the order of a listing,
and looks for a tag anywhere in a path; here a tag is a whole word, and what the names leave open is said to be open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.shards import SHARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SUFFIX: Final = ".gguf"
SIDECARS: Final = ("dflash-", "dspark-")
"""In the name of a drafter that lies beside its target, of the kinds that run here."""
NO_MODELS: Final = ("mmproj", "imatrix", "mtp-", "eagle3-", *SIDECARS)
"""In the name of a GGUF that is no model of its own."""
UNTAGGED: Final = ("Q4_K_M", "Q8_0")
"""What is looked for, in turn, when no tag is given."""

_TAG: Final = re.compile(r"[-.]([A-Za-z0-9_]+)$")
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class GGUFName:
    """A path taken apart: ``stem`` is without the suffix and the number of a part, ``tag`` its last word."""

    path: str
    stem: str
    number: int
    count: int

    @property
    def base(self) -> str:
        """The name without its folders."""
        return self.path.rpartition("/")[2]

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that it lies in."""
        return tuple(self.path.split("/")[:-1])

    @property
    def tag(self) -> str:
        """The last word of the name, in capitals; empty when there is but one."""
        match = _TAG.search(self.stem)
        return match[1].upper() if match else ""

    def is_named(self, words: Iterable[str]) -> bool:
        """Whether the name holds one of ``words``."""
        return any(word in self.base for word in words)


def gguf_name(path: str) -> GGUFName:
    """Takes the path of a GGUF apart; numbers that no part of a split file has are words of its name."""
    match = SHARD.search(path)
    if match is not None and 1 <= int(match[1]) <= int(match[2]):
        return GGUFName(path, path[: match.start()], int(match[1]), int(match[2]))
    return GGUFName(path, path.removesuffix(SUFFIX), 1, 1)


def gguf_names(paths: Iterable[str]) -> list[GGUFName]:
    """The GGUFs among ``paths``, sorted by path; of a split one the first part."""
    names = (gguf_name(path) for path in sorted(paths) if path.endswith(SUFFIX))
    return [name for name in names if name.number == 1]


def models(paths: Iterable[str], tag: str = "") -> list[str]:
    """The models that fit ``tag`` equally well; without a tag, those of the first of `UNTAGGED` that is there, or all.

    A tag that ends a name is better than one inside it.
    """
    names = [gguf_name(path) for path in every_model(paths)]
    if tag:
        return _tagged(names, tag)
    return next((found for word in UNTAGGED if (found := _tagged(names, word))), [name.path for name in names])


def every_model(paths: Iterable[str]) -> list[str]:
    """The GGUFs that are models by their names, of any type."""
    return [name.path for name in gguf_names(paths) if not name.is_named(NO_MODELS)]


def plainest(paths: Sequence[str], tag: str = "") -> list[str]:
    """Of several that fit ``tag``, the one whose name all others lengthen: ``X-Q8_0`` before ``X-UD-Q8_0``."""
    stems = {path: _without(gguf_name(path).stem, tag or gguf_name(path).tag) for path in paths}
    for path, stem in stems.items():
        if all(other == stem or re.match(rf"{re.escape(stem)}[-.]", other) for other in stems.values()):
            return [path] if list(stems.values()).count(stem) == 1 else list(paths)
    return list(paths)


def sidecars(paths: Iterable[str], beside: str | None, tag: str = "", like: str = "") -> list[str]:
    """The drafters by name that fit equally well: next to the model ``beside`` or in a folder above it, of ``tag``.

    Nearer folders are better, then ``tag`` in the name (default: the tag of the file ``like``), then a number of bits
    near to that tag's. ``beside`` is None where the drafters have no model with them: then folders do not count.
    """
    names = [name for name in gguf_names(paths) if name.is_named(SIDECARS)]
    if beside is not None:
        folders = gguf_name(beside).folders
        names = [name for name in names if name.path != beside and name.folders == folders[: len(name.folders)]]
    wanted = tag.upper() or gguf_name(like).tag
    ranks = {name.path: _rank(name, wanted, nested=beside is not None) for name in names}
    return [path for path, rank in ranks.items() if rank == min(ranks.values())]


def parts(path: str) -> list[str]:
    """Every part of the file that ``path`` is a part of, in their order."""
    name = gguf_name(path)
    if name.count == 1:
        return [path]
    return [f"{name.stem}-{number:05}-of-{name.count:05}{SUFFIX}" for number in range(1, name.count + 1)]


def by_llama_cpp(paths: Iterable[str], tag: str = "") -> str | None:
    """What ``llama-server -hf`` takes from a listing in this order: the user is told where that is another file."""
    names = [gguf_name(path) for path in paths if path.endswith(SUFFIX)]
    firsts = [name.path for name in names if name.number == 1 and not name.is_named(NO_MODELS)]
    for word in (tag,) if tag else UNTAGGED:
        inside = re.compile(f"{word}[-.]", re.IGNORECASE)  # a pattern there too; a tag's letters make no wrong one
        found = next(filter(inside.search, firsts), None)
        if found is not None:
            return found
    return firsts[0] if firsts and not tag else None


def has_tag(path: str, tag: str) -> bool:
    """Whether the file's name ends with ``tag``."""
    return _ends(gguf_name(path).stem, tag)


def _tagged(names: Sequence[GGUFName], tag: str) -> list[str]:
    ending = [name.path for name in names if _ends(name.stem, tag)]
    within = re.compile(rf"(^|[-./]){re.escape(tag)}[-./]", re.IGNORECASE)
    return ending or [name.path for name in names if within.search(name.path)]


def _ends(stem: str, tag: str) -> bool:
    return re.search(rf"(^|[-./]){re.escape(tag)}$", stem, re.IGNORECASE) is not None


def _without(stem: str, tag: str) -> str:
    return stem[: -len(tag)].rstrip("-.") if tag and _ends(stem, tag) else stem


def _rank(name: GGUFName, wanted: str, *, nested: bool) -> tuple[int, bool, int]:
    """Less is better."""
    depth = -len(name.folders) if nested else 0
    if not wanted:
        return depth, False, 0
    return depth, not _ends(name.stem, wanted), abs(_bits(name.tag) - _bits(wanted))


def _bits(tag: str) -> int:
    """The first number in a tag: 16 of BF16, 4 of Q4_K_M; 0 when there is none."""
    match = _NUMBER.search(tag)
    return int(match[0]) if match else 0
