"""How the server behaves when there is too much of something, or somebody leaves: over a session that tests drive."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from served import N_CTX, ScriptedSession, serving

from dflash_gguf import DflashError
from dflash_gguf.serve import bodies, completions, service

ROUTE = "/v1/completions"


@pytest.fixture
def session():
    return ScriptedSession()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as found:
        yield found


def ask(served, number, **fields):
    """A request of its own connection; its prompt is ``number``."""
    body = {"prompt": [number], "max_tokens": 2, **fields}
    return httpx.post(f"{served.client.base_url}{ROUTE}", json=body, timeout=60)


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        threading.Event().wait(0.005)


def waiting(served):
    return served.metrics()["llamacpp:requests_deferred"]


def test_one_at_a_time_in_turn_and_no_more_than_the_queue_holds(session, pool):
    with serving(session, queue=2) as served:
        first = pool.submit(ask, served, 1)
        assert session.begun.acquire(timeout=30)
        second = pool.submit(ask, served, 2)
        wait_until(lambda: waiting(served) == 1)
        third = pool.submit(ask, served, 3)
        wait_until(lambda: waiting(served) == 2)
        refused = ask(served, 4)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 120
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert "dflash-gguf recipe" in error["message"]
        session.let(6)
        assert [one.result().json()["choices"][0]["text"] for one in (first, second, third)] == ["ab"] * 3
        assert session.prompts == [[1], [2], [3]]
        session.let(2)
        assert ask(served, 5).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_answer_within_a_pass(session, stream):
    with serving(session) as served:
        with socket.create_connection(_address(served)) as raw:
            raw.sendall(_head({"prompt": [7], "max_tokens": 50, "stream": stream}))
            assert session.begun.acquire(timeout=30)
            session.let(3)
            wait_until(lambda: session.n_begun == 4)
        wait_until(lambda: not _connections(served))
        served.metrics()  # asked behind it: by then the worker has been told
        session.let(1)
        assert session.ended.acquire(timeout=30)
        assert len(session.passes) == 4, "the pass that was running, and none behind it"
        session.let(2)
        assert ask(served, 8).json()["choices"][0]["text"] == "ab"
        assert served.metrics()['vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"}'] == 1


def test_a_client_that_leaves_the_queue_is_never_answered(session, pool):
    with serving(session) as served:
        first = pool.submit(ask, served, 1)
        assert session.begun.acquire(timeout=30)
        with socket.create_connection(_address(served)) as raw:
            raw.sendall(_head({"prompt": [2], "max_tokens": 2}))
            wait_until(lambda: waiting(served) == 1)
        wait_until(lambda: waiting(served) == 0)
        session.let(4)
        assert first.result().status_code == 200
        assert ask(served, 3).status_code == 200
        assert session.prompts == [[1], [3]]


def test_the_time_of_a_request_that_waits_is_over(session, pool):
    with serving(session, timeout=0.3) as served:
        first, second = pool.submit(ask, served, 1), pool.submit(ask, served, 2)
        for answer in (first.result(), second.result()):
            assert answer.status_code == 504
            assert answer.json()["error"]["code"] == "timeout"
            assert "--timeout" in answer.json()["error"]["message"]
            assert answer.headers["x-should-retry"] == "false"
        session.let(1)  # the pass that was running
        assert session.ended.acquire(timeout=30)
        assert session.prompts[0] in ([1], [2])
        session.let(2)
        assert ask(served, 3).json()["choices"][0]["text"] == "ab"


def test_the_time_of_a_stream_is_over(session):
    with serving(session, timeout=0.5) as served:
        session.let(2)
        body = {"prompt": [1], "max_tokens": 9, "stream": True}
        events = served.client.post(ROUTE, json=body).text.split("\n\n")
        assert json.loads(events[0].removeprefix("data: "))["choices"][0]["text"] == "a"
        assert json.loads(events[2].removeprefix("data: "))["error"]["code"] == "timeout"
        assert "[DONE]" not in events[-1]
        session.let(1)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DflashError("the target's pass failed", value=-3), "the target's pass failed"),
        (ValueError("secret"), "ValueError"),
    ],
)
def test_a_pass_that_fails_is_told_and_the_next_request_is_right(session, stream, error, words):
    session.fail_at = {0: error}
    with serving(session) as served:
        session.let(1)
        answer = served.client.post(ROUTE, json={"prompt": [1], "stream": stream})
        assert answer.status_code == 500
        assert words in answer.json()["error"]["message"]
        assert "secret" not in answer.text
        session.let(2)
        assert ask(served, 2).json()["choices"][0]["text"] == "ab"


def test_a_stream_that_fails_half_way_says_so(session):
    session.fail_at = {1: DflashError("the target's pass failed")}
    with serving(session) as served:
        session.let(2)
        events = served.client.post(ROUTE, json={"prompt": [1], "stream": True}).text.split("\n\n")
        assert json.loads(events[1].removeprefix("data: "))["error"]["type"] == "server_error"


def test_the_end_lets_the_running_answer_finish_and_refuses_the_rest(session, pool):
    with serving(session, grace=20.0) as served:
        first = pool.submit(ask, served, 1)
        assert session.begun.acquire(timeout=30)
        second = pool.submit(ask, served, 2)
        wait_until(lambda: waiting(served) == 1)
        served.server.should_exit = True
        answer = second.result()
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        session.let(2)
        assert first.result().json()["choices"][0]["text"] == "ab"
        served.thread.join(30)
        assert session.prompts == [[1]]


def test_the_end_does_not_wait_for_ever(session, pool):
    with serving(session, grace=0.5) as served:
        first = pool.submit(ask, served, 1, max_tokens=60)
        assert session.begun.acquire(timeout=30)
        served.server.should_exit = True
        answer = first.result()
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable_error")
        session.let(1)  # the pass that was running
        served.thread.join(30)
        assert len(session.passes) == 1


def test_a_stream_that_waits_says_that_it_lives(session, pool, monkeypatch):
    """In the queue and before the first token; what goes wrong then is an event."""
    monkeypatch.setattr(completions, "PING", 0.05)
    session.fail_at = {1: DflashError("the target's pass failed")}
    with serving(session) as served:
        first = pool.submit(ask, served, 1, max_tokens=1)
        assert session.begun.acquire(timeout=30)
        with served.client.stream("POST", ROUTE, json={"prompt": [2], "stream": True}) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            assert next(lines) == ": waiting"
            session.let(3)
            rest = [line for line in lines if line and line != ": waiting"]
        assert first.result().status_code == 200
        assert json.loads(rest[0].removeprefix("data: "))["choices"][0]["text"] == "a"
        assert json.loads(rest[1].removeprefix("data: "))["error"]["type"] == "server_error"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_does_not_read_holds_nobody_up(session, stream):
    """Its answer goes on into buffers, or is given up with its time; the next request is answered."""
    with serving(session, timeout=1.0) as served, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        raw.connect(_address(served))
        raw.sendall(_head({"prompt": [7], "max_tokens": 60, "stream": stream, "logprobs": 0}))
        session.let(60)
        assert session.ended.acquire(timeout=30)
        session.let(2)
        assert ask(served, 8).json()["choices"][0]["text"] == "ab"


def test_bodies_that_are_too_large(session):
    with serving(session, body_limit=1024) as served:
        large = json.dumps({"prompt": "x" * 2000}).encode()
        for content in (large, iter([large[:700], large[700:]])):
            answer = httpx.post(f"{served.client.base_url}{ROUTE}", content=content)
            assert answer.status_code == 413
            assert "larger than 1024 bytes" in answer.json()["error"]["message"]
        session.let(2)
        assert ask(served, 1).status_code == 200


@pytest.mark.parametrize("path", [ROUTE, "/tokenize", "/detokenize"])
def test_many_large_bodies_at_once(session, monkeypatch, path):
    """Together they hold no more memory than a few of the largest may; small ones are read all the same."""
    monkeypatch.setattr(bodies, "MOST_HELD", 2)
    large = json.dumps({"prompt": [1] * 30_000}).encode()
    with serving(session, body_limit=100_000) as served, ExitStack() as stack:
        for _ in range(2):
            raw = stack.enter_context(socket.create_connection(_address(served)))
            raw.sendall(_head({"prompt": [1] * 30_000}, path)[:-1])
        wait_until(lambda: served.server.service.bodies.held > 2 * (len(large) - 10))
        refused = httpx.post(f"{served.client.base_url}{path}", content=large.ljust(95_000))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "too many large bodies" in refused.json()["error"]["message"]
        session.let(2)
        assert ask(served, 1).status_code == 200
        stack.close()
        wait_until(lambda: served.server.service.bodies.held == 0)
        assert served.client.post(ROUTE, content=large).json()["error"]["code"] == "context_length_exceeded"
        assert served.server.service.bodies.held == 0


def test_a_body_that_is_too_slow(session):
    with serving(session, body_timeout=0.3) as served, socket.create_connection(_address(served)) as raw:
        raw.sendall(_head({"prompt": [1]})[:-3])
        raw.settimeout(30)
        answer = b""
        while piece := raw.recv(4096):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not come within 0.3 seconds" in answer
        session.let(2)
        assert ask(served, 2).status_code == 200


def test_many_clients_of_which_half_leave(session):
    """Whoever stays is answered or told to come again; nothing is left behind."""
    statuses = []

    def stays(served, number):
        statuses.append(ask(served, number).status_code)

    def leaves(served, number):
        with socket.create_connection(_address(served)) as raw:
            raw.sendall(_head({"prompt": [number], "max_tokens": 60, "stream": bool(number % 4)}))

    with serving(session, queue=8) as served:
        session.let(100_000)
        with ThreadPoolExecutor(100) as pool:
            for number in range(100):
                pool.submit(stays if number % 2 else leaves, served, number)
        assert len(statuses) == 50
        assert set(statuses) <= {200, 429}
        wait_until(lambda: waiting(served) == 0 and served.metrics()["llamacpp:requests_processing"] == 0)
        assert ask(served, 1).json()["choices"][0]["text"] == "ab"


def test_a_prompt_that_does_not_fit_says_by_how_much(session):
    with serving(session) as served:
        error = served.refused(prompt=[1] * (N_CTX + 3))
        assert error["code"] == "context_length_exceeded"
        assert (error["param"], error["n_prompt_tokens"], error["n_ctx"]) == ("prompt", N_CTX + 3, N_CTX)
        assert "3 more than the context of 64 holds" in error["message"]
        assert session.prompts == []


def _address(served):
    url = served.client.base_url
    return url.host, url.port


def _connections(served):
    """Those that are not the client's own."""
    return [one for one in served.server.server_state.connections if one.cycle and not one.cycle.response_complete]


