"""Every environment variable that this package reads or sets, and why. No other module outside ``cli/`` may.

Comes in: the process's environment. Goes out: typed readers. Knows nothing of what the values are used for.
"""

from __future__ import annotations

import os
from typing import Final

DEBUG: Final = "DFLASH_GGUF_DEBUG"
NO_BACKTRACE: Final = "GGML_NO_BACKTRACE"
OLLAMA_HOST: Final = "OLLAMA_HOST"

VARIABLES: Final[dict[str, str]] = {
    DEBUG: "read: when set and not 0, a failure prints its traceback",
    NO_BACKTRACE: "set by the command line: when ggml aborts, it would run a debugger whose text goes to stdout",
    OLLAMA_HOST: "read by doctor: where ollama's server is; set for the `ollama` it runs, to keep that on this machine",
}
"""Name -> why it is read or set."""


def keep_backtraces_off() -> None:
    """Keeps ggml from printing a debugger's backtrace to stdout when it aborts."""
    os.environ.setdefault(NO_BACKTRACE, "1")


def debug() -> bool:
    """Whether tracebacks are wanted."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def ollama_host() -> str:
    """Where the user's ollama listens, as ollama spells it; empty when nothing is said."""
    return os.environ.get(OLLAMA_HOST, "")


def for_ollama(host: str) -> dict[str, str]:
    """The environment of a program that is to look for ollama's server at ``host``."""
    return {**os.environ, OLLAMA_HOST: host}
