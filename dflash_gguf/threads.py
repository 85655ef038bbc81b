"""How many threads a pass should use when the user does not say.

Comes in: the machine. Goes out: a count. Knows nothing of models.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TOPOLOGY: Final = "topology/thread_siblings_list"


def physical_cores() -> int:
    """Cores this process may run on, counting hardware threads of one core once; at least 1."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}") / _TOPOLOGY
        cores.add(siblings.read_text() if siblings.exists() else str(cpu))
    return max(1, len(cores))
