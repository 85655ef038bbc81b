"""Where a conversion reads from: a drafter and its target, each a folder or file here or a repository of the hub.

Comes in: what the user named. Goes out: frozen `Inputs`. Of the hub, small files are downloaded and headers read; no
weights are. A folder that exists is meant before a repository of the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.discover import FLAG, named_target
from dflash_gguf.convert.general import Origin
from dflash_gguf.convert.repository import (
    CONFIG,
    GGUF,
    TOKENIZER,
    drafter_repository,
    file_of,
    is_folder,
    target_repository,
)
from dflash_gguf.convert.target import load_target
from dflash_gguf.convert.target_folder import folder_name, folder_target
from dflash_gguf.convert.target_gguf import gguf_target
from dflash_gguf.errors import CheckpointError, HubError
from dflash_gguf.hub.client import hub as the_hub
from dflash_gguf.hub.models import HubModel
from dflash_gguf.hub.spec import on_hub

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from dflash_gguf.convert.repository import Repository
    from dflash_gguf.convert.target import Target
    from dflash_gguf.files import File
    from dflash_gguf.hub.client import Hub, Listing
    from dflash_gguf.hub.models import Model
    from dflash_gguf.hub.spec import HubSpec

    Place = str | os.PathLike[str]


EXPECTED: Final = "a folder with config.json and model.safetensors, or ORG/REPO on the hub"


@dataclass(frozen=True, slots=True)
class Named:
    """One of the two as the user is told of it: ``place`` is a path or a repository, ``commit`` the hub's.

    ``file`` is what was taken of a repository of GGUFs, ``said_by`` who named a target that the user did not.
    """

    place: str
    commit: str | None = None
    file: str | None = None
    said_by: str | None = None

    def __str__(self) -> str:
        file = f", {self.file}" if self.file else ""
        said_by = f", named by {self.said_by}" if self.said_by else ""
        return f"{self.place}{f' at {self.commit}' if self.commit else ''}{file}{said_by}"


@dataclass(frozen=True, slots=True)
class Inputs:
    """``shards`` are the drafter's safetensors when they are not those of ``folder``, by their paths in it.

    ``called`` is the name of the drafter's folder where that is not its own.
    """

    folder: Path
    target: Target
    drafter: Named
    named: Named
    called: str = ""
    shards: Mapping[str, File] | None = None
    repository: Repository | None = None
    origin: Origin | None = None
    notes: tuple[str, ...] = ()

    @property
    def paths(self) -> set[Path]:
        """The files and folders of this machine that the user named, and what lies in them."""
        places = [Path(named.place) for named in (self.drafter, self.named) if named.commit is None]
        return {path for place in places for path in (place, *place.glob("*"))}

    @property
    def remote(self) -> bool:
        """Whether any of it is on the hub."""
        return self.drafter.commit is not None or self.named.commit is not None

    @property
    def lines(self) -> tuple[str, ...]:
        """What is converted for what; nothing where both are the user's own files."""
        return (f"drafter: {self.drafter}", f"target: {self.named}") if self.remote else ()


def locate(checkpoint: Place, target: Place | None = None) -> Inputs:
    """Find the drafter and its target; without ``target``, the drafter's own words name it.

    Raises `HubError`, `CheckpointError`, `GGUFError` or `PairError`.
    """
    for place in (checkpoint, target):
        if place is not None and not str(place).strip():  # a path of that text would be the current folder
            raise CheckpointError("the name of a drafter or a target", value=str(place), expected=EXPECTED)
    spec = on_hub(checkpoint)
    if spec is None and not Path(checkpoint).is_dir():
        raise CheckpointError("not a folder", value=str(checkpoint), expected=EXPECTED)
    repository = _drafter(spec) if spec is not None else None
    folder = Path(checkpoint) if repository is None else repository.folder
    drafter = Named(str(checkpoint) if repository is None else repository.listing.repo, _commit(repository))
    found, named, notes = _given(target) if target is not None else _said(folder, drafter.place)
    return Inputs(
        folder=folder,
        target=found,
        drafter=drafter,
        named=named,
        called=_called(folder) if repository is None else repository.called,
        shards=None if repository is None else repository.weights,
        repository=repository,
        origin=None if repository is None else _origin(repository, named),
        notes=(*((repository.listing.note,) if repository and repository.listing.note else ()), *notes),
    )


