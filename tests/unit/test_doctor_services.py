"""The probes of the hub and of ollama, on made-up machines and with servers of our own."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from made_up_machine import answers, machine, put

from dflash_gguf.environment import VARIABLES
from dflash_gguf.probes import services
from dflash_gguf.probes.checks import Check, ProbeError


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    """What llama.cpp reads comes before huggingface_hub's constants, which these tests set."""
    for name in ("MODEL_ENDPOINT", "HF_ENDPOINT", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)


def test_the_hubs_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", "https://huggingface.co")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert services.hub_cache(machine()).found == f"{tmp_path / 'hub'}, not made yet"
    (tmp_path / "hub" / "models--a--b").mkdir(parents=True)
    (tmp_path / "hub" / "datasets--a--b").mkdir()
    assert services.hub_cache(machine()).found == f"{tmp_path / 'hub'}, models: 1"
    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.example")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert services.hub_cache(machine()).found.endswith(
        "models: 1, the hub is https://mirror.example, HF_HUB_OFFLINE is set: nothing is downloaded"
    )


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    from huggingface_hub import constants

    put(tmp_path, "file")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    check = services.hub_cache(machine())
    assert check.status == "warning"
    assert check.remedy == f"fix or remove `{tmp_path / 'file'}`, or use another folder: export HF_HOME=~/huggingface"
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "file" / "llama"))
    check = services.hub_cache(machine())
    assert str(tmp_path / "file" / "llama") in check.found
    assert check.remedy.endswith("export LLAMA_CACHE=~/huggingface")


def token_at(path, monkeypatch):
    from huggingface_hub import constants

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(path))
    return services.hub_token(machine())


def test_the_token_is_never_shown(tmp_path, monkeypatch):
    assert token_at(tmp_path / "token", monkeypatch).found.startswith("none: ")
    (tmp_path / "token").write_text(" \n")
    assert token_at(tmp_path / "token", monkeypatch).found.startswith("none: ")
    (tmp_path / "token").write_text("hf_secret\n")
    assert token_at(tmp_path / "token", monkeypatch) == Check("hub token", "ok", "present")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert services.hub_token(machine()) == Check("hub token", "ok", "present")


@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir, lambda path: path.write_bytes(b"\xff\xfe")])
def test_a_token_that_is_no_text_file(tmp_path, monkeypatch, made):
    path = tmp_path / "token"
    made(path)
    check = token_at(path, monkeypatch)
    assert check.status == "warning"
    assert f"`{path}` cannot be read: it is no " in check.found
    assert f"fix or remove `{path}`" in check.remedy
    assert "pip" not in check.remedy


