"""A GGUF that somebody named, wherever it is: on this machine, or on the hub.

Comes in: a path, or a file of a listing. Goes out: its header, by ranges of bytes while the file is not here; and its
path, downloaded when it is asked for. Knows nothing of what it is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from dflash_gguf.errors import GGUFError, HubError
from dflash_gguf.gguf_header import GGUFHeader, read_header
from dflash_gguf.hub.errors import ONLINE
from dflash_gguf.hub.gguf_choice import gguf_name, parts
from dflash_gguf.hub.ranges import RemoteFile

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_gguf.hub.client import Hub, Listing


class Model(Protocol):
    """``notes`` are what the user should know of how it was found, ``missing`` the bytes that are not here yet."""

    @property
    def name(self) -> str:
        """The name of its file."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences."""

    @property
    def missing(self) -> int:
        """Bytes that `fetch` will download."""

    @property
    def identity(self) -> str:
        """Two of the same identity hold the same bytes."""

    def source(self) -> Path | GGUFHeader:
        """What `check` and `inspect` read: no weights are downloaded for it."""

    def outline(self, folder: Path) -> Path:
        """A file for what opens paths and reads no weights: made in ``folder`` where the model itself is not here."""

    def fetch(self) -> Path:
        """Its path on this machine; of a split file that of the first part, beside which all others lie."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A file on this machine."""

    path: Path
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    @property
    def missing(self) -> int:
        """None of it."""
        return 0

    @property
    def identity(self) -> str:
        """Of each part the hub's id of its content where it lies in a cache; else its place, size and time."""
        return " ".join(_identity(self.path.with_name(part)) for part in parts(self.path.name))

    def source(self) -> Path | GGUFHeader:
        """The path."""
        return self.path

    def outline(self, folder: Path) -> Path:
        """The path."""
        del folder
        return self.path

    def fetch(self) -> Path:
        """The path."""
        return self.path


@dataclass(frozen=True, slots=True)
class HubModel:
    """The file ``path`` of a listing; of a split one the first part."""

    hub: Hub = field(repr=False)
    listing: Listing = field(repr=False)
    path: str
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the file."""
        return gguf_name(self.path).base

    @property
    def parts(self) -> list[str]:
        """Its files; raises `HubError` when one of them is not listed."""
        found = parts(self.path)
        lost = [part for part in found if part not in self.listing.files]
        if lost:
            where = "the cache" if self.listing.cached else f"`{self.listing.repo}`"
            remedy = ONLINE if self.listing.cached else "use another file of it"
            raise HubError(f"{where} lacks `{lost[0]}`, a part of `{self.path}`", remedy=remedy)
        return found

    @property
    def missing(self) -> int:
        """Bytes that the cache does not hold."""
        lost = (part for part in self.parts if self.hub.cached(self.listing, part) is None)
        return sum(self.listing.files[part].size for part in lost)

    @property
    def identity(self) -> str:
        """The ids of its parts' content; what a cache holds as a copy, and not as a link, has none."""
        ids = {part: self.listing.files[part].oid for part in self.parts}
        return " ".join(oid or _identity(self.hub.download(self.listing, part)) for part, oid in ids.items())

    def source(self) -> Path | GGUFHeader:
        """The path when all of it is here, else its header."""
        if not self.missing:
            return self.fetch()
        first, *others = (self._header(part) for part in self.parts)
        return replace(first, parts=tuple(others))

    def outline(self, folder: Path) -> Path:
        """The path when all of it is here, else that of files as large, which hold the headers and nothing more."""
        source = self.source()
        if not isinstance(source, GGUFHeader):
            return source
        folder.mkdir(parents=True, exist_ok=True)
        places = [folder / gguf_name(part).base for part in self.parts]
        for place, header in zip(places, (source, *source.parts), strict=True):
            with place.open("xb") as file:
                file.write(header.blob)
                file.truncate(header.size)  # takes no room: what was not written is not stored
        return places[0]

    def fetch(self) -> Path:
        """Downloads what is missing; raises `HubError`."""
        first, *_ = [self.hub.download(self.listing, part) for part in self.parts]
        return first

    def _header(self, part: str) -> GGUFHeader:
        file = RemoteFile(self.hub, self.listing, self.listing.files[part])
        return replace(read_header(file), name=str(file))


def _identity(path: Path) -> str:
    place = path.resolve()
    if place.parent.name == "blobs":
        return place.name
    status = place.stat()
    return f"{place}:{status.st_size}:{status.st_mtime_ns}"


def header_of(model: Model) -> GGUFHeader | None:
    """Its header, or None when it has none that is sound."""
    source = model.source()
    try:
        return source if isinstance(source, GGUFHeader) else read_header(source)
    except GGUFError:
        return None
