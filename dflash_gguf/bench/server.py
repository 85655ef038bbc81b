"""A server that speaks OpenAI's chat completions: one request and its stream, with the times of its tokens.

Comes in: a URL and messages. Goes out: a `Reply`, or BenchError saying what went wrong. Knows nothing of threads nor of
several requests. llama.cpp's ``timings`` (tools/server/README.md) and SGLang's ``meta_info`` are kept where they are
given; SGLang gives it only in answers that are not streamed (python/sglang/srt/entrypoints/openai/serving_chat.py).
Proxies are not used: what is measured is the server.
"""

from __future__ import annotations

import http.client
import json
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from dflash_gguf.errors import BenchError
from dflash_gguf.file_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TIMEOUT: Final = 600.0
"""Seconds without a byte after which a request has failed."""
LINE_LIMIT: Final = 1 << 22
"""Bytes of one event, or of an answer that is not streamed."""
SHOWN: Final = 160
"""Characters of a server's own words that a message shows."""

_DONE: Final = "[DONE]"
_REFUSED: Final = (400, 422)
"""Statuses by which a strict server says that it does not know a field."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, and for what; ``plain`` servers are sent no field that OpenAI's own does not know."""

    url: SplitResult
    model: str = "default"
    api_key: str = ""
    plain: bool = False
    stream: bool = True

    @property
    def shown(self) -> str:
        """The URL without a user's name and password."""
        return f"{self.url.scheme}://{self.url.netloc.rpartition('@')[2]}{self.url.path}"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. Times are in milliseconds from the request's start; those of tokens are None when unknown.

    ``counted`` says that ``n_tokens`` is the server's own number, not that of the pieces it sent.
    """

    text: str
    n_tokens: int
    counted: bool
    first_ms: float | None
    last_ms: float | None
    total_ms: float
    timings: Mapping[str, Any]
    meta_info: Mapping[str, Any]

    @property
    def per_second(self) -> float | None:
        """Tokens per second behind the first one, by this side's clock; None when it cannot be told."""
        if self.first_ms is None or self.last_ms is None or self.n_tokens < 2 or self.last_ms <= self.first_ms:
            return None
        return (self.n_tokens - 1) / (self.last_ms - self.first_ms) * 1e3


def server_at(url: str) -> Server:
    """The server at ``url``, with or without ``/v1`` at its end."""
    try:
        found = urlsplit(url if "://" in url else f"http://{url}")
        right = found.scheme in ("http", "https") and found.hostname and (found.port or 1)
    except ValueError:
        right = False
    if not right:
        raise BenchError("the server's URL", value=printable(url), expected="one such as http://127.0.0.1:8080")
    path = found.path.rstrip("/")
    return Server(found._replace(path=path if path.endswith("/v1") else f"{path}/v1", query="", fragment=""))


def first_model(server: Server) -> str:
    """The id of the first model that the server lists; ``default`` where it lists none.

    Raises BenchError when nobody answers, or the key is refused.
    """
    with _connection(server) as connection, _told(server):
        connection.request("GET", f"{server.url.path}/models", headers=_headers(server))
        answer = connection.getresponse()
        body = answer.read(LINE_LIMIT)
    if answer.status in (401, 403):
        raise _status_error(server, answer.status, body)
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return "default"


def tried(server: Server, messages: Sequence[Mapping[str, str]], n_predict: int, sampling: Mapping[str, Any]) -> Server:
    """Asks once, for a warm-up, and returns the server as it wants to be asked: some refuse fields unknown to them."""
    try:
        ask(server, messages, n_predict, sampling)
    except _StatusError as error:
        if error.status not in _REFUSED or server.plain:
            raise
        server = replace(server, plain=True)
        ask(server, messages, n_predict, sampling)
    return server


def ask(server: Server, messages: Sequence[Mapping[str, str]], n_predict: int, sampling: Mapping[str, Any]) -> Reply:
    """One answer, whole. Raises BenchError when there is none, or only a part of one."""
    body = json.dumps(_body(server, messages, n_predict, sampling)).encode()
    headers = _headers(server) | {"Content-Type": "application/json"}
    with _connection(server) as connection, _told(server):
        started = time.perf_counter()
        connection.request("POST", f"{server.url.path}/chat/completions", body, headers)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise _status_error(server, answer.status, answer.read(LINE_LIMIT))
        if "event-stream" in (answer.headers.get("Content-Type") or ""):
            return _Stream(server, started).read(answer)
        return _whole(server, started, answer.read(LINE_LIMIT))


def _body(
    server: Server, messages: Sequence[Mapping[str, str]], n_predict: int, sampling: Mapping[str, Any]
) -> dict[str, Any]:
    body = {"model": server.model, "messages": list(messages), "max_tokens": n_predict, **sampling}
    if server.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if server.plain:
        return body
    # Nothing of another request is to be used again: llama.cpp's field, then vLLM's and SGLang's.
    return body | {"cache_prompt": False, "cache_salt": uuid.uuid4().hex, "return_meta_info": True}


