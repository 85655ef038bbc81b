"""A repository of the hub as the converter needs it: its small files as a folder here, its weights as files elsewhere.

Comes in: a listing, and which small files are wanted. Goes out: a `Repository`. What the cache holds of the weights is
used from there. Downloads no weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.checkpoint import INDEXES, WEIGHTS
from dflash_gguf.convert.strict_json import FILE_LIMIT
from dflash_gguf.errors import HubError
from dflash_gguf.hub.ranges import RemoteFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dflash_gguf.files import File
    from dflash_gguf.hub.client import Hub, Listing

CONFIG: Final = "config.json"
TOKENIZER: Final = "tokenizer.json"
DRAFTER_FILES: Final = (
    CONFIG, "generation_config.json", "README.md", "mask_embedding.pt", "hf_quant_config.json", INDEXES,
)  # fmt: skip
TARGET_FILES: Final = (
    CONFIG, "generation_config.json", TOKENIZER, "tokenizer_config.json", "tokenizer.model", "chat_template.jinja",
    "chat_template.json", "additional_chat_templates/*.jinja", INDEXES,
)  # fmt: skip
"""What is read of a drafter's and of a target's folder besides safetensors."""
INNER: Final = "dflash"
"""Folder in which some publish a drafter inside its target's repository."""
GGUF: Final = ".gguf"


@dataclass(frozen=True, slots=True)
class Repository:
    """``folder`` is in the cache's snapshot; ``weights`` are its safetensors by their paths in the folder."""

    hub: Hub = field(repr=False)
    listing: Listing = field(repr=False)
    folder: Path
    weights: Mapping[str, File]

    @property
    def called(self) -> str:
        """The repository's own name, as that of a folder."""
        return self.listing.repo.rpartition("/")[2]

    @property
    def page(self) -> str:
        """The repository's address."""
        return f"{self.hub.endpoint}/{self.listing.repo}"


def drafter_repository(hub: Hub, listing: Listing) -> Repository:
    """The repository of a drafter; raises `HubError` when it holds none."""
    inside = INNER if f"{INNER}/{CONFIG}" in listing.files else ""
    if not inside and CONFIG not in listing.files:
        if any(path.endswith(GGUF) for path in listing.files):
            raise HubError(
                f"`{listing.repo}` holds GGUF files, which need no conversion",
                remedy="give the repository of the safetensors, or run the file beside its target",
            )
        raise HubError(f"`{listing.repo}` has no {CONFIG}", expected="a drafter as its authors publish it")
    return _repository(hub, listing, inside, DRAFTER_FILES)


def target_repository(hub: Hub, listing: Listing) -> Repository:
    """The repository of a target as its authors publish it, of which config and tokenizer are downloaded."""
    return _repository(hub, listing, "", TARGET_FILES)


def is_folder(listing: Listing) -> bool:
    """Whether the repository holds a target in Hugging Face's form."""
    return CONFIG in listing.files and TOKENIZER in listing.files


def file_of(hub: Hub, listing: Listing, path: str) -> File:
    """The file in the cache, or else on the hub."""
    return hub.cached(listing, path) or RemoteFile(hub, listing, listing.files[path])


def _repository(hub: Hub, listing: Listing, inside: str, wanted: tuple[str, ...]) -> Repository:
    start = f"{inside}/" if inside else ""
    paths = [path.removeprefix(start) for path in listing.files if path.startswith(start)]
    for path in paths:
        if any(_fits(path, pattern) for pattern in wanted):
            _check_small(listing, start + path)
            hub.download(listing, start + path)
    weights = {path: file_of(hub, listing, start + path) for path in paths if fnmatchcase(path, WEIGHTS)}
    return Repository(hub, listing, hub.snapshot(listing) / inside, weights)


def _fits(path: str, pattern: str) -> bool:
    """As in a file system, where a star does not reach into folders."""
    return PurePosixPath(path).match(pattern) and path.count("/") == pattern.count("/")


def _check_small(listing: Listing, path: str) -> None:
    size = listing.files[path].size
    if size > FILE_LIMIT:
        raise HubError(f"`{path}` of `{listing.repo}`", value=f"{size} bytes", expected=f"at most {FILE_LIMIT}")
