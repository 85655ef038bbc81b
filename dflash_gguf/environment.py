"""Every environment variable that this package reads or sets, and why. No other module outside ``cli/`` may.

Comes in: the process's environment. Goes out: typed readers. Knows nothing of what the values are used for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dflash_gguf.errors import BenchError

DEBUG: Final = "DFLASH_GGUF_DEBUG"
NO_BACKTRACE: Final = "GGML_NO_BACKTRACE"
TILED_PRODUCTS: Final = "GGML_CPU_TILED_MM"
KERNELS: Final = "DFLASH_GGUF_KERNELS"
OLLAMA_HOST: Final = "OLLAMA_HOST"
HUB_TOKEN: Final = "HF_TOKEN"
OLD_HUB_TOKEN: Final = "HUGGING_FACE_HUB_TOKEN"
LIBRARY_PATH: Final = "LLAMA_CPP_LIB_PATH"
NO_COLOR: Final = "NO_COLOR"
TERMINAL: Final = "TERM"
STATE_HOME: Final = "XDG_STATE_HOME"
MODEL_ENDPOINT: Final = "MODEL_ENDPOINT"
HUB_ENDPOINT: Final = "HF_ENDPOINT"
LLAMA_CACHE: Final = "LLAMA_CACHE"
ARG_HF_REPO: Final = "LLAMA_ARG_HF_REPO"
ARG_HF_FILE: Final = "LLAMA_ARG_HF_FILE"
ARG_DRAFT_HF_REPO: Final = "LLAMA_ARG_SPEC_DRAFT_HF_REPO"
ARG_OFFLINE: Final = "LLAMA_ARG_OFFLINE"
LLAMA_API_KEY: Final = "LLAMA_API_KEY"

VARIABLES: Final[dict[str, str]] = {
    DEBUG: "read: when set and not 0, a failure prints its traceback",
    NO_BACKTRACE: "set by the command line: when ggml aborts, it would run a debugger whose text goes to stdout",
    TILED_PRODUCTS: "set to 0 by `exact`: ggml's tiled products of K-quants depend on how many tokens a pass has",
    OLLAMA_HOST: "read by doctor and modelfile: where ollama's server is; doctor sets it for the one it runs",
    KERNELS: "read: `ggml` has ggml's own code quantize; 16, 8 or 4 asks for kernels of that many lanes",
    HUB_TOKEN: "read by doctor: whether there is a token; huggingface_hub reads it for downloads",
    OLD_HUB_TOKEN: f"read like {HUB_TOKEN}, its newer name",
    NO_COLOR: "read: when set and not empty, answers have no colours",
    TERMINAL: "read: a `dumb` terminal gets no colours, and lines as Python reads them",
    STATE_HOME: "read: the folder of the chat's history; ~/.local/state when it is not set",
    LIBRARY_PATH: "read by doctor, to name it where llama_cpp, which takes libllama from there, does not load",
    MODEL_ENDPOINT: "read for the address of the hub, before HF_ENDPOINT, as llama.cpp does",
    HUB_ENDPOINT: "read for the address of the hub, as huggingface_hub does",
    ARG_HF_REPO: "read by the command line: llama.cpp's name for `-hf`",
    ARG_HF_FILE: "read by the command line: llama.cpp's name for `--hf-file`",
    ARG_DRAFT_HF_REPO: "read by the command line: llama.cpp's name for `-hfd`",
    ARG_OFFLINE: "read by the command line: llama.cpp's name for `--offline`",
    LLAMA_API_KEY: "read by the command line: llama.cpp's name for `serve --api-key`",
    LLAMA_CACHE: "read for the folder of downloads, before huggingface_hub's own variables, as llama.cpp does",
}
"""Name -> why it is read or set."""


def keep_backtraces_off() -> None:
    """Keeps ggml from printing a debugger's backtrace to stdout when it aborts."""
    os.environ.setdefault(NO_BACKTRACE, "1")


def tiled_products_off() -> bool:
    """Whether ggml is told to leave tiled products out; it looks at the first product of a process."""
    return os.environ.get(TILED_PRODUCTS) == "0"


def turn_tiled_products_off() -> None:
    """Tells ggml to leave tiled products out."""
    os.environ[TILED_PRODUCTS] = "0"


def kernels() -> str:
    """Which code is to quantize, as the user says it; empty when nothing is said."""
    return os.environ.get(KERNELS, "")


def debug() -> bool:
    """Whether tracebacks are wanted."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def plain_terminal() -> bool:
    """Whether the terminal can do nothing but print."""
    return os.environ.get(TERMINAL, "") in ("", "dumb")


def colors_wanted() -> bool:
    """Whether a terminal may be given colours."""
    return not os.environ.get(NO_COLOR) and not plain_terminal()


def state_folder() -> Path:
    """Where this program keeps what it remembers for its user."""
    given = os.environ.get(STATE_HOME, "")
    home = Path(given) if given.startswith("/") else Path("~/.local/state").expanduser()
    return home / "dflash-gguf"


def ollama_host() -> str:
    """Where the user's ollama listens, as ollama spells it; empty when nothing is said."""
    return os.environ.get(OLLAMA_HOST, "")


def hub_token_given() -> bool:
    """Whether a token of the hub is in the environment."""
    return any(os.environ.get(name, "").strip() for name in (HUB_TOKEN, OLD_HUB_TOKEN))


def library_path() -> str:
    """Where llama_cpp is told to take libllama from; empty when nothing is said."""
    return os.environ.get(LIBRARY_PATH, "")


def hub_endpoint() -> str:
    """The address of the hub, without a slash at its end; empty when nothing is said."""
    named = (os.environ.get(name, "").strip() for name in (MODEL_ENDPOINT, HUB_ENDPOINT))
    return next((address.rstrip("/") for address in named if address), "")


def llama_cache() -> str:
    """The folder that llama.cpp is told to download to; empty when nothing is said."""
    return os.environ.get(LLAMA_CACHE, "").strip()


def for_ollama(host: str) -> dict[str, str]:
    """The environment of a program that is to look for ollama's server at ``host``."""
    return {**os.environ, OLLAMA_HOST: host}


def api_key(name: str) -> str:
    """The key of a server, from the variable that the user names with ``--api-key-env``."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise BenchError(f"the environment variable `{name}` is not set", remedy="export it, or name another")
    return value
