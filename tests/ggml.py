"""libggml through ctypes: the tests' own way to a quantized block, past the package's native core.

Comes in: float32 arrays. Goes out: bytes. Knows nothing of files.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import llama_cpp
import numpy as np


@cache
def library() -> ctypes.CDLL:
    folder = Path(llama_cpp.__file__).parent / "lib"
    lib = ctypes.CDLL(str(next(folder.glob("libggml-base.*"))))
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_void_p,
    ]
    lib.ggml_blck_size.restype = ctypes.c_int64
    lib.ggml_type_size.restype = ctypes.c_size_t
    lib.ggml_type_name.restype = ctypes.c_char_p
    return lib


def quantize(values: np.ndarray, kind: int, importance: np.ndarray | None = None) -> bytes:
    """``values`` float32 [..., n_per_row] as ``kind``, in one call over the whole tensor.

    ``importance``: float32 [n_per_row], one weight a column.
    """
    lib, rows = library(), np.ascontiguousarray(values, np.float32).reshape(-1, values.shape[-1])
    block, size = lib.ggml_blck_size(kind), lib.ggml_type_size(kind)
    out = ctypes.create_string_buffer(rows.size // block * size)
    weights = None if importance is None else importance.ctypes.data
    written = lib.ggml_quantize_chunk(kind, rows.ctypes.data, out, 0, *rows.shape, weights)
    if written != len(out.raw):
        msg = f"ggml wrote {written} bytes, expected {len(out.raw)}"
        raise RuntimeError(msg)
    return out.raw
