"""`dflash-gguf serve` as a process: its address, its end, and what it refuses to begin with."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

SIZES = ["-c", "256", "-t", "1", "--depth", "fixed"]


def words(*more):
    return [sys.executable, "-m", "dflash_gguf", "serve", *map(str, more)]


@contextmanager
def started(*more, env=None):
    """The process, and the first line that it prints; it is ended behind the block."""
    command = words(*more, "--port", 0)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )
    try:
        yield process, process.stdout.readline()
    finally:
        process.terminate()
        process.communicate(timeout=30)


def url_in(line):
    return next(word.rstrip(";") for word in line.split() if word.startswith("http://"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_until_it_is_told_to_end(tiny_target, tiny_drafter, number):
    with started("-m", tiny_target, "-md", tiny_drafter, *SIZES, "-a", "mine") as (process, line):
        assert line.startswith("mine listens on http://127.0.0.1:")
        body = {"prompt": "hello", "max_tokens": 8, "temperature": 0}
        answer = httpx.post(f"{url_in(line)}/v1/completions", json=body)
        assert answer.json()["usage"]["completion_tokens"] == 8
        process.send_signal(number)
        out, errors = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in errors
        assert "Ctrl-C" not in errors


def test_the_end_while_an_answer_is_written(tiny_target):
    with started("-m", tiny_target, "--no-draft", "-c", "60000", "-t", "1", "--grace", "0.2") as (process, line):
        url, body = f"{url_in(line)}/v1/completions", {"prompt": "hello", "stream": True}
        with httpx.stream("POST", url, json=body, timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.terminate()
            rest = [line for line in lines if line]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["type"] == "unavailable_error"
        process.wait(timeout=30)
        assert process.returncode == 0


def test_a_second_signal_does_not_wait(tiny_target):
    with started("-m", tiny_target, "--no-draft", "-c", "60000", "-t", "1", "--grace", "600") as (process, line):
        url, body = f"{url_in(line)}/v1/completions", {"prompt": "hello", "stream": True}
        with httpx.stream("POST", url, json=body, timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            while "shutting down" not in httpx_refusal(url):
                pass
            process.send_signal(signal.SIGINT)
            rest = [line for line in lines if line]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["type"] == "unavailable_error"
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")


def httpx_refusal(url):
    """Why another request is refused: by the server, or since nobody listens any more."""
    try:
        return httpx.post(url, json={"prompt": "x", "max_tokens": 1}, timeout=30).text
    except httpx.TransportError:
        return "shutting down"


def test_json_and_keys_of_the_environment(tiny_target):
    env = {"LLAMA_API_KEY": "one two"}
    with started("-m", tiny_target, "--no-draft", *SIZES, "--json", env=env) as (_, line):
        found = json.loads(line)
        assert found["model"] == tiny_target.stem
        statuses = []
        for key in ("two", "three"):
            headers = {"Authorization": f"Bearer {key}"}
            statuses.append(httpx.get(f"{found['url']}/metrics", headers=headers).status_code)
        assert statuses == [200, 401]


def test_a_server_is_called_by_the_address_that_it_prints(tiny_target):
    more = ["--host", "127.0.0.2", "--allow-host", "Mine.Example"]
    with started("-m", tiny_target, "--no-draft", *SIZES, *more) as (_, line):
        url = url_in(line)
        assert url.startswith("http://127.0.0.2:")
        names = ({}, {"Host": "mine.example"}, {"Host": "evil.example"})
        assert [httpx.get(f"{url}/metrics", headers=name).status_code for name in names] == [200, 200, 403]


@pytest.mark.parametrize(("more", "warned"), [([], True), (["--api-key", "x"], False)])
def test_an_open_address_without_a_key_is_warned_of(tiny_target, more, warned):
    with started("-m", tiny_target, "--no-draft", *SIZES, "--host", "0.0.0.0", *more) as (process, line):  # noqa: S104
        assert "0.0.0.0" in line  # noqa: S104
        url = f"{url_in(line)}/health"
        assert httpx.get(url).status_code == 200
        assert httpx.get(url, headers={"Host": "evil.example"}).status_code == (403 if warned else 200)
        process.terminate()
        _, errors = process.communicate(timeout=30)
        assert ("anybody who can reach" in errors) == ("--allow-host" in errors) == warned


def test_the_flags_of_a_choice_are_defaults_of_requests(tiny_target):
    with started("-m", tiny_target, "--no-draft", *SIZES, "--temp", "0.9", "-s", "5") as (_, line):
        url = f"{url_in(line)}/v1/completions"
        answers = [httpx.post(url, json={"prompt": "a", "max_tokens": 9, **more}).json() for more in ({}, {"seed": 6})]
        assert [answer["timings"]["seed"] for answer in answers] == [5, 6]


def refused(*more):
    done = subprocess.run(words(*more), capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done


def test_an_address_that_is_taken_is_told_before_anything_is_loaded(tiny_target):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = refused("-m", "missing.gguf", "--no-draft", "--port", port)
    assert done.returncode == 1
    assert f"cannot listen on `127.0.0.1` at port {port}" in done.stderr
    assert "--port" in done.stderr


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["-m", "missing.gguf", "--no-draft", "--port", 0], 1, "missing.gguf"),
        (
            ["--host", "no such host.example", "--no-draft", "-m", "missing.gguf"],
            1,
            "the address `no such host.example`",
        ),
        ([], 2, "name the target with -m or -hf"),
        (["-m", "x", "--queue", "-1"], 2, "--queue"),
        (["-m", "x", "--timeout", "0"], 2, "--timeout"),
        (["-m", "x", "--timeout", "nan"], 2, "--timeout"),
        (["-m", "x", "--api-key", " "], 2, "--api-key"),
        (["-m", "x", "--max-body", "1"], 2, "--max-body"),
        (["-m", "x", "-a", "  "], 2, "expected a name that is not blank"),
        (["-m", "x", "--cors-origin", "https://x/"], 2, "`https://x/`; browsers spell it `https://x`"),
        (["-m", "x", "--allow-host", "http://x:80"], 2, "`http://x:80`; browsers spell it `x`"),
    ],
)
def test_what_it_refuses(more, code, message):
    done = refused(*more)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--grammar", "root ::= foo"], "--grammar: libllama refuses the `grammar`: got 'root ::= foo'"),
        (["-j", '{"type": "string", "pattern": "^\\\\d$"}'], "--json-schema: libllama refuses the grammar that"),
        (["-l", "512+1"], "a token of `logit_bias`: got 512, expected 0 to 511"),
    ],
    ids=["grammar", "schema", "bias"],
)
def test_defaults_that_no_request_could_be_answered_with_are_wrong_usage(more, message, tiny_target):
    done = refused("-m", tiny_target, "--no-draft", *SIZES, "--port", 0, *more)
    assert (done.returncode, message in done.stderr, done.stdout) == (2, True, ""), done.stderr


def test_a_web_socket_brings_no_advice(tiny_target):
    with started("-m", tiny_target, "--no-draft", *SIZES) as (process, line):
        url = url_in(line)
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        assert httpx.get(url, headers=upgrade).status_code == 200
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert errors == ""


def test_verbose_tells_of_each_answer(tiny_target):
    with started("-m", tiny_target, "--no-draft", *SIZES, "-v") as (process, line):
        httpx.post(f"{url_in(line)}/v1/completions", json={"prompt": "a", "max_tokens": 9, "seed": 3})
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert "generated 9 tokens" in errors
    assert "length; seed 3" in errors
