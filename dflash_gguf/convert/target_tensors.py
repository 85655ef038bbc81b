"""Where a folder's safetensors keep the embedding table and the head.

Comes in: a folder, with or without weights, here or elsewhere. Goes out: their places. Reads the tables of the shards
that hold them, and no weights.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.checkpoint import shards_in
from dflash_gguf.convert.safetensors_header import read_table
from dflash_gguf.convert.sources import FLOATS
from dflash_gguf.convert.strict_json import load_object
from dflash_gguf.convert.target import EMBEDDING, HEAD, TargetTensor
from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dflash_gguf.convert.safetensors_header import TensorEntry
    from dflash_gguf.files import File

    Table = Callable[[File], dict[str, TensorEntry]]

_PREFIX: Final = r"(?:(?:model|language_model|backbone|transformer|text_model|llm)\.)*"
NAMES: Final = {
    EMBEDDING: re.compile(_PREFIX + r"(?:embed_tokens|embeddings|word_embeddings|wte|tok_embeddings|embed)\.weight"),
    HEAD: re.compile(_PREFIX + r"(?:lm_head|embed_out|output|head)\.weight"),
}
"""Name in the GGUF -> the names that folders use, under any nesting of the language model."""


INDEX: Final = "*.safetensors.index.json"


def folder_tensors(
    folder: Path, shards: Mapping[str, File] | None = None
) -> tuple[dict[str, TargetTensor], frozenset[str]]:
    """The two tensors as far as they are on disk in a type that can be read, and the names of those that exist.

    ``shards``: the safetensors by name when they lie elsewhere. Raises `CheckpointError` when an index or a shard that
    it needs is broken.
    """
    shards = shards_in(folder) if shards is None else shards
    table = _remembering(read_table)
    places = _places(folder, shards, table)
    named = {name: _source(folder, name, places) for name in NAMES}
    sources = {name: source for name, source in named.items() if source is not None}
    found = {name: _tensor(source, places[source], shards, table) for name, source in sources.items()}
    tensors = {name: tensor for name, tensor in found.items() if tensor is not None}
    return tensors, frozenset(found)


def _remembering(read: Table) -> Table:
    """Reads each file once."""
    tables: dict[File, dict[str, TensorEntry]] = {}

    def table(file: File) -> dict[str, TensorEntry]:
        if file not in tables:
            tables[file] = read(file)
        return tables[file]

    return table


def _places(folder: Path, shards: Mapping[str, File], table: Table) -> dict[str, str]:
    """Tensor -> name of the shard that holds it: by the index, or else by the shards."""
    indexes = sorted(folder.glob(INDEX))
    if not indexes:
        return {name: shard for shard, path in shards.items() for name in table(path)}
    places = load_object(indexes[0]).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        raise CheckpointError(f"`weight_map` of `{indexes[0]}`", expected="an object of tensor name to file name")
    return places


def _source(folder: Path, name: str, places: Mapping[str, str]) -> str | None:
    sources = [source for source in places if NAMES[name].fullmatch(source)]
    if len(sources) > 1:
        raise CheckpointError(f"tensors of `{folder}` for `{name}`", value=", ".join(sources), expected="one")
    return sources[0] if sources else None


def _tensor(source: str, shard: str, shards: Mapping[str, File], table: Table) -> TargetTensor | None:
    """The tensor's place; None when its shard is not there or its type cannot be read."""
    if shard not in shards:
        return None
    entry = table(shards[shard]).get(source)
    if entry is None:
        raise CheckpointError(f"`{shards[shard]}` has no tensor `{source}`, which the index puts there")
    if entry.dtype not in FLOATS:
        return None
    return TargetTensor(source, entry.file, entry.offset, entry.nbytes, entry.shape[::-1], FLOATS[entry.dtype])
