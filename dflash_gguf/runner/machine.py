"""How much memory this machine has, and how much of it is free.

Comes in: what the system tells. Goes out: bytes; 0 where it does not tell. Knows nothing of models.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MEMINFO: Final = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Group:
    """A control group's files: what a container may use and what it uses, in bytes, and of what kinds that is.

    ``files`` begins the names of what is kept of files and dropped when memory is short; it counts as used.
    """

    limit: Path
    used: Path
    kinds: Path
    files: str


GROUPS: Final = (
    Group(
        Path("/sys/fs/cgroup/memory.max"),
        Path("/sys/fs/cgroup/memory.current"),
        Path("/sys/fs/cgroup/memory.stat"),
        "",
    ),
    Group(
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.stat"),
        "total_",
    ),
)
"""In version 2 and 1. Source: Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst."""


def total() -> int:
    """Bytes of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def free() -> int:
    """Bytes that a program can have without others being swapped out, as far as the system tells; else all."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(MEMINFO), re.MULTILINE)
    return min([int(found[1]) * 1024 if found else total(), *(left for group in GROUPS for left in _left(group))])


def _left(group: Group) -> list[int]:
    """What a container may still use; nothing where it has no limit."""
    limit, used = (_text(file).strip() for file in (group.limit, group.used))
    if not (limit.isdecimal() and used.isdecimal()):
        return []
    kept = re.findall(rf"^{group.files}(?:active|inactive)_file (\d+)$", _text(group.kinds), re.MULTILINE)
    return [min(int(limit), max(0, int(limit) - int(used) + sum(map(int, kept))))]


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""
