"""The two models of a recipe: what a launch line depends on, from a config, a GGUF's header, or the hub.

Comes in: a path or a repository of the hub. Goes out: `Drafter` and `Target`, frozen. Reads no weights; of a
repository, only its list of files and the drafter's config or header. Knows nothing of engines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.contract.drafter import drafter_findings
from dflash_gguf.convert.architectures import merged
from dflash_gguf.convert.checkpoint import CONFIG
from dflash_gguf.convert.described import describe
from dflash_gguf.convert.strict_json import load_object
from dflash_gguf.errors import GGUFError, HubError, PairError
from dflash_gguf.facts import anchor_first, drafter_facts, integer_of
from dflash_gguf.findings import errors_of, sentences
from dflash_gguf.gguf_header import GGUFHeader, read_header
from dflash_gguf.hub.spec import HubSpec, on_hub
from dflash_gguf.modelfile.gguf_pair import absolute, gguf_path
from dflash_gguf.modelfile.safetensors_pair import is_checkpoint, mismatches
from dflash_gguf.pair import check
from dflash_gguf.rekeying.forks import is_drafter
from dflash_gguf.schema import ARCHITECTURE, BLOCK_LIMIT, Keys

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

GGUF: Final = "gguf"
CHECKPOINT: Final = "checkpoint"

SIZES: Final = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)B-A(\d+(?:\.\d+)?)B(?![A-Za-z0-9])", re.IGNORECASE)
"""Weights of a mixture of experts in its name, all and active: 397B-A17B."""
BITS: Final = re.compile(r"(?<![A-Za-z0-9])(\d)[-_]?bit(?![A-Za-z])", re.IGNORECASE)
"""What MLX conversions are named by: 4bit."""
GGUF_REPOS: Final = ("-GGUF",)
"""Ends of the names of repositories that hold GGUF files."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model is: an absolute path, or a repository of the hub; and of which kind its files are."""

    form: str
    path: str = ""
    hub: HubSpec | None = None

    @property
    def word(self) -> str:
        """How a launch line names it."""
        return str(self.hub) if self.hub is not None else self.path

    @property
    def repo(self) -> str:
        """How an engine that knows repositories, but no types of GGUF files, names it."""
        return self.hub.repo if self.hub is not None else self.path

    @property
    def name(self) -> str:
        """The last part: what directories and new files are named after."""
        return Path(self.repo).name.removesuffix(".gguf")


@dataclass(frozen=True, slots=True)
class Drafter:
    """``anchor_first``: the anchor's own row is a proposal. ``mask_token_id`` is None when nothing states it."""

    place: Place
    kind: str
    block_size: int
    mask_token_id: int | None
    window: int | None
    causal: bool
    anchor_first: bool

    @property
    def proposals(self) -> int:
        """Tokens that one block proposes."""
        return self.block_size if self.anchor_first else self.block_size - 1


@dataclass(frozen=True, slots=True)
class Target:
    """``billions`` of weights, of a mixture of experts alone (0: not one, or not told); ``bits`` of MLX weights."""

    place: Place
    billions: float
    bits: int | None
    label: str


def read_drafter(source: str | os.PathLike[str]) -> Drafter:
    """Read a drafter; raises `CheckpointError`, `GGUFError` or `HubError` when it is none, or cannot be read."""
    spec = on_hub(source)
    if spec is not None:
        return _drafter_on_hub(spec)
    path = absolute(source)
    if is_checkpoint(path) or path.name == CONFIG:
        folder = path.parent if path.name == CONFIG else path
        return _described(load_object(folder / CONFIG), Place(CHECKPOINT, str(folder)))
    file = gguf_path(path, "drafter")
    return drafter_of(read_header(file), Place(GGUF, str(file)))


def read_target(source: str | os.PathLike[str]) -> Target:
    """Read what can be told of a target; one on the hub is known by its name alone."""
    spec = on_hub(source)
    if spec is not None:
        form = GGUF if spec.tag or spec.repo.upper().endswith(GGUF_REPOS) else CHECKPOINT
        return target_named(Place(form, hub=spec), {})
    path = absolute(source)
    if is_checkpoint(path):
        return target_named(Place(CHECKPOINT, str(path)), merged(load_object(path / CONFIG)))
    file = gguf_path(path, "target")
    header = read_header(file)
    if is_drafter(header.string(Keys.ARCHITECTURE, "")):
        raise PairError(f"`{file}` is a drafter", expected="the target", remedy="perhaps the two were swapped")
    label = f"{file.stem} {header.string('general.size_label', '')}"
    return target_named(Place(GGUF, str(file)), {}, label)


