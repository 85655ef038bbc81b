"""A target and its drafter as people name them, found on the hub.

Comes in: names of repositories, or a target's file. Goes out: models, chosen and not yet downloaded. What the names in
a repository leave open is settled by the files' headers; what those leave open is refused, with all candidates named.
Source: llama.cpp common/download.cpp and common/arg.cpp (0.5.0), as far as `gguf_choice` does not differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from dflash_gguf.errors import HubError
from dflash_gguf.facts import architecture
from dflash_gguf.hub import gguf_choice as choice
from dflash_gguf.hub.conversions import Conversion, is_checkpoint
from dflash_gguf.hub.errors import ONLINE
from dflash_gguf.hub.models import HubModel, LocalModel, Model, header_of
from dflash_gguf.pair import check
from dflash_gguf.quantize.quants import DEFAULT_QUANT, resolve_quant
from dflash_gguf.rekeying.forks import is_drafter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dflash_gguf.hub.client import Hub, Listing
    from dflash_gguf.hub.spec import HubSpec

HEADERS_LIMIT: Final = 8
"""More candidates than this are not opened to tell which is meant."""
SHOWN: Final = 24
"""Candidates that an error names."""
PRESET: Final = "preset.ini"
BY_FILE: Final = "name one with `--hf-file`"
BY_DRAFT_FILE: Final = "name one with `-md` next to `-hfd`"


@dataclass(frozen=True, slots=True)
class OnHub:
    """A repository, and a file in it when one was named."""

    spec: HubSpec
    file: str = ""

    @property
    def tag(self) -> str:
        """The type that was asked for, or an empty text."""
        return self.spec.tag or ""


def find_target(hub: Hub, asked: OnHub, *, by_file: str = BY_FILE) -> HubModel:
    """The model of a repository: the file that was named, or the only one of the type; raises `HubError`.

    ``by_file`` says how the caller lets a file be named.
    """
    listing = hub.listing(asked.spec.repo, asked.spec.revision)
    if asked.file:
        return _named(hub, listing, asked.file, "--hf-file")
    found = choice.plainest(choice.models(listing.files, asked.tag), asked.tag)
    if not found:
        remedy = "a target is a GGUF: look for its name with -GGUF at its end, or convert it"
        _refuse_none(listing, asked, choice.every_model(listing.files), remedy)
    if len(found) > 1:
        _refuse_several(listing, asked, found, by_file)
    return HubModel(hub, listing, found[0], (*_notes(listing), *_otherwise(listing, asked.tag, found[0])))


def find_drafter(hub: Hub, asked: OnHub, target: Model | None) -> Model | Conversion:
    """The drafter of a repository, for ``target`` when there is one; safetensors are to be converted first.

    Drafters by name come first, of the type that was asked for or the nearest to it, then any file of the type.
    Raises `HubError`, or `QuantizeError` for a type that nothing can be converted to.
    """
    listing = hub.listing(asked.spec.repo, asked.spec.revision)
    if asked.file:
        return _named(hub, listing, asked.file, "-md")
    theirs = target if isinstance(target, HubModel) and target.listing.repo == listing.repo else None
    found = choice.sidecars(
        listing.files, theirs.path if theirs else None, asked.tag, like=target.name if target else ""
    )
    others = [path for path in listing.files if theirs is None or path != theirs.path]
    if not found:
        found = choice.models(others, asked.tag)
    if not found and is_checkpoint(listing):
        return _converted(hub, listing, asked, target)
    if not found:
        candidates = [name.path for name in choice.gguf_names(others)]
        _refuse_none(listing, asked, candidates, "a drafter is a GGUF, or config.json and safetensors")
    found = _settled(hub, listing, found, target)
    if len(found) > 1:
        _refuse_several(listing, asked, found, BY_DRAFT_FILE)
    return HubModel(hub, listing, found[0], (*_notes(listing), *_of_other_type(listing, asked.tag, found[0])))


def find_sidecar(target: Model) -> Model | None:
    """The drafter that lies beside ``target`` by its name, or None; raises `HubError` when several fit equally well.

    What a repository holds belongs together. In a folder of this machine anything may lie: there the headers count too.
    """
    if isinstance(target, HubModel):
        paths = choice.sidecars(target.listing.files, target.path, like=target.name)
        paths = _settled(target.hub, target.listing, paths, target)
        if len(paths) > 1:
            what = f"{_place(target.listing)} has several drafters for `{target.path}`"
            several(what, paths, "name one with `-hfd`, or its file with `-hfd` and `-md`")
        return HubModel(target.hub, target.listing, paths[0]) if paths else None
    return _beside(target.fetch())


def _beside(path: Path) -> Model | None:
    names = [other.name for other in path.parent.iterdir()] if path.is_file() else []
    fitting = [name for name in choice.sidecars(names, None) if name != path.name and _fits(path, path.with_name(name))]
    found = choice.sidecars(fitting, None, like=path.name)
    if len(found) > 1:
        several(f"several drafters for `{path.name}` lie beside it", found, "name one with `-md`")
    return LocalModel(path.with_name(found[0])) if found else None


def _named(hub: Hub, listing: Listing, path: str, flag: str) -> HubModel:
    if path not in listing.files:
        ggufs = [name.path for name in choice.gguf_names(listing.files)]
        what = f"{_place(listing)} has no file `{path}` for `{flag}`, but these"
        several(what, ggufs, "give the path of one of them")
    return HubModel(hub, listing, choice.parts(path)[0], _notes(listing))


def _converted(hub: Hub, listing: Listing, asked: OnHub, target: Model | None) -> Conversion:
    if target is None:
        what = f"{_place(listing)} holds safetensors, which are converted for a target, and none is named"
        raise HubError(what, remedy=f"see `dflash-gguf convert {listing.repo} --dry-run`")
    quant = resolve_quant(asked.tag or DEFAULT_QUANT).name
    return Conversion(hub, listing, quant, target, _notes(listing))


def _settled(hub: Hub, listing: Listing, paths: list[str], target: Model | None) -> list[str]:
    """Of several candidates those that are drafters by their headers, and of these those that fit the target."""
    if not 1 < len(paths) <= HEADERS_LIMIT:
        return paths
    headers = {path: header_of(HubModel(hub, listing, path)) for path in paths}
    drafters = {path: header for path, header in headers.items() if header and is_drafter(architecture(header))}
    theirs = header_of(target) if target and len(drafters) > 1 else None
    fitting = [path for path, header in drafters.items() if theirs and check(theirs, header).ok]
    return fitting or list(drafters) or paths


def _fits(target: Path, draft: Path) -> bool:
    headers = header_of(LocalModel(target)), header_of(LocalModel(draft))
    return headers[0] is not None and headers[1] is not None and check(headers[0], headers[1]).ok


def _notes(listing: Listing) -> tuple[str, ...]:
    preset = f"`{PRESET}` of `{listing.repo}`, which llama-server would follow, is not read here"
    return tuple(note for note in (listing.note, preset if PRESET in listing.files else "") if note)


def _otherwise(listing: Listing, tag: str, path: str) -> tuple[str, ...]:
    theirs = choice.by_llama_cpp(listing.files, tag)
    if theirs in (None, path):
        return ()
    return (f"took `{path}`; llama.cpp's `-hf` would take `{theirs}` for this name",)


def _of_other_type(listing: Listing, tag: str, path: str) -> tuple[str, ...]:
    if not tag or choice.has_tag(path, tag):
        return ()
    return (f"`{listing.repo}` has no drafter of type {tag.upper()}: took the nearest, `{path}`",)


def _refuse_none(listing: Listing, asked: OnHub, candidates: Sequence[str], remedy: str) -> NoReturn:
    """``candidates`` are the GGUFs that could be meant, of any type."""
    if not candidates:
        others = any(path.endswith(choice.SUFFIX) for path in listing.files)
        what = f"{_place(listing)} holds no {'other ' if others else ''}GGUF"
        raise HubError(what, remedy=ONLINE if listing.cached else remedy)
    what = f"{_place(listing)} has no GGUF {f'of type `{asked.tag}`' if asked.tag else 'that is a model'}, but these"
    several(what, candidates, f"{ONLINE}, or take one of these" if listing.cached else "take one of these")


def _refuse_several(listing: Listing, asked: OnHub, found: Sequence[str], remedy: str) -> NoReturn:
    which = f"of type `{asked.tag}`" if asked.tag else f"and none of type {' or '.join(choice.UNTAGGED)}"
    more = remedy if asked.tag else f"add `:TYPE` to its name, or {remedy}"
    several(f"{_place(listing)} has several GGUFs {which}", found, more)


def several(what: str, paths: Sequence[str], remedy: str) -> NoReturn:
    """Raises a `HubError` that names them."""
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    names = ", ".join(f"`{path}`" for path in paths[:SHOWN])
    raise HubError(f"{what}: {names or 'none'}{more}", remedy=remedy)


def _place(listing: Listing) -> str:
    return f"`{listing.repo}`{' in the cache' if listing.cached else ''}"
