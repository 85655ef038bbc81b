"""What a published checkpoint folder is made of, and how it reaches the disk.

Comes in: a config, tensors in their stored form, other files. Goes out: a folder. Nothing of the package under
test takes part.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from tiny_files import encode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WIDTHS = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "U8": 1,
    "I8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
}


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as its file holds it: safetensors' name of the type, PyTorch's shape, little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def values(self) -> np.ndarray:
        """The tensor as float32, for the plain float types."""
        if self.dtype == "BF16":
            bits = np.frombuffer(self.data, "<u2").astype(np.uint32) << 16
            return bits.view(np.float32).reshape(self.shape)
        kinds = {"F32": "<f4", "F16": "<f2"}
        return np.frombuffer(self.data, kinds[self.dtype]).astype(np.float32).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Content:
    """A checkpoint before it is written; ``parts`` names the shards, one by default."""

    config: dict[str, Any]
    tensors: dict[str, Stored]
    files: dict[str, bytes] = field(default_factory=dict)
    parts: tuple[str, ...] = ("model.safetensors",)


def floats(arrays: Mapping[str, np.ndarray], dtype: str = "BF16") -> dict[str, Stored]:
    """Float arrays as they are published."""
    return {name: Stored(dtype, array.shape, encode(array, dtype)) for name, array in arrays.items()}


def whole(array: np.ndarray) -> Stored:
    """An integer or boolean array under its own type."""
    kinds = {"int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}
    return Stored(kinds[array.dtype.name], array.shape, array.tobytes())


def write_content(folder: Path, content: Content) -> Path:
    """Write a checkpoint folder; with several parts, tensors are dealt out in order and an index lists them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", content.config)
    for name, data in content.files.items():
        (folder / name).write_bytes(data)
    weight_map = {}
    for i, part in enumerate(content.parts):
        names = list(content.tensors)[i :: len(content.parts)]
        write_tensors(folder / part, {name: content.tensors[name] for name in names})
        weight_map |= dict.fromkeys(names, part)
    if len(content.parts) > 1:
        total = sum(len(tensor.data) for tensor in content.tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        write_json(folder / "model.safetensors.index.json", index)
    return folder


def write_json(path: Path, value: Any) -> None:
    """Write JSON as transformers' ``save_pretrained`` lays it out."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Write one safetensors file in the order of safetensors' own writer: wide types first, then by name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    order = sorted(tensors, key=lambda name: (-WIDTHS[tensors[name].dtype], name))
    offset = 0
    for name in order:
        tensor = tensors[name]
        span = [offset, offset + len(tensor.data)]
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": span}
        offset = span[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors[name].data for name in order))
