"""How much memory this machine has, and how much of it is free.

Comes in: what the system tells. Goes out: bytes; 0 where it does not tell. Knows nothing of models.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

MEMINFO: Final = Path("/proc/meminfo")
LIMITS: Final = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
"""What a container may use, and uses: in version 2 and 1 of Linux's control groups."""


def total() -> int:
    """Bytes of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def free() -> int:
    """Bytes that a program can have without others being swapped out, as far as the system tells; else all."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(MEMINFO), re.MULTILINE)
    return min([int(found[1]) * 1024 if found else total(), *_left_to_container()])


def _left_to_container() -> list[int]:
    pairs = [(_text(limit).strip(), _text(used).strip()) for limit, used in LIMITS]
    return [max(0, int(limit) - int(used)) for limit, used in pairs if limit.isdecimal() and used.isdecimal()]


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""
