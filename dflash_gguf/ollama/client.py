"""ollama's HTTP API, as far as models are made and asked with it.

Comes in: ``OLLAMA_HOST``, files, requests. Goes out: answers, or `OllamaError` with what ollama itself says. Knows
nothing of pairs. Source: ollama api/client.go, api/types.go and server/routes.go (v0.33.0-rc2).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from dflash_gguf.errors import MissingDependencyError, OllamaError
from dflash_gguf.file_text import printable
from dflash_gguf.ollama.address import address, is_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

SCHEMES: Final = ("http", "https")
CONNECT: Final = 5.0
"""Seconds to wait for a server to take a connection."""
ANSWER: Final = 30.0
"""Seconds without a byte after which a question that is answered at once has failed."""
SILENCE: Final = 3600.0
"""Seconds without a byte after which a request has failed: ollama rewrites and loads whole targets in silence."""
PIECE: Final = 1 << 20
"""Bytes of a file that are sent at a time."""
LINE_LIMIT: Final = 1 << 22
SHOWN: Final = 300
"""Characters of ollama's own words that a message shows."""

START: Final = "start it with `ollama serve`, or say with OLLAMA_HOST where it is"
LOG: Final = "see ollama's log"


def has_http() -> None:
    """Raise `MissingDependencyError` unless httpx is installed."""
    try:
        import httpx  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            "httpx is not installed, which ollama is spoken to with", remedy="pip install 'dflash-gguf[ollama]'"
        ) from None


class Client:
    """One server. A context manager; every method raises `OllamaError`."""

    def __init__(self, host: str) -> None:
        has_http()
        import httpx

        scheme, name, port = address(host)
        self.place = f"{printable(name)[:SHOWN]}:{port}"
        url = f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"
        try:
            good = httpx.URL(url).scheme in SCHEMES
        except httpx.InvalidURL:
            good = False
        if not good:
            shown = printable(host)[:SHOWN]
            raise OllamaError("OLLAMA_HOST", value=shown, expected="an address such as 127.0.0.1:11434")
        self._brief = httpx.Timeout(ANSWER, connect=CONNECT)
        timeout = httpx.Timeout(SILENCE, connect=CONNECT)
        self._http = httpx.Client(base_url=url, timeout=timeout, trust_env=not is_here(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def version(self) -> str:
        """The server's version; an error when what answers is no ollama."""
        value = self._object("GET", "/api/version").get("version")
        if not isinstance(value, str):
            raise OllamaError(f"what answers at {self.place} is no ollama", remedy=START)
        return value

    def has_blob(self, digest: str) -> bool:
        """Whether the server has a file of this digest already."""
        with self._told(ANSWER):
            answer = self._http.head(f"/api/blobs/{digest}", timeout=self._brief)
        if answer.status_code not in (200, 404):
            raise self._refusal(answer.status_code, answer.content)
        return answer.status_code == 200

    def send_blob(self, digest: str, path: Path, progress: Callable[[int], None]) -> None:
        """Send a file; ``progress`` is called with the bytes that were sent so far."""
        size = path.stat().st_size
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        with self._told(), path.open("rb") as file:
            answer = self._http.post(f"/api/blobs/{digest}", content=_pieces(file, size, progress), headers=headers)
        if answer.status_code not in (200, 201):
            raise self._refusal(answer.status_code, answer.content)

    def create(self, request: Mapping[str, Any], told: Callable[[str], None]) -> None:
        """Make a model; ``told`` is called with each thing that ollama says it does."""
        done = False
        for line in self._lines("/api/create", request):
            status = line.get("status")
            if isinstance(status, str):
                told(status)
                done = status == "success"
        if not done:
            raise OllamaError(f"ollama at {self.place} ended before the model was made", remedy=LOG)

    def generate(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The records of one answer; the last has ``done``."""
        for line in self._lines("/api/generate", request):
            yield line
            if line.get("done") is True:
                return
        raise OllamaError(f"ollama at {self.place} ended its answer half way", remedy=LOG)

    def _object(self, method: str, path: str) -> dict[str, Any]:
        with self._told(ANSWER):
            answer = self._http.request(method, path, timeout=self._brief)
        if answer.status_code != 200:
            raise self._refusal(answer.status_code, answer.content)
        return self._parsed(answer.content)

    def _lines(self, path: str, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The objects of a streamed answer; one that tells of an error is raised."""
        with self._told(), self._http.stream("POST", path, json=dict(request)) as answer:
            if answer.status_code != 200:
                raise self._refusal(answer.status_code, answer.read())
            for text in answer.iter_lines():
                if not text.strip():
                    continue
                line = self._parsed(text[:LINE_LIMIT].encode())
                if line.get("error"):
                    raise self._refusal(0, text.encode())
                yield line

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise OllamaError(f"what answers at {self.place} is no ollama: it said {_shown(text)}", remedy=START)
        return value

    def _refusal(self, status: int, body: bytes) -> OllamaError:
        """An error with the words of ollama itself."""
        try:
            words = json.loads(body)["error"]
        except (ValueError, LookupError, TypeError, RecursionError):
            words = body.decode("utf-8", "replace") if body.strip() else f"status {status}"
        return OllamaError(f"ollama at {self.place} refused: {_shown(str(words).encode())}", remedy=LOG)

    @contextmanager
    def _told(self, silence: float = SILENCE) -> Iterator[None]:
        """Turns what a connection raises into one sentence; ``silence`` is how long it was waited for a byte."""
        import httpx

        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise OllamaError(f"no ollama answers at {self.place}", remedy=START) from None
        except httpx.TimeoutException:
            raise OllamaError(f"ollama at {self.place} was silent for {silence:.0f} seconds", remedy=LOG) from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # the last for a name too long to look up
            raise self._broken(error) from None

    def _broken(self, error: Exception) -> OllamaError:
        reason = printable(str(error) or type(error).__name__)[:SHOWN]
        return OllamaError(f"the connection to ollama at {self.place} broke: {reason}", remedy=LOG)


def _pieces(file: Any, size: int, progress: Callable[[int], None]) -> Iterator[bytes]:
    """Exactly ``size`` bytes: a file that was cut meanwhile ends the request instead of leaving it waiting."""
    sent = 0
    while piece := file.read(min(PIECE, size - sent)):
        sent += len(piece)
        yield piece
        progress(sent)
    if sent != size:
        raise OllamaError("the file changed while it was sent", value=f"{sent} bytes", expected=f"{size}")


def _shown(text: bytes) -> str:
    return printable(" ".join(text[: 8 * SHOWN].decode("utf-8", "replace").split())[:SHOWN]) or "nothing"
