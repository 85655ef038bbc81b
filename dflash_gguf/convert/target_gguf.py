"""A `Target` from its GGUF: the header, and those of the other shards when it is split.

Comes in: a file, here or elsewhere. Goes out: a `Target`. Reads no weights.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.encode import copied
from dflash_gguf.convert.target import EMBEDDING, HEAD, Target, TargetTensor, file_title
from dflash_gguf.errors import GGUFError
from dflash_gguf.facts import target_facts
from dflash_gguf.gguf_header import GGUFHeader, read_header
from dflash_gguf.padding import padding
from dflash_gguf.rekeying.forks import is_drafter
from dflash_gguf.schema import Keys
from dflash_gguf.shards import SPLIT_COUNT, shards_among, shards_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dflash_gguf.files import File

TOKENIZER: Final = "tokenizer."
WHOLE: Final = "pass the target's whole GGUF, or its first shard"
SHARD_SUFFIX: Final = re.compile(r"-\d{5}-of-\d{5}$")
QUANT_SUFFIX: Final = re.compile(r"[-._](?:UD-)?(?:i?q\d\w*|b?f(?:16|32)|tq\d\w*|mxfp4\w*|nvfp4)$", re.IGNORECASE)


def gguf_target(file: File, beside: Mapping[str, File] | None = None) -> Target:
    """Read the header of a target's GGUF; raises `GGUFError` when it is broken or has no tokenizer.

    ``beside``: the files of its folder by name, when it lies elsewhere.
    """
    header = read_header(file)
    architecture = header.string(Keys.ARCHITECTURE)
    if is_drafter(architecture):
        raise GGUFError(f"the target `{header.name}` is itself a drafter", remedy="pass the GGUF of its target")
    if Keys.TOKENS not in header.keys:
        raise GGUFError(f"`{header.name}` has no tokenizer", remedy=WHOLE)
    facts = target_facts(header)
    if facts.hidden_size is None or facts.n_layers is None:
        raise GGUFError(f"`{header.name}` does not state its hidden size and number of layers", remedy=WHOLE)
    shards = shards_of(file, header) if isinstance(file, Path) else shards_among(file, header, beside or {})
    tensors = tables(shards)
    whole = len(shards) >= header.integer(SPLIT_COUNT, 1)
    return Target(
        name=str(file),
        title=file_title(
            header.string(Keys.NAME, ""), QUANT_SUFFIX.sub("", SHARD_SUFFIX.sub("", Path(file.name).stem))
        ),
        facts=replace(facts, n_padded=padding(header.strings(Keys.TOKENS))),
        tokenizer=tuple(copied(key, header) for key in header.keys if key.startswith(TOKENIZER)),
        mrope=f"{architecture}.rope.dimension_sections" in header.keys,
        tied=HEAD not in tensors if whole and EMBEDDING in tensors else None,
        tensors=tensors,
    )


def tables(shards: Sequence[tuple[File, GGUFHeader]]) -> dict[str, TargetTensor]:
    """The embedding table and the head, as far as they are there."""
    found: dict[str, TargetTensor] = {}
    for path, header in shards:
        for name in (EMBEDDING, HEAD):
            info = header.tensors.get(name)
            if info is not None:
                offset = header.data_offset + info.offset
                found[name] = TargetTensor(name, path, offset, info.nbytes, info.shape, info.type)
    return found
