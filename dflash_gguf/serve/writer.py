"""An answer's way to its client: whole, or as server-sent events.

Comes in: plain dictionaries. Goes out: ASGI messages. Knows nothing of what an answer holds.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.serve.bodies import JSON, encoded, refused
from dflash_gguf.serve.job import GoneError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Send

    from dflash_gguf.serve.errors import ApiError

_EVENTS: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_LAST_WORDS: Final = 1.0
"""Seconds in which a client that hardly reads is told that its time is over."""
STALL: Final = 60.0
"""Seconds for which a client may leave what it was sent unread: then it has gone, and its place is another's."""


class Writer:
    """The connection to one client. State: whether its answer has begun, and whether it has ended.

    Raises GoneError for a client that reads no more.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = self._ended = False
        self._wrote_at = time.monotonic()

    @property
    def silence(self) -> float:
        """Seconds since something was written."""
        return time.monotonic() - self._wrote_at

    async def whole(self, value: Mapping[str, Any]) -> None:
        """The answer, at once."""
        await self._reply(JSON(value))

    async def event(self, value: Mapping[str, Any]) -> None:
        """One event of a stream."""
        await self._write(b"data: " + encoded(value) + b"\n\n")

    async def ping(self) -> None:
        """A comment, which says to all between here and the client's eyes that the connection lives."""
        await self._write(b": waiting\n\n")

    async def done(self) -> None:
        """The stream's end."""
        await self._write(b"data: [DONE]\n\n", last=True)

    async def fail(self, error: ApiError) -> None:
        """Says what went wrong: by the status, or by an event when the answer has begun, or not when it has ended."""
        if self._ended:
            return
        if not self._begun:
            await self._reply(refused(error))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._write(b"data: " + encoded(error.body()) + b"\n\n", last=True)

    async def _reply(self, response: JSON) -> None:
        self._begun = self._ended = True
        await self._send(
            {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        )
        await self._send({"type": "http.response.body", "body": response.body})

    async def _write(self, data: bytes, *, last: bool = False) -> None:
        if not self._begun:
            self._begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        self._ended = last
        try:
            async with asyncio.timeout(STALL):
                await self._send({"type": "http.response.body", "body": data, "more_body": not last})
        except TimeoutError:
            raise GoneError from None
        self._wrote_at = time.monotonic()
