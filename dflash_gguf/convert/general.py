"""The ``general.*`` keys: name, authors, licence and the like, as llama.cpp's converter finds them.

Comes in: a checkpoint's folder and its number of weights. Goes out: keys. gguf-py reads the model card and
guesses from names; a card that it cannot read is left out and noted.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.encode import KeyValue, array, scalar
from dflash_gguf.errors import OutputError
from dflash_gguf.files import regular_size
from dflash_gguf.gguf_parser import ARRAY, VALUE_NAMES
from dflash_gguf.schema import ARCHITECTURE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CARD: Final = "README.md"
CARD_LIMIT: Final = 1 << 20
FRONT_MATTER: Final = re.compile(r"---\r?\n(.*?)\r?\n---", re.DOTALL)


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


def general_keys(folder: Path, weights: Weights) -> tuple[tuple[KeyValue, ...], tuple[str, ...]]:
    """Keys in the converter's order, and notes about what could not be read."""
    try:
        return _from_card(folder, weights), ()
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        return _plain(folder, weights), (f"the model card was left out: {_reason(error)}",)
    except OutputError as error:
        return _plain(folder, weights), (f"the model card was left out: {error}",)


def _from_card(folder: Path, weights: Weights) -> tuple[KeyValue, ...]:
    from gguf import GGUFType, GGUFWriter, Metadata

    yaml = import_module("yaml")
    try:
        _check_card(folder / CARD, yaml)
        with _quiet(logging.getLogger("metadata")):
            metadata = Metadata.load(None, folder.resolve(), None, weights.total)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    metadata.name = metadata.name or folder.resolve().name
    metadata.size_label = metadata.size_label or weights.label
    writer = GGUFWriter(None, ARCHITECTURE)
    writer.add_type(GGUFType.MODEL)
    metadata.set_gguf_meta_model(writer)
    return tuple(_pair(key, value) for key, value in writer.kv_data[0].items())


def _check_card(card: Path, yaml: Any) -> None:
    """Refuses a card that would unfold to more than it holds: gguf-py follows YAML's aliases wherever they lead."""
    if not card.exists():
        return
    if regular_size(card) > CARD_LIMIT:
        raise ValueError(f"it is larger than {CARD_LIMIT} bytes")
    matter = FRONT_MATTER.match(card.read_text(encoding="utf-8"))
    for event in yaml.parse(matter[1], Loader=yaml.SafeLoader) if matter else ():
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("its front matter has aliases")  # noqa: TRY004  not a type of a Python value


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


def _plain(folder: Path, weights: Weights) -> tuple[KeyValue, ...]:
    return (
        scalar("general.architecture", "string", ARCHITECTURE),
        scalar("general.type", "string", "model"),
        scalar("general.name", "string", folder.resolve().name or "drafter"),
        scalar("general.size_label", "string", weights.label),
    )


def _reason(error: Exception) -> str:
    return ascii(str(error).partition("\n")[0])[1:-1].lower() or type(error).__name__
