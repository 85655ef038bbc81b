"""Writers of safetensors and GGUF files from float arrays, sharing nothing with the package under test.

Comes in: names and arrays. Goes out: files. Knows nothing of what a model needs.
"""

# ruff: noqa: A002 - `type` is what GGUF calls it

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import gguf.quants
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TYPES = {name: gguf.GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q8_0")}


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray], dtype: str = "BF16") -> None:
    """Write float arrays as ``dtype``, integer arrays as I64."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blobs, offset = [], 0
    for name, array in arrays.items():
        integer = np.issubdtype(array.dtype, np.integer)
        blob = array.astype("<i8").tobytes() if integer else encode(array, dtype)
        span = [offset, offset + len(blob)]
        stored = "I64" if integer else dtype
        header[name] = {"dtype": stored, "shape": list(array.shape), "data_offsets": span}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def encode(array: np.ndarray, dtype: str) -> bytes:
    """Little-endian bytes of ``array`` as F32, F16 or BF16 (round to nearest, ties to even)."""
    if dtype == "BF16":
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    return np.ascontiguousarray(array, {"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def write_gguf(
    path: str | Path,
    arch: str,
    keys: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    *,
    type: str = "F32",
    extra_keys: Mapping[str, Any] | None = None,
    drop_keys: Iterable[str] = (),
    tensors: Mapping[str, np.ndarray] | None = None,
    drop_tensors: Iterable[str] = (),
) -> Path:
    """Write one GGUF: matrices named ``*.weight`` with rows of whole blocks as ``type``, everything else F32.

    ``extra_keys`` adds or replaces metadata (a value may be ``(value, gguf.GGUFValueType)``), ``drop_keys``
    takes out; ``tensors`` and ``drop_tensors`` do the same for tensors.
    """
    path = Path(path)
    writer = gguf.GGUFWriter(path, arch)
    metadata = dict(keys) | dict(extra_keys or {})
    for key, value in metadata.items():
        if key not in set(drop_keys):
            _add_key(writer, key, value)
    chosen = dict(arrays) | dict(tensors or {})
    for name in drop_tensors:
        del chosen[name]
    for name, array in chosen.items():
        if array.dtype == np.int64:
            writer.add_tensor(name, array)
            continue
        matrix = array.ndim > 1 and name.endswith(".weight") and array.shape[-1] % 32 == 0
        kind = TYPES[type if matrix else "F32"]
        data = np.ascontiguousarray(array, np.float32)
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored_values(array: np.ndarray, type: str) -> np.ndarray:
    """``array`` after a round trip through ``type``, as float32."""
    packed = gguf.quants.quantize(np.ascontiguousarray(array, np.float32), TYPES[type])
    return gguf.quants.dequantize(packed, TYPES[type]).reshape(array.shape)


def _add_key(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, tuple):
        writer.add_key_value(key, *value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        kinds = {bool: "bool", int: "uint32", float: "float32", str: "string"}
        getattr(writer, f"add_{kinds[value.__class__]}")(key, value)
