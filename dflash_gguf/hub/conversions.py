"""A drafter that its repository holds as safetensors: converted for one target, once, and kept.

Comes in: a listing, a type and the target. Goes out: the path of a GGUF in huggingface_hub's cache of assets. What it
is kept under says of what content it was made and by which versions; it is there whole or not at all.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import dflash_gguf
from dflash_gguf import environment
from dflash_gguf.convert.repository import CONFIG, INNER, drafter_repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_gguf.hub.client import Hub, Listing
    from dflash_gguf.hub.models import Model

LIBRARY: Final = "dflash-gguf"
"""The name of our folder among the assets."""


def is_checkpoint(listing: Listing) -> bool:
    """Whether a repository looks like a drafter as its authors publish it."""
    configs = {CONFIG, f"{INNER}/{CONFIG}"} & listing.files.keys()
    return bool(configs) and any(path.endswith(".safetensors") for path in listing.files)


@dataclass(frozen=True, slots=True)
class Conversion:
    """The drafter of a listing for ``target``, as ``quant``, made or still to be made."""

    hub: Hub = field(repr=False)
    listing: Listing = field(repr=False)
    quant: str
    target: Model
    notes: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What it is made of, and what makes it."""
        versions = dflash_gguf.__version__, version("llama-cpp-python")
        return "\n".join((self.listing.repo, self.listing.commit, self.quant, self.target.identity, *versions))

    @property
    def path(self) -> Path:
        """Where it is kept."""
        from huggingface_hub import constants

        llama = environment.llama_cache()
        assets = Path(llama, "assets") if llama else Path(constants.HF_ASSETS_CACHE)
        digest = hashlib.sha256(self.identity.encode()).hexdigest()[:24]
        folder = assets / LIBRARY / self.listing.repo.replace("/", "--") / digest
        return folder / f"dflash-{self.listing.repo.rpartition('/')[2]}-{self.quant}.gguf"

    def make(self, progress: Callable[[int, int], None] | None = None) -> tuple[Path, tuple[str, ...]]:
        """Its path, and what the user should know when it was converted just now.

        ``progress`` is called with bytes and bytes in all. Raises what `convert` raises.
        """
        from dflash_gguf.convert.api import convert_located
        from dflash_gguf.convert.inputs import of_repository
        from dflash_gguf.convert.overrides import NOTHING
        from dflash_gguf.quantize.recipe import Recipe

        path = self.path.expanduser()
        if path.is_file():
            return path, ()
        inputs = of_repository(drafter_repository(self.hub, self.listing), self.target)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            result = convert_located(
                inputs, Recipe.of(self.quant), path, overrides=NOTHING, force=True, n_threads=None, progress=progress
            )
        finally:
            with suppress(OSError):  # it holds the file, or another run's
                path.parent.rmdir()
        return result.path, result.notes
