"""Who may ask: keys, the name by which the server is called, and web pages of other origins.

Comes in: a request's head. Goes out: the request, or a refusal. Knows nothing of routes but which need no key.

A web page may send a request to any address, this machine's too, and a browser says then where the page is from; by a
name that its owner lets point here it may even read the answer. Neither is what a local server is for. A page has no
key, so that a server with keys may be called by any name; no page can make an address or this machine's name its own.
"""

from __future__ import annotations

import hmac
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from dflash_gguf.serve.bodies import refused
from dflash_gguf.serve.errors import ApiError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dflash_gguf.serve.settings import ServerSettings

OPEN: Final = frozenset({"/", "/health", "/v1/models", "/openapi.json"})
"""Paths that need no key, as llama-server's: they tell nothing of what was asked."""
_METHODS: Final = "GET, POST, OPTIONS"


def own_names() -> frozenset[str]:
    """What this machine is called by itself and by its neighbours."""
    name = socket.gethostname().lower()
    first = name.partition(".")[0]
    return frozenset({"localhost", name, first, f"{first}.local"})


@dataclass(frozen=True, slots=True)
class Guard:
    """Stands before the application. ``names``: those by which the server is called, beside the settings' ``hosts``."""

    app: ASGIApp
    settings: ServerSettings
    names: frozenset[str] = field(default_factory=own_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, or answers it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        shared = self._shared(origin)
        try:
            self._check_host(headers)
            self._check_origin(origin, headers, shared=shared)
            if origin and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await _preflight(headers)(scope, receive, _sharing(send, origin))
                return
            self._check_key(scope["path"], headers)
        except ApiError as error:
            await refused(error)(scope, receive, _sharing(send, origin) if shared and origin else send)
            return
        await self.app(scope, receive, _sharing(send, origin) if shared and origin else send)

    def _shared(self, origin: str | None) -> bool:
        return origin is not None and ("*" in self.settings.origins or origin in self.settings.origins)

    def _check_host(self, headers: Headers) -> None:
        hosts = self.settings.hosts
        if self.settings.api_keys or "*" in hosts:
            return
        name = _host_name(headers.get("host", ""))
        if name in self.names or name in hosts or name.endswith(".localhost") or _is_address(name):
            return
        raise ApiError(
            "the server is not called by this name",
            status=403,
            code="unknown_host",
            value=name[:80],
            expected="an IP address, localhost or this machine's name",  # not which: a page may read it
            remedy="start it with --allow-host, or with --api-key",
        )

    def _check_origin(self, origin: str | None, headers: Headers, *, shared: bool) -> None:
        if origin is None or shared or origin.partition("://")[2] == headers.get("host"):
            return
        raise ApiError(
            "web pages of other origins may not ask this server",
            status=403,
            code="unknown_origin",
            value=origin[:80],
            remedy="start it with --cors-origin",
        )

    def _check_key(self, path: str, headers: Headers) -> None:
        keys = self.settings.api_keys
        if not keys or path in OPEN:
            return
        given = _given_key(headers).encode("latin-1")  # the bytes that came
        # Each key is compared, and each in a time that depends on its length alone.
        if sum(hmac.compare_digest(given, key.encode("utf-8", "surrogateescape")) for key in keys) == 0:
            raise ApiError(
                "the API key is missing or wrong",
                status=401,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
                remedy="send it as `Authorization: Bearer KEY`",
            )


def _given_key(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _host_name(host: str) -> str:
    """Of ``Host``, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _preflight(headers: Headers) -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "*"),
            "Access-Control-Max-Age": "600",
        },
    )


def _sharing(send: Send, origin: str) -> Send:
    """Lets pages of ``origin`` read the answer."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers.add_vary_header("Origin")
        await send(message)

    return wrapped