def of_repository(repository: Repository, target: Model) -> Inputs:
    """The drafter of a repository for a model that was chosen already; raises as `locate` does."""
    if isinstance(target, HubModel):
        found, named, _ = _of_model(target)
    else:
        found, named, _ = _given(target.fetch())
    listing = repository.listing
    return Inputs(
        folder=repository.folder,
        target=found,
        drafter=Named(listing.repo, listing.commit),
        named=named,
        called=repository.called,
        shards=repository.weights,
        repository=repository,
        origin=_origin(repository, named),
    )


def _drafter(spec: HubSpec) -> Repository:
    if spec.tag is not None:
        what = f"`:{spec.tag}` names a file among GGUFs, and a drafter is read from safetensors"
        raise HubError(what, remedy=f"leave it out: `{spec.repo}`, and say `--quant {spec.tag}`")
    hub = the_hub()
    return drafter_repository(hub, _listing(hub, spec))


def _listing(hub: Hub, spec: HubSpec) -> Listing:
    """The repository; that there is none is told to those who meant a folder, too."""
    try:
        return hub.listing(spec.repo, spec.revision)
    except HubError as error:
        if type(error.__cause__).__name__ != "RepositoryNotFoundError":
            raise
        what = f"there is no folder `{spec.repo}` here, so the hub was asked: {error.what}"
        raise HubError(what, remedy=error.remedy) from error


def _called(folder: Path) -> str:
    """The repository's name for a folder in a cache, which is named by a commit; else nothing."""
    name = folder_name(folder)
    return "" if name == folder.absolute().name else name


def _commit(repository: Repository | None) -> str | None:
    return None if repository is None else repository.listing.commit


def _origin(repository: Repository, named: Named) -> Origin:
    listing = repository.listing
    target = named.place if named.commit is not None and named.file is None else None
    return Origin(repository.page, f"{repository.page}/tree/{listing.commit}", target)


# ---------------------------------------------------------------- the target


def _given(place: Place) -> tuple[Target, Named, tuple[str, ...]]:
    spec = on_hub(place)
    if spec is None:
        return load_target(place), Named(str(place)), ()
    hub = the_hub()
    return _of_listing(hub, _listing(hub, spec), spec)


def _said(folder: Path, called: str) -> tuple[Target, Named, tuple[str, ...]]:
    word = named_target(folder, called)
    hub = the_hub()
    try:
        listing = hub.listing(word.spec.repo)
        target, named, notes = _of_listing(hub, listing, word.spec)
    except CheckpointError as error:
        what = f"the drafter names `{word.spec}` as its target ({word.place}), which cannot serve: {error.what}"
        raise CheckpointError(what, remedy=FLAG) from error
    return target, Named(named.place, named.commit, named.file, word.place), notes


def _of_listing(hub: Hub, listing: Listing, spec: HubSpec) -> tuple[Target, Named, tuple[str, ...]]:
    """The target in a repository: its config and tokenizer; else a GGUF, as when a type is asked for."""
    noted = (listing.note,) if listing.note else ()
    if spec.tag is None and is_folder(listing):
        repository = target_repository(hub, listing)
        target = folder_target(repository.folder, called=listing.repo, shards=repository.weights)
        return target, Named(listing.repo, listing.commit), noted
    if not any(path.endswith(GGUF) for path in listing.files):
        what = f"`{listing.repo}` holds neither {CONFIG} and {TOKENIZER} nor a GGUF"
        raise CheckpointError(what, remedy="give the repository of the target: ORG/REPO, or ORG/REPO-GGUF:TYPE")
    from dflash_gguf.hub.pairs import OnHub, find_target

    return _of_model(find_target(hub, OnHub(spec), by_file="download one and give its path"))


def _of_model(model: HubModel) -> tuple[Target, Named, tuple[str, ...]]:
    hub, listing = model.hub, model.listing
    files = {PurePosixPath(part).name: file_of(hub, listing, part) for part in model.parts}
    target = gguf_target(files[PurePosixPath(model.path).name], files)
    return target, Named(listing.repo, listing.commit, model.path), model.notes