def _head(body, path=ROUTE):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def test_a_prompt_that_hangs_is_seen_from_outside(session, pool, monkeypatch):
    monkeypatch.setattr(service, "LONGEST_READING", 0.0)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(ids):
        hangs.set()
        assert goes_on.wait(30)
        return ids

    monkeypatch.setattr(session, "checked_ids", hang)
    with serving(session) as served:
        assert served.client.get("/health").status_code == 200
        asked = pool.submit(ask, served, 1)
        assert hangs.wait(30)
        answer = served.client.get("/health")
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable_error")
        assert "a prompt has been prepared for more than" in answer.json()["error"]["message"]
        session.let(2)
        goes_on.set()
        assert asked.result().status_code == 200
        assert served.client.get("/health").status_code == 200


def test_a_failure_that_nobody_has_foreseen_says_that_the_connection_is_closed(session):
    page = {"Origin": "https://example.org"}
    with serving(session, origins=("https://example.org",)) as served:
        answer = served.client.post(ROUTE, json={"prompt": "this session has no tokenizer"}, headers=page)
        assert (answer.status_code, answer.headers["connection"]) == (500, "close")
        assert answer.headers["access-control-allow-origin"] == "https://example.org", "the page can read it"
        assert answer.json()["error"]["message"] == "the server failed: AttributeError"
        session.let(1)
        assert served.completion([1], max_tokens=1)["choices"][0]["text"] == "a"
