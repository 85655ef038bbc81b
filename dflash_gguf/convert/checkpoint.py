"""A drafter's folder as its authors publish it: the config and where every tensor lies, nothing read yet.

Comes in: a folder with ``config.json`` and safetensors, which may lie elsewhere. Goes out: a frozen `Checkpoint`.
Knows nothing of what keys or tensors mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.safetensors_header import TensorEntry, read_table
from dflash_gguf.convert.strict_json import load_object
from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from dflash_gguf.files import File

CONFIG: Final = "config.json"
INDEX: Final = "model.safetensors.index.json"
INDEXES: Final = "*.safetensors.index.json"
WEIGHTS: Final = "*.safetensors"
SHARDS: Final = ("model*.safetensors", WEIGHTS)
"""Names of the shards of a checkpoint without an index; the second where nothing has the first."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``tensors`` are in the order in which llama.cpp's converter meets them: by file name, then by name.

    ``unread`` are weights beside them that are none of the checkpoint's by their names.
    """

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorEntry]
    unread: tuple[str, ...] = ()


def load_checkpoint(
    folder: str | os.PathLike[str],
    embedded: Mapping[str, str] | None = None,
    shards: Mapping[str, File] | None = None,
) -> Checkpoint:
    """Read the config and the tensor tables of ``folder``; raises `CheckpointError` on anything broken.

    ``embedded``: label of another model in whose folder the drafter may lie -> the prefix of the drafter's tensors;
    the rest of such a folder is neither read nor needed. ``shards``: the safetensors by their paths in the folder,
    when they lie elsewhere; without it those in the folder are meant.
    """
    path = Path(folder)
    if not path.is_dir():
        raise CheckpointError(
            "not a folder", value=str(path), expected="a folder with config.json and model.safetensors"
        )
    config = load_object(path / CONFIG)
    index = _index(path)
    labels = config.get("architectures")
    prefix = next((p for label, p in (embedded or {}).items() if isinstance(labels, list) and label in labels), "")
    held = shards_in(path) if shards is None else shards
    tensors = _indexed(path, index, prefix, held) if index is not None else _globbed(path, held)
    tensors = {name: entry for name, entry in tensors.items() if name.startswith(prefix)}
    if not tensors:
        raise CheckpointError(f"`{path}` holds no tensors" + (f" named `{prefix}*`" if prefix else ""))
    read = {entry.file for entry in tensors.values()}
    unread = () if prefix else tuple(name for name, file in held.items() if "/" not in name and file not in read)
    return Checkpoint(path, config, tensors, unread)


def shards_in(folder: Path) -> dict[str, File]:
    """The safetensors right in a folder, by name."""
    return {path.name: path for path in sorted(folder.glob(WEIGHTS))}


def _index(folder: Path) -> Path | None:
    """The usual index, or the only other one."""
    if (folder / INDEX).is_file():
        return folder / INDEX
    others = sorted(folder.glob(INDEXES))
    if len(others) > 1:
        names = ", ".join(ascii(path.name)[1:-1] for path in others)
        raise CheckpointError(f"`{folder}` has several indexes", value=names, expected=INDEX)
    return others[0] if others else None


def _globbed(folder: Path, held: Mapping[str, File]) -> dict[str, TensorEntry]:
    found = ([file for name, file in held.items() if "/" not in name and fnmatch(name, p)] for p in SHARDS)
    shards = next((files for files in found if files), [])
    if not shards:
        raise CheckpointError(f"`{folder}` has no safetensors", expected=f"model.safetensors or {INDEX}")
    return _merged(shards)


def _indexed(folder: Path, index: Path, prefix: str, held: Mapping[str, File]) -> dict[str, TensorEntry]:
    places = load_object(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        raise CheckpointError(f"`weight_map` of `{index}`", expected="an object of tensor name to file name")
    needed = sorted({shard for name, shard in places.items() if name.startswith(prefix)})
    shards = {shard: held.get(shard) or _shard(folder, index, shard) for shard in needed}
    tensors = _merged(list(shards.values()))
    wrong = sorted(
        name
        for name in places.keys() | tensors.keys()
        if name.startswith(prefix)
        if name not in places or name not in tensors or shards[places[name]] != tensors[name].file
    )
    if wrong:
        names = ", ".join(f"`{ascii(name)[1:-1]}`" for name in wrong[:8])
        raise CheckpointError(f"`{index}` and its files disagree on {len(wrong)} tensors: {names}")
    return tensors


def _shard(folder: Path, index: Path, shard: str) -> Path:
    parts = PurePosixPath(shard).parts
    if not parts or not shard.isprintable() or shard.startswith("/") or ".." in parts or "\\" in shard:
        raise CheckpointError(f"a file name in `{index}`", value=ascii(shard), expected="a file inside the folder")
    return folder / shard


def _merged(shards: list[File]) -> dict[str, TensorEntry]:
    tensors: dict[str, TensorEntry] = {}
    for shard in shards:
        table = read_table(shard)
        for name in table.keys() & tensors.keys():
            raise CheckpointError(f"tensor `{name}` is in both `{tensors[name].file.name}` and `{shard.name}`")
        tensors |= table
    return tensors
