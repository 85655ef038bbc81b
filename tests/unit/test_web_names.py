"""How origins and names of servers are spelt on the command line."""

from __future__ import annotations

import click
import pytest

from dflash_gguf.cli import web_names


def given(check, value):
    """What an option takes ``value`` for, or the words with which it refuses it."""
    try:
        (found,) = check(None, None, (value,))
    except click.BadParameter as error:
        return error.message
    return found


@pytest.mark.parametrize(
    "value",
    [
        *("*", "null", "https://example.org", "http://localhost:3000", "http://[::1]:3000", "http://127.0.0.1"),
        *("https://xn--mnchen-3ya.example", "moz-extension://0b5c", "tauri://localhost", "http://example.org:443"),
    ],
)
def test_origins(value):
    assert given(web_names.origins, value) == value


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("https://x/", "https://x"),
        ("https://x/chat?a#b", "https://x"),
        ("https://Example.org", "https://example.org"),
        ("HTTPS://example.org", "https://example.org"),
        ("https://example.org:443", "https://example.org"),
        ("http://example.org:80/", "http://example.org"),
        ("http://[::1]:80", "http://[::1]"),
        ("https://me@example.org", "https://example.org"),
        ("https://münchen.example", "https://xn--mnchen-3ya.example"),
        ("example.org", "https://example.org"),
        ("localhost:3000", "https://localhost:3000"),
    ],
)
def test_origins_that_no_browser_says(value, right):
    assert given(web_names.origins, value) == f"`{value}`; browsers spell it `{right}`"


@pytest.mark.parametrize(
    "value", ["", "https://", "/", "https://*.example.org", "https://x:port", "http://[", "https://a b", "https://a..b"]
)
def test_what_is_no_origin(value):
    assert given(web_names.origins, value) == f"`{value}`; expected an origin, such as https://example.org, or *"


@pytest.mark.parametrize(("value", "name"), [("*", "*"), ("box", "box"), ("Mine.Example", "mine.example")])
def test_hosts(value, name):
    assert given(web_names.hosts, value) == name


@pytest.mark.parametrize(
    ("value", "right"), [("x:8080", "x"), ("http://x/", "x"), ("[::1]", "::1"), ("münchen", "xn--mnchen-3ya")]
)
def test_hosts_that_no_browser_says(value, right):
    assert given(web_names.hosts, value) == f"`{value}`; browsers spell it `{right}`"


def test_what_is_no_host():
    assert "expected a name" in given(web_names.hosts, "*.example.org")
