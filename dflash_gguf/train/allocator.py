"""Freed memory is kept for the next step instead of being handed back and faulted in again, until all steps are done.

Comes in: nothing. Goes out: settings of this process. A step allocates the same few hundred megabytes as the one
before it; glibc maps each large piece anew, which took more than half of a step's time on a virtual machine.
Sources: mallopt(3), malloc_trim(3).
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

_TRIM_THRESHOLD: Final = (-1, 2**31 - 1)
_MMAP_THRESHOLD: Final = (-3, 32 << 20)
"""Parameter and value; 32 MB is the most that glibc takes."""


def keep_freed_memory() -> bool:
    """Whether the C library could be told; elsewhere than with glibc nothing is changed."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(*pair) == 1 for pair in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))


def give_back() -> None:
    """Hands back what the steps held: the target that is loaded next needs the room."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
