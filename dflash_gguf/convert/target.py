"""What the drafter's file takes from its target's GGUF: the tokenizer, and a few facts.

Comes in: a target's header. Goes out: a frozen `Target`, and the tokenizer's keys for the drafter.
Reads no weights.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.encode import KeyValue, copied, scalar
from dflash_gguf.errors import GGUFError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    import os

    from dflash_gguf.gguf_header import GGUFHeader

TOKENIZER: Final = "tokenizer."
QUANT_SUFFIX: Final = re.compile(r"[-._](?:UD-)?(?:i?q\d\w*|b?f(?:16|32)|tq\d\w*|mxfp4\w*|nvfp4)$", re.IGNORECASE)
SHARD_SUFFIX: Final = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True)
class Target:
    """``mrope``: positions come in sections; ``tied``: the head is the embedding table (None: not known)."""

    path: Path
    header: GGUFHeader
    title: str
    mrope: bool
    tied: bool | None


def load_target(path: str | os.PathLike[str]) -> Target:
    """Read the header of a target's GGUF; raises `GGUFError` when it is broken or has no tokenizer."""
    header = read_header(path)
    architecture = header.string(Keys.ARCHITECTURE)
    if Keys.TOKENS not in header.keys:
        raise GGUFError(f"`{header.name}` has no tokenizer", remedy="pass the target's whole GGUF, or its first shard")
    whole = header.integer("split.count", 1) <= 1
    return Target(
        path=Path(path),
        header=header,
        title=_title(header, Path(path)),
        mrope=f"{architecture}.rope.dimension_sections" in header.keys,
        tied="output.weight" not in header.tensors if whole else None,
    )


def tokenizer_keys(target: Target, mask_token_id: int) -> tuple[KeyValue, ...]:
    """The target's tokenizer, verbatim and in its order, with the drafter's mask token."""
    header = target.header
    mask = scalar(Keys.MASK_TOKEN_ID, "uint32", mask_token_id)
    names = [key for key in header.keys if key.startswith(TOKENIZER)]
    pairs = [mask if key == Keys.MASK_TOKEN_ID else copied(key, header) for key in names]
    return tuple(pairs) if Keys.MASK_TOKEN_ID in names else (*pairs, mask)


def _title(header: GGUFHeader, path: Path) -> str:
    """A name fit for a file: the model's own, or else the file's without its type."""
    for text in (header.string(Keys.NAME, ""), QUANT_SUFFIX.sub("", SHARD_SUFFIX.sub("", path.stem))):
        clean = re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-._")
        if clean:
            return clean
    return "target"
