"""Bodies of requests, read within limits of size and time, and JSON both ways.

Comes in: a request. Goes out: the values of its fields, or ApiError. Knows nothing of what they mean.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from dflash_gguf.errors import brief
from dflash_gguf.serve.errors import ApiError
from dflash_gguf.serve.job import GoneError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from dflash_gguf.serve.fields import Fields
    from dflash_gguf.serve.settings import ServerSettings

SMALL: Final = 1 << 15
"""Bytes of a body that is read at once, and always."""
MOST_HELD: Final = 16
"""Bodies of the largest size that are held at once, before requests have a place in the queue."""
_CLOSE: Final = {"Connection": "close"}


class Bodies:
    """Reads bodies. State: how many bytes of them are ``held``, which many clients together might make too many."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.held = 0

    @asynccontextmanager
    async def values(self, request: Request, fields: Fields) -> AsyncIterator[dict[str, Any]]:
        """The body's fields, checked, while it is held; a large body is parsed in a thread, so that nobody has to wait.

        Raises ApiError for one that is too large, too slow, no JSON, wrong or one too many, GoneError for a client that
        left.
        """
        data = bytearray()
        try:
            await self._in_time(request, data)
            if len(data) <= SMALL:
                yield fields.take(parsed(data))
            else:
                yield await asyncio.to_thread(lambda: fields.take(parsed(data)))
        finally:
            self.held -= len(data)

    async def _in_time(self, request: Request, data: bytearray) -> None:
        seconds = self._settings.body_timeout
        try:
            async with asyncio.timeout(seconds):
                await self._read(request, data)
        except TimeoutError:
            what = f"the body did not come within {seconds:g} seconds"
            raise ApiError(what, status=408, headers=_CLOSE) from None
        except ClientDisconnect:
            raise GoneError from None

    async def _read(self, request: Request, data: bytearray) -> None:
        most = self._settings.body_limit
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > most:
            raise _too_large(most)
        async for piece in request.stream():
            data += piece
            self.held += len(piece)
            if len(data) > most:
                raise _too_large(most)
            if len(data) > SMALL and self.held > MOST_HELD * most:
                raise _too_many()


def _too_large(most: int) -> ApiError:
    return ApiError(f"the body is larger than {most} bytes", status=413, headers=_CLOSE)


def _too_many() -> ApiError:
    return ApiError(
        "too many large bodies are being read",
        status=429,
        code="rate_limit_exceeded",
        headers={**_CLOSE, "Retry-After": "1"},
        remedy="try again in a second",
    )


def parsed(data: bytes | bytearray) -> Any:
    """The value of UTF-8 JSON; NaN and infinity are none."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else brief(str(error))
        raise ApiError(f"the body is no JSON: {reason}", code="invalid_json") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"it has no constant `{name}`; write a number, or null")


def encoded(value: Any) -> bytes:
    """Compact UTF-8. Half a surrogate pair, which an error may quote, is spelt as JSON spells it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


class JSON(Response):
    """A whole answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Its bytes."""
        return encoded(content)


def refused(error: ApiError) -> JSON:
    """The answer that says why there is none."""
    return JSON(error.body(), error.status, error.headers)
