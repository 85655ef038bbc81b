"""``mask_embedding.pt`` byte for byte as ``torch.save`` writes it, without PyTorch.

Comes in: a token's id and a vector. Goes out: the file, a zip as PyTorch's writer lays it out (sizes only after
the data and in the directory, data at multiples of 64, a zip64 trailer) around a pickle and one storage.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from tiny_files import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

FLAGS = 0x0808
ALIGNMENT = 64


def mask_embedding(token_id: int, vector: np.ndarray, dtype: str = "BF16") -> bytes:
    """``torch.save({"mask_token_id": token_id, "embedding": vector}, "mask_embedding.pt")``."""
    records = {
        "data.pkl": _pickle(token_id, len(vector), dtype),
        ".format_version": b"1",
        ".storage_alignment": b"64",
        "byteorder": b"little",
        "data/0": encode(vector, dtype),
        "version": b"3\n",
        ".data/serialization_id": b"1572819951185464302605252967343647540439",
    }
    return _archive({f"mask_embedding/{name}": data for name, data in records.items()})


def _archive(records: Mapping[str, bytes]) -> bytes:
    out, directory = bytearray(), bytearray()
    for name, data in records.items():
        title, offset = name.encode(), len(out)
        padding = -(offset + 30 + len(title) + 4) % ALIGNMENT
        out += b"PK\x03\x04" + struct.pack("<5H3I2H", 0, FLAGS, 0, 0, 0, 0, 0, 0, len(title), padding + 4)
        out += title + b"FB" + struct.pack("<H", padding) + b"Z" * padding + data
        sizes = struct.pack("<3I", zlib.crc32(data), len(data), len(data))
        out += b"PK\x07\x08" + sizes
        directory += b"PK\x01\x02" + struct.pack("<6H", 0, 0, FLAGS, 0, 0, 0) + sizes
        directory += struct.pack("<5H2I", len(title), 0, 0, 0, 0, 0, offset) + title
    start, end, count = len(out), len(out) + len(directory), len(records)
    trailer = b"PK\x06\x06" + struct.pack("<Q2H2I4Q", 44, 0x031E, 45, 0, 0, count, count, len(directory), start)
    trailer += b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1)
    trailer += b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, count, count, len(directory), start, 0)
    return bytes(out + directory) + trailer


def _pickle(token_id: int, size: int, dtype: str) -> bytes:
    """Protocol 2: a storage by persistent id, rebuilt as a contiguous vector."""
    memo = iter(range(256))
    storage_class = {"BF16": "BFloat16Storage", "F32": "FloatStorage", "F16": "HalfStorage"}[dtype]

    def put() -> bytes:
        return b"q" + bytes([next(memo)])

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode() + put()

    def number(value: int) -> bytes:
        return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)

    def name(module: str, attribute: str) -> bytes:
        return f"c{module}\n{attribute}\n".encode() + put()

    head = b"\x80\x02}" + put() + b"(" + text("mask_token_id") + number(token_id) + text("embedding")
    rebuild = name("torch._utils", "_rebuild_tensor_v2") + b"("
    storage = b"(" + text("storage") + name("torch", storage_class) + text("0") + text("cpu")
    storage += number(size) + b"t" + put() + b"Q"
    layout = number(0) + number(size) + b"\x85" + put() + number(1) + b"\x85" + put() + b"\x89"
    hooks = name("collections", "OrderedDict") + b")R" + put()
    return head + rebuild + storage + layout + hooks + b"t" + put() + b"R" + put() + b"u."
