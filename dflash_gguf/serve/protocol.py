"""uvicorn's connections, which wait for the head of a request no longer than some seconds.

Comes in: bytes of a connection. Goes out: what uvicorn does with them. uvicorn alone waits without end for a client
that says nothing, or begins a head and goes no further: each holds a descriptor, until no connection can be taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

HEAD: Final = 30.0
"""Seconds in which a request's head must have come; between requests a connection may be silent for longer."""


class PatientProtocol(H11Protocol):
    """State, beside uvicorn's: the time at which a connection that has not sent its head is closed."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """It says something."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has left."""
        self._forget()
        super().connection_lost(exc)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: uvicorn's advises whoever runs the server to install what a client asks for."""

    def _watch(self) -> None:
        """A silent connection between requests is closed by uvicorn's own timer."""
        if self.conn.their_state is not h11.IDLE or self.timeout_keep_alive_task is not None:
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD, self.timeout_keep_alive_handler)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