def test_a_home_that_is_no_folder(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", "/dev/null/hub")
    for check, path in (
        (token_at("/dev/null/token", monkeypatch), "/dev/null/token"),
        (services.hub_cache(machine()), "/dev/null"),
    ):
        assert check.status == "warning"
        assert f"fix or remove `{path}`" in check.remedy
        assert "export HF_HOME=" in check.remedy


def test_a_cache_that_cannot_be_read(tmp_path, monkeypatch):
    from huggingface_hub import constants

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(type(tmp_path), "iterdir", refused)
    check = services.hub_cache(machine())
    assert (check.status, check.found) == ("warning", f"`{tmp_path}` cannot be read: permission denied")
    assert f"fix or remove `{tmp_path}`" in check.remedy


@contextmanager
def server(body, status=200):
    """An HTTP server on this machine that gives one answer to all; yields its place."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/api/version" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        yield f"127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


SCRIPT = "curl -fsSL https://ollama.com/install.sh | sh"


@pytest.mark.parametrize(
    ("version", "status", "found"),
    [
        ("0.32.6", "problem", "DFlash needs 0.32.7 or newer"),
        ("0.32.7-rc1", "problem", "DFlash needs 0.32.7 or newer"),
        ("0.32.7", "warning", "DFlash: yes, DFlash 2: no, needs newer than 0.33.0-rc2"),
        ("0.33.0-rc2", "warning", "DFlash: yes, DFlash 2: no, needs newer than 0.33.0-rc2"),
        ("0.33.0-rc10", "ok", "DFlash: yes, DFlash 2: if its llama.cpp is b10665 or later"),
        ("0.33.0", "ok", "DFlash: yes, DFlash 2: if its llama.cpp is b10665 or later"),
        ("v1.0", "ok", "DFlash: yes, DFlash 2: if its llama.cpp is b10665 or later"),
    ],
)
def test_the_servers_version_is_judged(version, status, found):
    with server(json.dumps({"version": version}).encode()) as place:
        check = services.ollama(machine(ollama_host=place, **answers(ollama="version is 0.1.0")))
    assert (check.status, check.found) == (status, f"{version}, server at {place}; {found}")
    assert check.remedy == ("" if status == "ok" else SCRIPT)


@pytest.mark.parametrize("body", [b"not json", b"[]", b'{"version": 3}', b"\xff", b"", b"[" * 60000])
def test_another_server_is_not_ollama(body):
    with server(body) as place:
        check = services.ollama(machine(ollama_host=place))
    assert (check.status, check.remedy) == ("warning", SCRIPT)
    assert check.found == f"not found on PATH, no server at {place}; only needed for what `modelfile` writes"


@pytest.mark.parametrize(
    ("said", "status", "found"),
    [
        ("ollama version is 0.30.0\n", "problem", "0.30.0, /bin/ollama, no server at 127.0.0.1:9; DFlash needs 0.32.7"),
        (
            "Warning: could not connect to a running Ollama instance\nWarning: client version is 0.40.1\n",
            "ok",
            "0.40.1, /bin/ollama, no server at 127.0.0.1:9; DFlash: yes",
        ),
        ("ollama version is 0.0.0\n", "warning", "version 0.0.0, /bin/ollama, no server at 127.0.0.1:9; needs 0.32.7"),
        (ProbeError("it failed"), "warning", "version not told, /bin/ollama, no server at 127.0.0.1:9; needs 0.32.7"),
    ],
)
def test_without_a_server_the_program_is_asked(said, status, found):
    check = services.ollama(machine(ollama_host="127.0.0.1:9", **answers(ollama=said)))
    assert check.status == status
    assert check.found.startswith(found)


def test_a_server_elsewhere_is_not_asked():
    check = services.ollama(machine(ollama_host="http://example.org:1234"))
    assert "OLLAMA_HOST is example.org:1234, not this machine: not asked" in check.found
    assert machine(system="Darwin").which("ollama") is None
    assert services.ollama(machine(system="Darwin", ollama_host="example.org")).remedy == "brew install ollama"


def test_the_program_is_kept_from_asking_elsewhere():
    seen = []

    def answer(command, environment):
        seen.append((command, environment["OLLAMA_HOST"]))
        return "ollama version is 0.40.1"

    services.ollama(machine(ollama_host="example.org", which=lambda _: "/bin/ollama", answer=answer))
    assert seen == [(["/bin/ollama", "--version"], "127.0.0.1:9")]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("http", "127.0.0.1", 11434)),
        ("0.0.0.0:1", ("http", "127.0.0.1", 1)),
        (":8080", ("http", "127.0.0.1", 8080)),
        (' "localhost:1" ', ("http", "localhost", 1)),
        ("http://localhost", ("http", "localhost", 80)),
        ("https://localhost/path", ("https", "localhost", 443)),
        ("::1", ("http", "::1", 11434)),
        ("[::1]:5", ("http", "::1", 5)),
        ("localhost:many", ("http", "localhost", 11434)),
        ("localhost:99999", ("http", "localhost", 11434)),
    ],
)
def test_ollama_host_is_read_as_ollama_does(text, parts):
    assert services.address(text) == parts


def test_variables_are_in_the_table():
    assert "OLLAMA_HOST" in VARIABLES
