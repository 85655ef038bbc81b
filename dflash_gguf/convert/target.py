"""What the drafter's file takes from its target: the tokenizer, a few facts, and where two of its tensors lie.

Comes in: a target's GGUF, or its Hugging Face folder. Goes out: a frozen `Target`, and the tokenizer's keys for
the drafter. Reads no weights.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.encode import KeyValue, scalar
from dflash_gguf.errors import CheckpointError, GGUFError
from dflash_gguf.files import regular_size
from dflash_gguf.gguf_parser import MAGIC
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from dflash_gguf.facts import TargetFacts
    from dflash_gguf.files import File

EMBEDDING: Final = "token_embd.weight"
HEAD: Final = "output.weight"
EXPECTED: Final = "a GGUF file, or a folder with config.json and tokenizer.json"


@dataclass(frozen=True, slots=True)
class TargetTensor:
    """One tensor of the target: its name there, its place in bytes, ``shape`` in ggml order, ggml ``type``."""

    name: str
    file: File
    offset: int
    nbytes: int
    shape: tuple[int, ...]
    type: int


@dataclass(frozen=True, slots=True)
class Target:
    """``name`` is for messages, ``title`` for file names.

    ``tokenizer`` holds every ``tokenizer.*`` key in llama.cpp's order. ``mrope``: positions come in sections.
    ``tied``: the head is the embedding table (None: not known). ``tensors`` holds `EMBEDDING` and `HEAD` as far
    as they are there and in a type that can be read.
    """

    name: str
    title: str
    facts: TargetFacts
    tokenizer: tuple[KeyValue, ...]
    mrope: bool
    tied: bool | None
    tensors: Mapping[str, TargetTensor]


def load_target(path: str | os.PathLike[str]) -> Target:
    """Read a target; raises `GGUFError` or `CheckpointError` when it is broken, incomplete or neither of the two."""
    place = Path(path)
    if place.is_dir():
        from dflash_gguf.convert.target_folder import folder_target

        return folder_target(place)
    from dflash_gguf.convert.target_gguf import gguf_target

    _check_magic(place)
    return gguf_target(place)


def tokenizer_keys(target: Target, mask_token_id: int) -> tuple[KeyValue, ...]:
    """The target's tokenizer in its order, with the drafter's mask token."""
    mask = scalar(Keys.MASK_TOKEN_ID, "uint32", mask_token_id)
    return tuple(({pair.key: pair for pair in target.tokenizer} | {mask.key: mask}).values())


def file_title(*names: str) -> str:
    """The first of ``names`` from which a name fit for a file is left."""
    for name in names:
        clean = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-._")
        if clean:
            return clean
    return "target"


def _check_magic(path: Path) -> None:
    try:
        regular_size(path)
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise GGUFError(f"the target `{path}` cannot be read: {reason}", expected=EXPECTED) from None
    if magic != MAGIC:
        raise CheckpointError(f"the target `{path}` is no GGUF file", expected=EXPECTED)
