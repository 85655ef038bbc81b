"""Probes of what is around: the hub's cache and token, and ollama. Asks nothing beyond this machine.

Comes in: a `Machine`. Goes out: a `Check` each. Of a token only whether there is one.
Source of ollama's rules: cmd/cmd.go (v0.33.0-rc2).
"""

from __future__ import annotations

import http.client
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.environment import LLAMA_CACHE, for_ollama, hub_token_given, llama_cache
from dflash_gguf.files import regular_size
from dflash_gguf.modelfile.versions import (
    DFLASH2_BUILD,
    LAST_WITHOUT_DFLASH2,
    MIN_OLLAMA,
    known_key,
    version_key,
)
from dflash_gguf.ollama.address import address, is_here
from dflash_gguf.probes.checks import Check, ProbeError

if TYPE_CHECKING:
    from dflash_gguf.probes.checks import Machine

TIMEOUT: Final = 1.0
"""Seconds to wait for ollama's server."""

ANSWER_LIMIT: Final = 1 << 16

TOKEN_LIMIT: Final = 1 << 16
"""Bytes of a token's file that are read."""

NOWHERE: Final = "127.0.0.1:9"
"""Where no server is: an ``ollama`` that looks there tells its own version."""

_INSTALL: Final = {"Darwin": "brew install ollama"}
_UPGRADE: Final = {"Darwin": "brew upgrade ollama"}
_SCRIPT: Final = "curl -fsSL https://ollama.com/install.sh | sh"
_DEFAULT_ENDPOINT: Final = "https://huggingface.co"


def hub_cache(_machine: Machine) -> Check:
    """The folder that downloads go to, as they find it."""
    from dflash_gguf.hub.client import hub

    asked = hub()
    folder = asked.cache
    existing = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), folder)
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        return Check("hub cache", "warning", f"{folder}, and `{existing}` cannot be written", _elsewhere(existing))
    try:
        state = _models(folder) if existing == folder else "not made yet"
    except OSError as error:
        found = f"`{folder}` cannot be read: {_reason(error)}"
        return Check("hub cache", "warning", found, _elsewhere(folder))
    return Check("hub cache", "ok", f"{folder}, {state}{_hub_settings(asked.endpoint, asked.offline)}")


def _models(folder: Path) -> str:
    return f"models: {sum(place.name.startswith('models--') for place in folder.iterdir())}"


def _elsewhere(path: Path) -> str:
    variable = LLAMA_CACHE if llama_cache() else "HF_HOME"
    return f"fix or remove `{path}`, or use another folder: export {variable}=~/huggingface"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _hub_settings(endpoint: str, offline: object) -> str:
    other = "" if endpoint == _DEFAULT_ENDPOINT else f", the hub is {endpoint}"
    return f"{other}{', HF_HUB_OFFLINE is set: nothing is downloaded' if offline else ''}"


def hub_token(_machine: Machine) -> Check:
    """Whether there is a token; it is not shown.

    huggingface_hub's own ``get_token`` would open whatever is at the path, and may ask the hub for a newer one.
    """
    from huggingface_hub import constants

    if hub_token_given():
        return Check("hub token", "ok", "present")
    path = Path(constants.HF_TOKEN_PATH)
    try:
        present = _holds_text(path)
    except FileNotFoundError:
        present = False
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, OSError) else "it is no UTF-8 text"
        return Check("hub token", "warning", f"`{path}` cannot be read: {reason}", _elsewhere(path))
    if present:
        return Check("hub token", "ok", "present")
    return Check("hub token", "ok", "none: only gated and private repositories need one (`hf auth login`)")


def _holds_text(path: Path) -> bool:
    regular_size(path)
    with path.open("rb") as file:
        return bool(file.read(TOKEN_LIMIT).decode().strip())


def ollama(machine: Machine) -> Check:
    """The version of ollama against what each kind of drafter needs. The server's counts: it is what runs models."""
    served, place = _server(machine.ollama_host)
    binary = machine.which("ollama")
    if served is None and binary is None:
        found = f"not found on PATH, {place}; only needed for what `modelfile` writes"
        return Check("ollama", "warning", found, _INSTALL.get(machine.system, _SCRIPT))
    text = served or _client(machine, str(binary))
    where = f"server at {place}" if served else f"{binary}, {place}"
    return _judged(text, where, _UPGRADE.get(machine.system, _SCRIPT))


def _judged(text: str, where: str, upgrade: str) -> Check:
    version = version_key(text)
    if version is None or not any(version[0]):
        return Check("ollama", "warning", f"version {text or 'not told'}, {where}; needs {MIN_OLLAMA}", upgrade)
    found = f"{text}, {where}"
    if version < known_key(MIN_OLLAMA):
        return Check("ollama", "problem", f"{found}; DFlash needs {MIN_OLLAMA} or newer", upgrade)
    if version <= known_key(LAST_WITHOUT_DFLASH2):
        found += f"; DFlash: yes, DFlash 2: no, needs newer than {LAST_WITHOUT_DFLASH2}"
        return Check("ollama", "warning", found, upgrade)
    return Check("ollama", "ok", f"{found}; DFlash: yes, DFlash 2: if its llama.cpp is {DFLASH2_BUILD} or later")


def _client(machine: Machine, binary: str) -> str:
    """The version that the program tells of itself, or an empty text."""
    try:
        said = machine.answer([binary, "--version"], for_ollama(NOWHERE))
    except ProbeError:
        return ""
    match = re.search(r"version is (\S+)", said)
    return match[1] if match else ""


def _server(host: str) -> tuple[str | None, str]:
    """The server's version or None, and where it was looked for."""
    scheme, name, port = address(host)
    place = f"{name}:{port}"
    if not is_here(name):
        return None, f"OLLAMA_HOST is {place}, not this machine: not asked"
    try:
        version = _asked(scheme, name, port)
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None, f"no server at {place}"
    return version, place


def _asked(scheme: str, name: str, port: int) -> str:
    # http.client, since urllib.request would go through a proxy and follow redirects.
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(name, port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/api/version")
        said = json.loads(connection.getresponse().read(ANSWER_LIMIT))
    finally:
        connection.close()
    if not isinstance(said, dict) or not isinstance(said.get("version"), str):
        raise ValueError("another server")  # noqa: TRY004  it is the value that is not ollama's
    return str(said["version"])
