"""Every environment variable that this package reads or sets, and why. No other module outside ``cli/`` may.

Comes in: the process's environment. Goes out: typed readers. Knows nothing of what the values are used for.
"""

from __future__ import annotations

import os
from typing import Final

DEBUG: Final = "DFLASH_GGUF_DEBUG"

VARIABLES: Final[dict[str, str]] = {
    DEBUG: "read: when set and not 0, a failure prints its traceback",
}
"""Name -> why it is read or set."""


def debug() -> bool:
    """Whether tracebacks are wanted."""
    return os.environ.get(DEBUG, "0") not in ("", "0")
