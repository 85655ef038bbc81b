"""Bodies of requests, read within limits of size and time, and JSON both ways.

Comes in: a request. Goes out: the values of its fields, or ApiError. Knows nothing of what they mean.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from dflash_gguf.errors import brief
from dflash_gguf.serve.errors import ApiError
from dflash_gguf.serve.job import GoneError

if TYPE_CHECKING:
    from starlette.requests import Request

    from dflash_gguf.serve.fields import Fields
    from dflash_gguf.serve.settings import ServerSettings

SMALL: Final = 1 << 15
"""Bytes of a body that is read at once."""
_CLOSE: Final = {"Connection": "close"}


async def values_of(request: Request, settings: ServerSettings, fields: Fields) -> dict[str, Any]:
    """The body's fields, checked; a large body in a thread of its own, so that nobody else has to wait.

    Raises ApiError for one that is too large, too slow, no JSON or wrong, GoneError for a client that left.
    """
    try:
        async with asyncio.timeout(settings.body_timeout):
            data = await _read(request, settings.body_limit)
    except TimeoutError:
        raise ApiError(
            f"the body did not come within {settings.body_timeout:g} seconds", status=408, headers=_CLOSE
        ) from None
    except ClientDisconnect:
        raise GoneError from None
    if len(data) <= SMALL:
        return fields.take(parsed(data))
    return await asyncio.to_thread(lambda: fields.take(parsed(data)))


async def _read(request: Request, most: int) -> bytearray:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise _too_large(most)
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > most:
            raise _too_large(most)
    return data


def _too_large(most: int) -> ApiError:
    return ApiError(f"the body is larger than {most} bytes", status=413, headers=_CLOSE)


def parsed(data: bytes | bytearray) -> Any:
    """The value of UTF-8 JSON; NaN and infinity are none."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else brief(str(error))
        raise ApiError(f"the body is no JSON: {reason}", code="invalid_json") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


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
