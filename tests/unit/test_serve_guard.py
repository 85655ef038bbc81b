"""Who may ask the server: keys, names and origins."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from dflash_gguf.serve import guard
from dflash_gguf.serve.guard import Guard
from dflash_gguf.serve.settings import ServerSettings

PATH = "/v1/completions"
KEYS = ("secret-1", "secret-2")


def asked(settings, method="GET", path=PATH, base="http://127.0.0.1:8080", **headers):
    """The answer to a request with ``headers``; an underscore stands for a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def ask():
        transport = httpx.ASGITransport(app=Guard(PlainTextResponse("in"), settings))
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await client.request(method, path, headers=named)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer secret-1"}, 200),
        ({"authorization": "bearer  secret-2 "}, 200),
        ({"x_api_key": "secret-2"}, 200),
        ({"authorization": "Bearer secret-3"}, 401),
        ({"authorization": "Bearer secret-1x"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Basic secret-1"}, 401),
        ({"authorization": "secret-1"}, 401),
        ({"x_api_key": b"s\xe9cret"}, 401),
    ],
)
def test_keys(headers, status):
    answer = asked(ServerSettings("m", api_keys=KEYS), **headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "secret" not in answer.text


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/openapi.json"])
def test_paths_that_need_no_key(path):
    assert asked(ServerSettings("m", api_keys=KEYS), path=path).status_code == 200
    assert asked(ServerSettings("m", api_keys=KEYS), path=f"{path.rstrip('/')}/x").status_code == 401


def test_a_key_may_be_any_text():
    headers = {"authorization": "Bearer schlüssel".encode()}
    assert asked(ServerSettings("m", api_keys=("schlüssel",)), **headers).status_code == 200


def test_a_key_may_be_bytes_that_are_no_text():
    """Which a command line or an environment may hold: Python reads them as halves of surrogate pairs."""
    settings = ServerSettings("m", api_keys=("\udcff",))
    assert asked(settings, authorization=b"Bearer \xff").status_code == 200
    assert asked(settings, authorization=b"Bearer \xfe").status_code == 401


def test_the_settings_do_not_show_their_keys():
    assert "secret" not in repr(ServerSettings("m", api_keys=KEYS))


@pytest.mark.parametrize(
    ("base", "status"),
    [
        ("http://127.0.0.1:8080", 200),
        ("http://localhost", 200),
        ("http://LOCALHOST:9", 200),
        ("http://chat.localhost:8080", 200),
        ("http://[::1]:8080", 200),
        ("http://mine.example:8080", 200),
        ("http://192.0.2.1", 200),
        ("http://box:8080", 200),
        ("http://Box.local.", 200),
        ("http://evil.example:8080", 403),
        ("http://localhost.evil.example", 403),
        ("http://lan.evil.example", 403),
        ("http://127.0.0.1.evil.example", 403),
    ],
)
def test_names_by_which_a_server_without_a_key_is_called(monkeypatch, base, status):
    """A page may have any name but an address and this machine's own ones, and its script reads what comes back."""
    monkeypatch.setattr(guard.socket, "gethostname", lambda: "BOX.lan")
    page = {"origin": base.lower()}
    answer = asked(ServerSettings("m", hosts=("mine.example",)), base=base, **page)
    assert answer.status_code == status
    assert asked(ServerSettings("m", hosts=("*",)), base=base).status_code == 200
    assert asked(ServerSettings("m", api_keys=KEYS), path="/health", base=base).status_code == 200
    assert asked(ServerSettings("m", api_keys=KEYS), base=base, **page).status_code == 401
    if status == 403:
        assert "--allow-host" in answer.json()["error"]["message"]
        assert "box" not in answer.text, "the page may read it"


@pytest.mark.parametrize(
    ("origins", "origin", "status"),
    [
        ((), "http://127.0.0.1:8080", 200),
        ((), "http://127.0.0.1:9090", 403),
        ((), "https://example.org", 403),
        ((), "null", 403),
        ((), "http://[", 403),
        (("https://example.org",), "https://example.org", 200),
        (("https://example.org",), "https://example.org.evil", 403),
        (("*",), "https://anything.example", 200),
    ],
)
def test_pages_of_other_origins(origins, origin, status):
    answer = asked(ServerSettings("m", origins=origins), method="POST", origin=origin)
    assert answer.status_code == status
    shared = status == 200 and bool(origins)
    assert answer.headers.get("access-control-allow-origin") == (origin if shared else None)
    assert ("origin" in answer.headers.get("vary", "").lower()) == shared


def test_a_preflight_needs_no_key_and_a_refusal_can_be_read():
    settings = ServerSettings("m", origins=("https://example.org",), api_keys=KEYS)
    asking = {"origin": "https://example.org", "access_control_request_method": "POST"}
    answer = asked(settings, "OPTIONS", access_control_request_headers="authorization", **asking)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-headers"] == "authorization"
    assert answer.headers["access-control-allow-origin"] == "https://example.org"
    refused = asked(settings, "POST", origin="https://example.org")
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://example.org")
    assert asked(ServerSettings("m"), "OPTIONS", **asking).status_code == 403
