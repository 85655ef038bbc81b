"""Where ollama's server is.

Comes in: the text of ``OLLAMA_HOST``. Goes out: scheme, name and port, as ollama reads it. Asks nobody.
Source: ollama envconfig/config.go (v0.33.0-rc2).
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

LOCAL: Final = ("127.0.0.1", 11434)

_PORTS: Final = {"http": 80, "https": 443}


def address(host: str) -> tuple[str, str, int]:
    """Scheme, name and port of ``OLLAMA_HOST``, as ollama reads it."""
    text = host.strip().strip("\"'").strip()
    scheme, separator, rest = text.partition("://")
    scheme, rest = (scheme, rest) if separator else ("http", text)
    default = _PORTS.get(scheme, LOCAL[1]) if separator else LOCAL[1]
    rest = rest.partition("/")[0]
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"
    try:
        parts = urlsplit(f"//{rest}")
        return scheme, _reachable(parts.hostname or ""), default if parts.port is None else parts.port
    except ValueError:
        return scheme, _reachable(rest.rpartition(":")[0].strip("[]")), default


def _reachable(name: str) -> str:
    """A server that listens everywhere is asked here."""
    return {"": LOCAL[0], "0.0.0.0": LOCAL[0], "::": "::1"}.get(name, name)  # noqa: S104  nothing is bound


def is_here(name: str) -> bool:
    """Whether a server of this name is on this machine."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
