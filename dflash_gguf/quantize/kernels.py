"""Rows of floats or blocks into rows of ggml blocks, in native threads.

Comes in: a readable and a writable buffer of whole rows. Goes out: the second one, filled.
Knows nothing of files; the name that it is given only serves its errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dflash_gguf import environment
from dflash_gguf.errors import QuantizeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Weights = NDArray[np.float32]

GGML: Final = "ggml"
"""The name of ggml's own code in `environment.KERNELS`."""


def kernel_lanes() -> int:
    """Lanes of the kernels that quantize, 0 for ggml's own code: the most that there are here, or what is asked for.

    Raises `QuantizeError` when `environment.KERNELS` names something else.
    """
    from dflash_gguf import _core

    here, asked = _core.kernel_lanes(), environment.kernels()
    if not asked:
        return here[0]
    if asked == GGML:
        return 0
    if asked not in map(str, here):
        names = ", ".join(f"`{name}`" for name in (GGML, *here))
        raise QuantizeError(f"environment variable `{environment.KERNELS}`", value=asked, expected=f"one of {names}")
    return int(asked)


def quantize_rows(
    name: str,
    src: Bytes,
    src_type: int,
    dst: Bytes,
    dst_type: int,
    *,
    n_per_row: int,
    n_threads: int,
    importance: Weights | None = None,
) -> None:
    """Fill ``dst`` with the rows of ``src`` (uint8 arrays of whole rows) as ``dst_type``.

    ``src_type`` is a float type or one of blocks; where it equals ``dst_type`` the two may be one buffer, which is
    then only checked. ``importance``: float32 ``[n_per_row]``, one weight a column, without which some types cannot
    be made. Raises `QuantizeError` naming ``name`` when a value is not finite or is too large for ``dst_type``, or
    when the buffers or the weights do not fit.
    """
    from dflash_gguf import _core

    quantize: Any = _core.quantize_rows
    lanes = kernel_lanes()
    try:
        quantize(src, src_type, dst, dst_type, n_per_row, n_threads, importance, lanes)
    except QuantizeError as error:
        raise QuantizeError(f"tensor `{name}`: {error}") from None
