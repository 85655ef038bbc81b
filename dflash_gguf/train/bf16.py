"""BF16, in which features are kept, as the upper half of float32.

Comes in: arrays. Goes out: arrays of the same shape. Knows nothing of features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def widened(rows: NDArray[np.uint16]) -> NDArray[np.float32]:
    """BF16 as uint16 to float32, of the same shape; exact."""
    return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrowed(rows: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Finite float32 to the nearest BF16, ties to even, as uint16 of the same shape."""
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + even + np.uint32(0x7FFF)) >> np.uint32(16)).astype(np.uint16)
