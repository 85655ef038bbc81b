"""The ``general.*`` keys: name, authors, licence and the like, as llama.cpp's converter finds them.

Comes in: a checkpoint's folder, its number of weights, and where on the hub it is from. Goes out: keys. gguf-py reads
the model card and guesses from names; a card that it cannot read is left out and noted.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import dflash_gguf
from dflash_gguf.convert.card import CARD, check_card
from dflash_gguf.convert.encode import KeyValue, array, scalar
from dflash_gguf.errors import OutputError
from dflash_gguf.gguf_parser import ARRAY, VALUE_NAMES
from dflash_gguf.schema import ARCHITECTURE

if TYPE_CHECKING:
    from collections.abc import Iterator

DESCRIBING: Final = (CARD, "config.json", "generation_config.json")
"""The files that gguf-py looks into."""
VERSION: Final = "dflash_gguf.version"
LLAMA_CPP: Final = "dflash_gguf.llama_cpp_version"


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights in all; ``active`` are those of one expert, where there are ``experts``, and all others."""

    total: int
    active: int
    experts: int = 0

    @property
    def label(self) -> str:
        """The size as names carry it, such as 1.6B or 8x7B."""
        from gguf import size_label

        return str(size_label(self.total, self.active, 0, self.experts))


@dataclass(frozen=True, slots=True)
class Origin:
    """A drafter's repository: its address and that of the commit, and the repository of its target if one is known."""

    repo_url: str
    url: str
    target: str | None = None


def general_keys(
    folder: Path, weights: Weights, *, called: str = "", origin: Origin | None = None
) -> tuple[tuple[KeyValue, ...], tuple[str, ...]]:
    """Keys in the converter's order, and notes about what could not be read.

    ``called`` stands for the folder's own name, which is that of a commit in a cache.
    """
    if called and called != folder.name:
        with tempfile.TemporaryDirectory() as place:
            named = Path(place) / called
            named.mkdir()
            for name in DESCRIBING:
                if (folder / name).is_file():
                    shutil.copyfile(folder / name, named / name)
            return general_keys(named, weights, origin=origin)
    keys, notes = _described(folder, weights, origin)
    return (keys if origin is None else (*keys, *_versions())), notes


def _described(folder: Path, weights: Weights, origin: Origin | None) -> tuple[tuple[KeyValue, ...], tuple[str, ...]]:
    try:
        return _from_card(folder, weights, origin), ()
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        return _plain(folder, weights, origin), (f"the model card was left out: {_reason(error)}",)
    except OutputError as error:
        return _plain(folder, weights, origin), (f"the model card was left out: {error}",)


def _from_card(folder: Path, weights: Weights, origin: Origin | None) -> tuple[KeyValue, ...]:
    from gguf import GGUFType, GGUFWriter, Metadata

    yaml = import_module("yaml")
    try:
        check_card(folder / CARD)
        with _quiet(logging.getLogger("metadata")):
            metadata = Metadata.load(None, folder.resolve(), None, weights.total)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    metadata.name = metadata.name or folder.resolve().name
    metadata.size_label = metadata.size_label or weights.label
    if origin is not None:
        _place(metadata, origin)
    writer = GGUFWriter(None, ARCHITECTURE)
    writer.add_type(GGUFType.MODEL)
    metadata.set_gguf_meta_model(writer)
    return tuple(_pair(key, value) for key, value in writer.kv_data[0].items())


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """gguf-py logs what it guesses, a line for each word of a card."""
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _pair(key: str, value: Any) -> KeyValue:
    if value.type == ARRAY:
        return array(key, "string", [str(item) for item in value.value])
    return scalar(key, VALUE_NAMES[value.type], value.value)


def _plain(folder: Path, weights: Weights, origin: Origin | None) -> tuple[KeyValue, ...]:
    from gguf import GGUFType, GGUFWriter, Metadata

    metadata = Metadata(name=folder.resolve().name or "drafter", size_label=weights.label)
    if origin is not None:
        _place(metadata, origin)
    writer = GGUFWriter(None, ARCHITECTURE)
    writer.add_type(GGUFType.MODEL)
    metadata.set_gguf_meta_model(writer)
    return tuple(_pair(key, value) for key, value in writer.kv_data[0].items())


def _place(metadata: Any, origin: Origin) -> None:
    """Where the drafter is from; the target is its base model unless the card names others."""
    metadata.source_url, metadata.source_repo_url = origin.url, origin.repo_url
    if origin.target is not None and not metadata.base_models:
        from gguf import Metadata

        card = {"base_model": origin.target}
        metadata.base_models = Metadata.apply_metadata_heuristic(Metadata(), card).base_models


def _versions() -> tuple[KeyValue, ...]:
    """Our version and that of the libllama by which it chooses types."""
    from llama_cpp import llama_version

    return (
        scalar(VERSION, "string", dflash_gguf.__version__),
        scalar(LLAMA_CPP, "string", llama_version().decode()),
    )


def _reason(error: Exception) -> str:
    return ascii(str(error).partition("\n")[0])[1:-1].lower() or type(error).__name__
