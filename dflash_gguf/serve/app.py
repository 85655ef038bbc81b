"""The application: routes, and what becomes of errors.

Comes in: an open session and settings. Goes out: an ASGI application. Knows nothing of sockets. No route reads a file:
the page is read once, at the start.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from dflash_gguf.serve import metrics, openapi, requests
from dflash_gguf.serve.bodies import JSON, refused
from dflash_gguf.serve.completions import ChatAnswers, CompletionAnswers
from dflash_gguf.serve.errors import ApiError, of_server
from dflash_gguf.serve.guard import Guard
from dflash_gguf.serve.job import GoneError
from dflash_gguf.serve.page import page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from dflash_gguf.serve.service import Service


def application(service: Service) -> ASGIApp:
    """The application over ``service``, whose threads live as long as it runs.

    The guard stands before all of it: pages of other origins that may ask can read what has failed, too.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.close()

    plain = PlainRoutes(service)
    app = Starlette(
        routes=[
            Route("/", plain.page, methods=["GET"]),
            Route("/health", plain.health, methods=["GET"]),
            Route("/openapi.json", plain.openapi, methods=["GET"]),
            Route("/metrics", plain.metrics, methods=["GET"]),
            Route("/v1/models", plain.models, methods=["GET"]),
            Route("/v1/models/{model:path}", plain.model, methods=["GET"]),
            Route("/tokenize", plain.tokenize, methods=["POST"]),
            Route("/detokenize", plain.detokenize, methods=["POST"]),
            Route("/v1/chat/completions", ChatAnswers(service), methods=["POST"]),
            Route("/v1/completions", CompletionAnswers(service), methods=["POST"]),
        ],
        lifespan=lifespan,
        exception_handlers={ApiError: _refused, HTTPException: _http, GoneError: _gone, Exception: _failed},
    )
    app.router.redirect_slashes = False
    return Guard(app, service.settings)


async def _refused(_: Request, error: Exception) -> Response:
    return refused(of_server(error))


async def _failed(_: Request, error: Exception) -> Response:
    """What nobody has foreseen; the socket's server then closes the connection."""
    answer = refused(of_server(error))
    answer.headers["Connection"] = "close"
    return answer


async def _gone(_: Request, __: Exception) -> Response:
    return JSON({}, 400)


async def _http(request: Request, error: Exception) -> Response:
    """What the router refuses."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    what = "there is no such route" if status == 404 else "the route does not take this method"
    return refused(ApiError(what, status=status, value=f"{request.method} {request.url.path}"[:160], headers=headers))


class PlainRoutes:
    """The routes that answer at once."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._page = page()

    async def page(self, _: Request) -> Response:
        """A chat in a browser."""
        return self._page

    async def health(self, _: Request) -> Response:
        """Whether answers are written."""
        self._service.check_health()
        return JSON({"status": "ok"})

    async def openapi(self, _: Request) -> Response:
        """What this server takes and gives."""
        return JSON(openapi.document())

    async def metrics(self, _: Request) -> Response:
        """Counts for Prometheus."""
        return Response(self._service.metrics.text(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def models(self, _: Request) -> Response:
        """The one model."""
        return JSON({"object": "list", "data": [self._service.model()]})

    async def model(self, request: Request) -> Response:
        """The one model, by its name."""
        model, name = self._service.model(), request.path_params["model"]
        if name != model["id"]:
            raise ApiError("the model", status=404, code="model_not_found", value=name[:80], expected=model["id"])
        return JSON(model)

    async def tokenize(self, request: Request) -> Response:
        """Text to ids."""
        session = self._service.session
        async with self._service.bodies.values(request, requests.TOKENIZE) as values:

            def pieces() -> list[Any]:
                ids = session.vocabulary.tokenize(
                    values["content"],
                    add_special=values.get("add_special", False),
                    parse_special=values.get("parse_special", True),
                )
                if not values.get("with_pieces"):
                    return ids
                return [{"id": token, "piece": _spelt(self._service.spell(token))} for token in ids]

            return JSON({"tokens": await self._service.aside(pieces, "content")})

    async def detokenize(self, request: Request) -> Response:
        """Ids to text."""
        session = self._service.session
        async with self._service.bodies.values(request, requests.DETOKENIZE) as values:

            def text() -> str:
                return self._service.text_of(session.checked_ids(values["tokens"]))

            return JSON({"content": await self._service.aside(text, "tokens")})


def _spelt(piece: bytes) -> str | list[int]:
    """llama-server's: text, or bytes that are no whole character."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)