class _Stream:
    """The events of one answer: what they said so far, and when."""

    def __init__(self, server: Server, started: float) -> None:
        self._server = server
        self._started = started
        self._pieces: list[str] = []
        self._n_pieces = 0
        self._first: float | None = None
        self._last: float | None = None
        self._ended = False
        self._facts: dict[str, Mapping[str, Any]] = {"usage": {}, "timings": {}, "meta_info": {}}

    def read(self, answer: http.client.HTTPResponse) -> Reply:
        """Takes events until the last one. An end before it is an error that says how much had come."""
        while line := answer.readline(LINE_LIMIT):
            data = line.strip()
            if not data.startswith(b"data:"):
                continue
            text = data.removeprefix(b"data:").strip()
            if text == _DONE.encode():
                return self._reply()
            self._take(_object(self._server, text))
        if self._ended:
            return self._reply()
        raise BenchError(
            f"`{self._server.shown}` ended its answer half way, after {self._n_pieces} pieces of it",
            remedy="see the server's log",
        )

    def _take(self, event: Mapping[str, Any]) -> None:
        if event.get("error"):
            raise BenchError(f"`{self._server.shown}` reports an error: {_words(event)}", remedy="see the server's log")
        self._keep(event)
        for choice in _list(event.get("choices")):
            self._keep(choice)
            self._ended = self._ended or bool(choice.get("finish_reason"))
            delta = _dict(choice.get("delta"))
            spoken = delta.get("content")
            # A thinking model's thoughts are tokens too.
            if spoken or delta.get("reasoning_content") or delta.get("reasoning") or delta.get("tool_calls"):
                self._pieces.append(spoken if isinstance(spoken, str) else "")
                self._n_pieces += 1
                self._last = (time.perf_counter() - self._started) * 1e3
                self._first = self._first if self._first is not None else self._last

    def _keep(self, place: Mapping[str, Any]) -> None:
        for name in self._facts:
            self._facts[name] = _dict(place.get(name)) or self._facts[name]

    def _reply(self) -> Reply:
        n_tokens, counted = _count(self._facts, self._n_pieces)
        total = (time.perf_counter() - self._started) * 1e3
        timings, meta = self._facts["timings"], self._facts["meta_info"]
        return Reply("".join(self._pieces), n_tokens, counted, self._first, self._last, total, timings, meta)


def _whole(server: Server, started: float, body: bytes) -> Reply:
    """An answer that was not streamed: there is no time of its first token, but for what the server itself says."""
    total = (time.perf_counter() - started) * 1e3
    value = _object(server, body)
    choices = _list(value.get("choices"))
    if not choices:
        raise BenchError(f"`{server.shown}` sent no answer: {_words(value)}", remedy="see the server's log")
    facts = {name: _dict(value.get(name)) or _dict(choices[0].get(name)) for name in ("usage", "timings", "meta_info")}
    text = _dict(choices[0].get("message")).get("content")
    n_tokens, counted = _count(facts, 0)
    return Reply(str(text or ""), n_tokens, counted, None, None, total, facts["timings"], facts["meta_info"])


def _count(facts: Mapping[str, Mapping[str, Any]], n_pieces: int) -> tuple[int, bool]:
    places = (("usage", "completion_tokens"), ("timings", "predicted_n"), ("meta_info", "completion_tokens"))
    for place, name in places:
        found = facts[place].get(name)
        if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
            return found, True
    return n_pieces, False


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(server: Server, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BenchError(
            f"`{server.shown}` sent what is no answer of chat completions: {_shown(text)}", remedy="check the URL"
        )
    return value


def _shown(text: bytes) -> str:
    return printable(" ".join(text[: 4 * SHOWN].decode("utf-8", "replace").split())[:SHOWN]) or "nothing"


def _words(value: Mapping[str, Any]) -> str:
    """The message in an error object, however deep this server puts it."""
    found = value.get("error", value)
    found = found.get("message", found) if isinstance(found, dict) else found
    return _shown(found.encode("utf-8", "replace") if isinstance(found, str) else json.dumps(found).encode())


class _StatusError(BenchError):
    """An answer with a status that is no success."""

    status = 0


def _status_error(server: Server, status: int, body: bytes) -> _StatusError:
    try:
        words = _words(_object(server, body))
    except BenchError:
        words = _shown(body)
    remedies = {
        401: "name the variable that holds the key with `--api-key-env`",
        403: "name the variable that holds the key with `--api-key-env`",
        404: "check the URL, and the model's name with `--model-name`",
    }
    error = _StatusError(
        f"`{server.shown}` answered {status}: {words}", remedy=remedies.get(status, "see the server's log")
    )
    error.status = status
    return error


def _headers(server: Server) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}


@contextmanager
def _connection(server: Server) -> Iterator[http.client.HTTPConnection]:
    kind = http.client.HTTPSConnection if server.url.scheme == "https" else http.client.HTTPConnection
    connection = kind(server.url.hostname or "", server.url.port, timeout=TIMEOUT)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _told(server: Server) -> Iterator[None]:
    """Turns what a connection raises into one sentence."""
    try:
        yield
    except TimeoutError:
        raise BenchError(
            f"`{server.shown}` sent nothing for {TIMEOUT:.0f} seconds", remedy="see the server's log"
        ) from None
    except ConnectionRefusedError:
        raise BenchError(f"nobody answers at `{server.shown}`", remedy="start the server, or check the URL") from None
    except http.client.IncompleteRead:
        raise BenchError(f"`{server.shown}` ended its answer half way", remedy="see the server's log") from None
    except (http.client.HTTPException, ValueError) as error:
        reason = printable(f"{type(error).__name__}: {error}")[:SHOWN]
        raise BenchError(
            f"`{server.shown}` does not speak HTTP as expected: {reason}", remedy="check the URL"
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BenchError(
            f"the connection to `{server.shown}` failed: {reason}", remedy="check the URL, and the server's log"
        ) from None
