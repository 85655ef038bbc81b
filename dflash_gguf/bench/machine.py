"""What a measurement was made on, in words.

Comes in: this process. Goes out: a table of facts. Knows nothing of models.
"""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import dflash_gguf

if TYPE_CHECKING:
    from collections.abc import Mapping

_CPUINFO: Final = Path("/proc/cpuinfo")


def cpu() -> str:
    """The processor's name, as the system tells it."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def facts(threads: int | None) -> Mapping[str, str]:
    """Processor, threads, versions, day."""
    from dflash_gguf.threads import physical_cores

    n = threads or physical_cores()
    return {
        "machine": f"{cpu()}, {n} {'thread' if n == 1 else 'threads'}, {platform.system()} {platform.machine()}",
        "dflash-gguf": dflash_gguf.__version__,
        "measured": f"{datetime.now(UTC):%Y-%m-%d}",
    }
