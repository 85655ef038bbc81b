"""Rows of floats into rows of ggml blocks, in native threads.

Comes in: a readable and a writable buffer of whole rows. Goes out: the second one, filled.
Knows nothing of files; the name that it is given only serves its errors.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dflash_gguf.errors import QuantizeError, SessionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]


def default_threads() -> int:
    """Processors that this process may run on; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def quantize_rows(
    name: str, src: Bytes, src_type: int, dst: Bytes, dst_type: int, *, n_per_row: int, n_threads: int
) -> None:
    """Fill ``dst`` with the rows of ``src`` (uint8 arrays of whole rows) as ``dst_type``.

    ``src_type`` is F32, F16 or BF16; where it equals ``dst_type`` the two may be one buffer, which is then only
    checked. Raises `QuantizeError` naming ``name`` when a value is not finite or is too large for ``dst_type``,
    or when the buffers do not fit each other.
    """
    from dflash_gguf import _core

    quantize: Any = _core.quantize_rows
    try:
        quantize(src, src_type, dst, dst_type, n_per_row, n_threads)
    except SessionError as error:
        raise QuantizeError(f"tensor `{name}`: {error}") from None
