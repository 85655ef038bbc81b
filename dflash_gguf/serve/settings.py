"""How the server behaves, in one value.

Comes in: what the command line was given. Goes out: limits, keys and origins. Knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_QUEUE: Final = 16
DEFAULT_TIMEOUT: Final = 3600.0
"""Seconds; llama-server's."""
DEFAULT_BODY: Final = 8 << 20
"""Bytes: twice the longest text that is tokenized, since JSON may spell a character in six."""
DEFAULT_BODY_TIMEOUT: Final = 30.0
DEFAULT_GRACE: Final = 10.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """``queue``: requests that may wait; ``timeout``: seconds that one may take, waiting included.

    ``body_limit`` in bytes, ``body_timeout`` in seconds. ``origins``: web pages of other origins that may ask; ``*``:
    any. ``hosts``: names, in lower case, by which a server without keys may be called, beside addresses and the
    machine's own; ``*``: any. ``grace``: seconds that a running answer has when the server is told to end. ``defaults``
    are values of fields that a request leaves out.
    """

    model: str
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    queue: int = DEFAULT_QUEUE
    timeout: float = DEFAULT_TIMEOUT
    body_limit: int = DEFAULT_BODY
    body_timeout: float = DEFAULT_BODY_TIMEOUT
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    grace: float = DEFAULT_GRACE
    defaults: Mapping[str, object] = field(default_factory=dict)
