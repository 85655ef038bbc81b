"""Requests that are broken, slow, huge, many at once or left: the server lives, keeps nothing, and answers the next."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from live import Live

CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 6}
MEBI = 1 << 20
SLACK = 3 * MEBI
"""What a process may gain over a thousand requests. It gained 0.3 MiB here, and hardly more over four
thousand further ones: the allocator's arenas settle. A request that stayed, its JSON, its ids and its chunks, would
come to more than 3 KiB."""


@pytest.fixture(autouse=True)
def _next_request_is_right(small: Live) -> Iterator[None]:
    """Before and after each test the same request has the same answer."""
    before = small.chat("hello", temperature=0, max_tokens=6)["choices"]
    yield
    settle(small)
    assert small.chat("hello", temperature=0, max_tokens=6)["choices"] == before


def settle(live: Live) -> None:
    """Waits until nothing is running or waiting."""
    end = time.monotonic() + 30
    while busy_state(live) != "idle":
        assert time.monotonic() < end
        time.sleep(0.02)


def busy_state(live: Live) -> str:
    lines = live.client.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith(("llamacpp:requests_processing", "llamacpp:requests_deferred"))]
    assert len(found) == 2, lines
    return "idle" if all(float(line.rsplit(" ", 1)[1]) == 0 for line in found) else "busy"


def exchange(live: Live, *pieces: bytes, pause: float = 0.0, seconds: float = 30.0) -> bytes:
    """Sends bytes as they are, and reads until the server closes or says nothing more."""
    with closing(socket.create_connection(("127.0.0.1", live.port), timeout=seconds)) as connection:
        for piece in pieces:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(piece)
            time.sleep(pause)
        found = b""
        with suppress(TimeoutError, ConnectionResetError):
            while piece := connection.recv(65536):
                found += piece
        return found


def head(length: int | str, path: str = CHAT) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode()


BROKEN = {
    "empty": b"",
    "cut": b'{"messages": [{"role"',
    "not UTF-8": b'{"prompt": "\xff\xfe"}',
    "UTF-16": '{"prompt": "x"}'.encode("utf-16"),
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "NaN": b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
    "a huge number": b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1e999}',
    "a long integer": b'{"messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 5000 + b"}",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"messages": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "twice": b'{"messages": []} {"messages": []}',
    "trailing comma": b'{"messages": [],}',
    "messages of messages": b'{"messages": [[{"role": "user", "content": "x"}]]}',
    "no role": b'{"messages": [{"content": "x"}]}',
    "content of a number": b'{"messages": [{"role": "user", "content": 5}]}',
    "content of null": b'{"messages": [{"role": "user", "content": null}]}',
    "half a surrogate": b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
    "a NUL": b'{"messages": [{"role": "\\u0000", "content": "\\u0000"}], "max_tokens": 1}',
    "template fields": b'{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"messages": 5}}',
    "a deep schema": b'{"messages": [{"role": "user", "content": "x"}], "json_schema": '
    + b'{"items":' * 300
    + b"{}"
    + b"}" * 300
    + b"}",
    "a schema that refers to itself": b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 3,'
    b' "json_schema": {"$ref": "#"}}',
    "a grammar that never ends": b'{"messages": [{"role": "user", "content": "x"}], "grammar": "root ::= root"}',
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/tokenize", "/detokenize"])
def test_a_broken_body_is_a_bad_request(small: Live, name: str, path: str) -> None:
    answer = small.client.post(path, content=BROKEN[name])
    assert answer.status_code in {400, 413} or (name in TAKEN and answer.status_code == 200), answer.text
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert 10 < len(error["message"]) < 600


TAKEN = {"a NUL", "half a surrogate", "content of null", "a schema that refers to itself", "template fields"}
"""What may be answered as well as refused, as long as it does no harm."""


def test_a_body_larger_than_the_limit_is_refused_unread(small: Live) -> None:
    before = small.resident()
    found = exchange(small, head(1 << 40), b"x" * MEBI)
    assert found.startswith(b"HTTP/1.1 413")
    big = json.dumps({"messages": [{"role": "user", "content": "x" * (9 * MEBI)}]})
    assert small.client.post(CHAT, content=big).status_code == 413
    assert small.resident() - before < 32 * MEBI


def test_a_chunked_body_that_does_not_end_is_refused(small: Live) -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"messages": "'
        for _ in range(64):
            yield b"x" * MEBI

    with suppress(httpx.WriteError, httpx.ReadError):
        assert small.client.post(CHAT, content=endless()).status_code == 413


def test_a_body_that_dribbles_is_refused_in_time(small: Live) -> None:
    body = json.dumps(ASK).encode()
    began = time.monotonic()
    found = exchange(small, head(len(body)), *(body[i : i + 1] for i in range(8)), pause=0.2)
    assert found.startswith(b"HTTP/1.1 408")
    assert time.monotonic() - began < 5


def test_heads_that_are_not_http_are_refused(small: Live) -> None:
    for sent in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", head("-5"), head("ten")):
        assert exchange(small, sent, seconds=5).startswith(b"HTTP/1.1 400")
    assert not exchange(small, b"GET / HTTP/1.1\r\nX: " + b"y" * 300_000 + b"\r\n\r\n", seconds=5).startswith(
        b"HTTP/1.1 200"
    )


def test_slow_clients_do_not_stand_in_anybodys_way(small: Live) -> None:
    """Many connections that say nothing, or only the beginning of a head."""
    waiting = [socket.create_connection(("127.0.0.1", small.port)) for _ in range(150)]
    try:
        for connection in waiting[::2]:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-")
        began = time.monotonic()
        assert small.text("hello", temperature=0, max_tokens=2)
        assert time.monotonic() - began < 5
    finally:
        for connection in waiting:
            connection.close()


def test_a_client_that_does_not_read_ends_when_its_time_is_over_or_it_leaves(small: Live) -> None:
    body = json.dumps(ASK | {"stream": True, "max_tokens": 200}).encode()
    with closing(socket.create_connection(("127.0.0.1", small.port))) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(head(len(body)) + body)
        time.sleep(0.3)
    settle(small)


# ---------------------------------------------------------------- many at once


async def crowd(live: Live, size: int) -> list[Any]:
    """``size`` clients at once: every second one streams and leaves after its first piece, or before any."""
    limits = httpx.Limits(max_connections=size)
    async with httpx.AsyncClient(base_url=live.url, timeout=60, limits=limits, trust_env=False) as client:
        return await asyncio.gather(*(visit(client, number) for number in range(size)), return_exceptions=True)


async def visit(client: httpx.AsyncClient, number: int) -> str:
    if number % 4 == 1:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01 * (number % 7)):
                await client.post(CHAT, json=ASK | {"max_tokens": 150})
        return "left"
    if number % 4 == 3:
        async with client.stream("POST", CHAT, json=ASK | {"max_tokens": 150, "stream": True}) as answer:
            async for _ in answer.aiter_bytes():
                break
        return "left"
    for _ in range(2000):
        answer = await client.post(CHAT, json=ASK)
        if answer.status_code != 429:
            assert answer.status_code == 200, answer.text
            return answer.json()["choices"][0]["message"]["content"]
        assert 1 <= int(answer.headers["retry-after"]) <= 120
        await asyncio.sleep(0.05)
    raise TimeoutError


def test_a_hundred_clients_at_once_half_of_which_leave(small: Live) -> None:
    text = small.text("hello", temperature=0, max_tokens=6)
    asyncio.run(crowd(small, 100))
    settle(small)
    before, files = small.resident(), small.open_files()
    for _ in range(2):
        found = asyncio.run(crowd(small, 100))
        assert [each for each in found if isinstance(each, BaseException)] == []
        assert sorted(found) == sorted(["left"] * 50 + [text] * 50)
        settle(small)
    assert small.open_files() <= files + 1
    assert small.resident() - before < SLACK


def test_the_queue_is_bounded_and_says_when_to_come_again(small: Live) -> None:
    async def flood() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=small.url, timeout=60, trust_env=False) as client:
            return await asyncio.gather(*(client.post(CHAT, json=ASK | {"max_tokens": 120}) for _ in range(20)))

    found = asyncio.run(flood())
    refused = [answer for answer in found if answer.status_code == 429]
    assert {answer.status_code for answer in found} == {200, 429}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert refused[0].json()["error"]["type"] == "rate_limit_error"


def test_memory_is_flat_over_a_thousand_requests(small: Live) -> None:
    """Of every form: whole, streamed, refused, with a grammar, with log probabilities, left early."""
    forms = [
        {},
        {"stream": True},
        {"temperature": 0.9, "seed": 3, "stop": ["zz"]},
        {"temperature": "hot"},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True, "top_logprobs": 5, "stream": True},
    ]

    def round_of(count: int) -> int:
        for number in range(count):
            words = f"request {number} says {number * 7919}"
            fields = {"max_tokens": 4, **forms[number % len(forms)]}
            small.client.post(CHAT, json={"messages": [{"role": "user", "content": words}], **fields})
        settle(small)
        return small.resident()

    before = round_of(250)
    assert round_of(1000) - before < SLACK
