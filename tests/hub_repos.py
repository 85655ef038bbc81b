"""Drafters of the zoo and their targets as repositories of the hub on this machine.

Comes in: a server and a family's name. Goes out: folders, and the same files published. The target's shards hold a
large tensor besides those that a drafter may need, so that what is fetched can be told from what is there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import gguf
import numpy as np
import zoo

from dflash_gguf.gguf_header import read_header

if TYPE_CHECKING:
    from pathlib import Path

    from hub_server import HubServer

PROVENANCE = ("general.source.", "general.base_model.", "dflash_gguf.")
BULK = 1 << 20
"""Bytes of the tensor that no drafter needs."""


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its path in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def with_bulk(data: bytes) -> bytes:
    """A safetensors file with one tensor more, at its end."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    end = len(data) - 8 - length
    header["model.layers.0.bulk"] = {"dtype": "U8", "shape": [BULK], "data_offsets": [end, end + BULK]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + length :] + bytes(BULK)


def write_pair(name: str, parent: Path, *, base_model: str | None = None) -> tuple[Path, Path]:
    """A family's folder and its target's; the drafter's card names ``base_model``."""
    drafter, target = zoo.write_checkpoint(name, parent), zoo.write_target_folder(name, parent / "target")
    if base_model is not None:
        card = f"---\nlicense: apache-2.0\nbase_model: {base_model}\n---\n# A drafter\n"
        (drafter / "README.md").write_text(card, encoding="utf-8")
    for shard in target.glob("*.safetensors"):
        shard.write_bytes(with_bulk(shard.read_bytes()))
        index = target / "model.safetensors.index.json"
        if index.is_file():
            held = json.loads(index.read_text())
            held["weight_map"]["model.layers.0.bulk"] = shard.name
            index.write_text(json.dumps(held))
            break
    return drafter, target


def publish(server: HubServer, repo: str, folder: Path, **how: bool) -> str:
    """The folder's files as a repository; returns its name."""
    server.add(repo, files_of(folder), **how)
    return repo


def tensors(path):
    return {tensor.name: (tensor.tensor_type, tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def same(one, other):
    """Whether two files hold the same tensors, and the same keys but for where they are from."""
    left, right = tensors(one), tensors(other)
    assert list(left) == list(right)
    assert all(left[name][0] == right[name][0] and np.array_equal(left[name][1], right[name][1]) for name in left)
    headers = [read_header(path) for path in (one, other)]
    mine = list(headers[0].keys)
    theirs = [key for key in headers[1].keys if key in mine or not key.startswith(PROVENANCE)]
    assert mine == theirs
    assert all(headers[0].raw(key) == headers[1].raw(key) for key in mine)
    return True
