"""Options that name web pages and servers as a browser does.

Comes in: words of the command line. Goes out: the same, or wrong usage: one that no browser ever says lets nobody in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_PORTS: Final = {"http": 80, "https": 443}
"""Those that a browser leaves out."""


def origins(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Of ``Origin``; ``*`` is any, and ``null`` that of pages without one."""
    return tuple(_checked(value, _origin, "an origin, such as https://example.org, or *") for value in values)


def hosts(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Of ``Host``, without a port; ``*`` is any."""
    return tuple(_checked(value.lower(), _host, "a name, such as chat.example.org, or *") for value in values)


def _checked(value: str, spelt: Callable[[str], str], expected: str) -> str:
    if value in {"*", "null"}:
        return value
    try:
        right = spelt(value)
    except ValueError:
        raise click.BadParameter(f"`{value}`; expected {expected}") from None
    if right != value:
        raise click.BadParameter(f"`{value}`; browsers spell it `{right}`")
    return value


def _origin(value: str) -> str:
    """Scheme, name and port. Raises ValueError."""
    parts = urlsplit(value if "://" in value else f"https://{value}")
    name = _name(parts.hostname)
    port = "" if parts.port in {None, _PORTS.get(parts.scheme)} else f":{parts.port}"
    return f"{parts.scheme}://{f'[{name}]' if ':' in name else name}{port}"


def _host(value: str) -> str:
    """The name alone. Raises ValueError."""
    return _name(urlsplit(value if "://" in value else f"//{value}").hostname)


def _name(value: str | None) -> str:
    if not value or "*" in value or not value.isprintable() or " " in value:
        raise ValueError(value)
    return value.encode("idna").decode("ascii")
