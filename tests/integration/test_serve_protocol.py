"""Connections that send no request are closed, and others are not."""

from __future__ import annotations

import socket
from contextlib import closing, suppress

import pytest
from served import ScriptedSession, serving

from dflash_gguf.serve import protocol

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "HEAD", 0.2)
    with serving(ScriptedSession()) as served:
        yield served.client.base_url.port


def connected(port: int):
    return closing(socket.create_connection(("127.0.0.1", port), timeout=20))


def read_to_end(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(4096), b""))


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: local"])
def test_a_head_that_does_not_come_closes_the_connection(port: int, sent: bytes) -> None:
    with connected(port) as client:
        client.sendall(sent)
        assert read_to_end(client) == b""


def test_a_head_that_dribbles_is_not_waited_for(port: int) -> None:
    client = socket.create_connection(("127.0.0.1", port), timeout=0.02)
    sent = 0
    with closing(client), suppress(ConnectionError):
        while sent < 400:
            client.sendall(b"G")
            sent += 1
            with suppress(TimeoutError):
                assert client.recv(1) == b""
                break
    assert 0 < sent < 400


def test_between_requests_it_may_be_silent_for_longer(port: int) -> None:
    with connected(port) as client:
        for _ in range(2):
            client.sendall(HEAD)
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                answer += client.recv(4096)
            client.settimeout(0.5)
            with pytest.raises(TimeoutError):
                client.recv(1)
            client.settimeout(20)