def check_pair(drafter: Drafter, target: Target) -> None:
    """Raise `PairError` where both are here, of one kind of files, and do not fit each other."""
    ours, theirs = drafter.place, target.place
    if ours.hub is not None or theirs.hub is not None or ours.form != theirs.form:
        return
    if ours.form == GGUF:
        check(theirs.path, ours.path).raise_if_bad()
        return
    facts = describe(load_object(Path(ours.path) / CONFIG), ours.path)
    wrong = mismatches(facts, merged(load_object(Path(theirs.path) / CONFIG)))
    if wrong:
        raise PairError(f"`{ours.path}` does not fit `{theirs.path}`: {'; '.join(wrong)}")


def target_named(place: Place, config: Mapping[str, Any], label: str = "") -> Target:
    """What can be told of a target by its name, its config where there is one, and what else it is called."""
    label = f"{place.name} {label}".strip()
    sizes, bits = SIZES.search(label), BITS.search(label)
    quantization = config.get("quantization")
    stated = quantization.get("bits") if isinstance(quantization, dict) else None
    found = stated if type(stated) is int else int(bits[1]) if bits else None
    return Target(place, float(sizes[1]) if sizes else 0.0, found, label)


def _described(config: Mapping[str, Any], place: Place) -> Drafter:
    facts = describe(config, place.word)
    return Drafter(
        place, facts.kind, facts.block_size, facts.mask_token_id, facts.window, facts.causal, facts.anchor_first
    )


def drafter_of(header: GGUFHeader, place: Place) -> Drafter:
    """The drafter of a file, which is to be had at ``place``; raises `GGUFError`."""
    name = header.string(Keys.ARCHITECTURE, "")
    if name != ARCHITECTURE:
        remedy = "mend it with `dflash-gguf rekey`" if is_drafter(name) else "give the drafter's file"
        raise GGUFError(f"`{place.word}` as a drafter", value=name, expected=f"`{ARCHITECTURE}`", remedy=remedy)
    errors = errors_of(tuple(drafter_findings(header)))
    facts = drafter_facts(header)
    if errors or facts.block_size is None or not 2 <= facts.block_size <= BLOCK_LIMIT:
        raise GGUFError(f"`{place.word}` would not run: {sentences(errors) or f'block size {facts.block_size}'}")
    return Drafter(
        place=place,
        kind=facts.kind,
        block_size=facts.block_size,
        mask_token_id=facts.mask_token_id,
        window=integer_of(header, Keys.SLIDING_WINDOW),
        causal=header.boolean(Keys.CAUSAL, False) is True,
        anchor_first=anchor_first(header),
    )


def _drafter_on_hub(spec: HubSpec) -> Drafter:
    """A drafter by its config, or where there is none by the header of one of its GGUF files."""
    from dflash_gguf.hub.client import hub
    from dflash_gguf.hub.gguf_choice import gguf_names, models, sidecars
    from dflash_gguf.hub.ranges import RemoteFile

    there = hub()
    listing = there.listing(spec.repo, spec.revision)
    if CONFIG in listing.files and spec.tag is None:
        return _described(load_object(there.download(listing, CONFIG)), Place(CHECKPOINT, hub=spec))
    wanted = sidecars(listing.files, None, spec.tag or "") or models(listing.files, spec.tag or "")
    if not wanted:
        raise HubError(
            f"`{spec}` holds no drafter",
            value=", ".join(name.path for name in gguf_names(listing.files)[:4]) or "no GGUF file",
            expected=f"{CONFIG}, or a GGUF file of that type",
        )
    # What is read here is the same in a repository's files of every type.
    cached = there.cached(listing, wanted[0])
    source = cached if cached is not None else RemoteFile(there, listing, listing.files[wanted[0]])
    return drafter_of(read_header(source), Place(GGUF, hub=spec))
