"""`bench --server` against servers of our own: figures, and every way in which a server can let one down."""

import socket
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from threading import Barrier

import pytest
from bench_server import META, TIMINGS, chat, serving

from dflash_gguf.bench.load import Asked, ServerDrafts, load, summarize
from dflash_gguf.bench.measure import Plan
from dflash_gguf.bench.prompts import BenchPrompt
from dflash_gguf.bench.report import of_load
from dflash_gguf.bench.server import Reply, ask, first_model, server_at, tried
from dflash_gguf.errors import BenchError

HELLO = [{"role": "user", "content": "hello"}]
SAMPLING = {"temperature": 0.0, "seed": 1}
PLAN = Plan(16, 2, SAMPLING)


def asked(url, **changed):
    return ask(replace(server_at(url), **changed), HELLO, 16, SAMPLING)


def test_a_streamed_answer_with_llamas_timings():
    handler = chat()
    with serving(handler) as url:
        reply = asked(url, model="tiny", api_key="secret")
    assert (reply.text, reply.n_tokens, reply.counted, reply.timings) == ("you said hello", 9, True, TIMINGS)
    assert 0 < reply.first_ms <= reply.last_ms <= reply.total_ms
    assert reply.per_second == pytest.approx(8 / (reply.last_ms - reply.first_ms) * 1e3)
    ((path, body, headers),) = handler.asked
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert (body["model"], body["max_tokens"], body["temperature"], body["seed"]) == ("tiny", 16, 0.0, 1)
    assert body["stream_options"] == {"include_usage": True}
    assert (body["cache_prompt"], body["return_meta_info"]) == (False, True)


def test_two_requests_share_no_cache():
    handler = chat()
    with serving(handler) as url:
        asked(url)
        asked(url)
    first, second = (body["cache_salt"] for _, body, _ in handler.asked)
    assert first != second


def test_a_whole_answer_with_sglangs_meta_info():
    handler = chat()
    with serving(handler) as url:
        reply = asked(url, stream=False)
    assert (reply.text, reply.n_tokens, reply.meta_info) == ("hello", 9, META)
    assert (reply.first_ms, reply.per_second) == (None, None)
    assert "stream" not in handler.asked[0][1]


def test_pieces_are_counted_where_the_server_counts_nothing():
    events = [
        '{"choices": [{"delta": {"role": "assistant", "content": ""}}]}',
        '{"choices": [{"delta": {"reasoning_content": "hm"}}]}',
        '{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}], "usage": null}',
    ]
    with serving(chat(events=events)) as url:
        reply = asked(url)
    # The stream ended without [DONE], but behind a reason to.
    assert (reply.text, reply.n_tokens, reply.counted) == ("a", 2, False)


def test_a_server_that_refuses_unknown_fields_is_asked_without_them():
    handler = chat(strict=True)
    with serving(handler) as url:
        server = tried(server_at(url), HELLO, 16, SAMPLING)
    assert server.plain
    assert [sorted(body) for _, body, _ in handler.asked][1] == [
        "max_tokens",
        "messages",
        "model",
        "seed",
        "stream",
        "stream_options",
        "temperature",
    ]


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ({"fails": True}, "answered 500: out of luck; see the server's log"),
        ({"fails": True, "status": 404, "error": b"<html>no\x1b"}, r"answered 404: <html>no\x1b; check the URL"),
        ({"fails": True, "status": 401, "error": b""}, "answered 401: nothing; name the variable"),
        ({"fails": True, "status": 400, "error": b'{"error": "too long"}'}, "answered 400: too long"),
        ({"fails": True, "status": 200, "error": b"[]"}, "sent what is no answer of chat completions: []"),
        ({"fails": True, "status": 200, "error": b'{"choices": []}'}, "sent no answer"),
        ({"events": ["junk"]}, "sent what is no answer of chat completions: junk"),
        ({"events": ["[1]"]}, "sent what is no answer of chat completions: [1]"),
        ({"events": ['{"choices": [{"delta": {"content": "a"}}]}']}, "ended its answer half way, after 1 pieces"),
        ({"events": ['{"error": {"message": "no memory"}}']}, "reports an error: no memory"),
        ({"dies_at": 2}, "ended its answer half way"),
    ],
)
def test_what_is_no_answer_is_one_sentence(behaviour, message):
    with serving(chat(**behaviour)) as url, pytest.raises(BenchError) as caught:
        asked(url)
    assert message in str(caught.value)
    assert f"`{url}/v1`" in str(caught.value)


def test_junk_in_a_stream_that_goes_on_is_no_crash():
    events = ['{"choices": 7}', '{"choices": [1, {"delta": 2}]}', '{"choices": [{"delta": {"content": 5}}]}', "[DONE]"]
    with serving(chat(events=events)) as url:
        reply = asked(url)
    assert (reply.text, reply.n_tokens) == ("", 1)


class Rubbish(BaseHTTPRequestHandler):
    def handle(self):
        self.request.recv(65536)
        self.request.sendall(b"220 mail.example ESMTP\r\n")


def test_nobody_there_and_what_is_no_http():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(BenchError, match="nobody answers at"):
            first_model(server_at(url))
        with pytest.raises(BenchError, match="nobody answers at"):
            asked(url)
    with serving(Rubbish) as url, pytest.raises(BenchError, match="does not speak HTTP as expected: BadStatusLine"):
        asked(url)
    with pytest.raises(BenchError, match=r"the connection to `http://no-such-host\.invalid/v1` failed"):
        asked("http://no-such-host.invalid")


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:99999", "http://[::1", "http://a b:x"])
def test_what_is_no_url(url):
    with pytest.raises(BenchError, match="the server's URL"):
        server_at(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("localhost:8080", "http://localhost:8080/v1"),
        ("http://a/v1/", "http://a/v1"),
        ("https://user:secret@a/proxy?x=1#y", "https://a/proxy/v1"),
    ],
)
def test_urls_as_people_write_them(url, shown):
    assert server_at(url).shown == shown


@pytest.mark.parametrize(
    ("behaviour", "name"),
    [
        ({}, "tiny"),
        ({"models": []}, "default"),
        ({"models": {"data": []}}, "default"),
        ({"models_status": 404}, "tiny"),
    ],
)
def test_the_first_model_is_asked_for(behaviour, name):
    with serving(chat(**behaviour)) as url:
        assert first_model(server_at(url)) == name


def test_a_key_that_is_refused():
    with serving(chat(models_status=401)) as url, pytest.raises(BenchError, match=r"answered 401.*--api-key-env"):
        first_model(server_at(url))


def test_many_requests_at_once():
    handler = chat(barrier=Barrier(3))
    prompts = [BenchPrompt("code", ("a",)), BenchPrompt("code", ("b",)), BenchPrompt("chat", ("c",))]
    told = []
    with serving(handler) as url:
        found, seconds = load(server_at(url), prompts, PLAN, 3, told.append)
    assert handler.most_running == 3
    assert len(found) == len(told) == 6
    assert sorted(body["seed"] for _, body, _ in handler.asked) == [1, 1, 1, 2, 2, 2]
    summary = summarize(found, seconds)
    assert [(row.kind, row.n, row.n_tokens) for row in summary.rows] == [
        ("code", 4, 36),
        ("chat", 2, 18),
        ("all", 6, 54),
    ]
    assert summary.tokens_per_second == pytest.approx(54 / seconds)
    assert summary.all.server_per_second.middle == 123.0
    drafts = summary.all.drafts
    assert (drafts.draft_n, drafts.draft_n_accepted) == (72, 30)
    # Of 9 tokens one is the prompt's own and 5 were drafted: 3 passes.
    assert drafts.acceptance_length == pytest.approx(1 + 5 / 3)


def test_turns_carry_the_servers_own_answers():
    handler = chat()
    with serving(handler) as url:
        found, _ = load(server_at(url), [BenchPrompt("chat", ("a", "b"))], replace(PLAN, runs=1), 8, lambda _: None)
    assert [each.turn for each in found] == [0, 1]
    assert [m["content"] for m in handler.asked[1][1]["messages"]] == ["a", "you said a", "b"]


def test_one_failure_among_others_is_counted():
    with serving(chat(fails_at=(2,))) as url:
        found, seconds = load(server_at(url), [BenchPrompt("chat", ("a",))], PLAN, 1, lambda _: None)
    summary = summarize(found, seconds)
    assert (summary.all.n, summary.all.n_failed, summary.all.n_tokens) == (2, 1, 9)
    lines = of_load(summary, {}, 1.0).verdicts
    assert "1 of 2 requests failed: the figures are of the others" in lines
    assert lines[-1].endswith("for a million tokens")


def test_only_failures_are_one_sentence():
    with serving(chat(fails=True)) as url:
        found, seconds = load(server_at(url), [BenchPrompt("chat", ("a",))], PLAN, 2, lambda _: None)
    with pytest.raises(BenchError, match=r"no request succeeded: .* answered 500: out of luck"):
        summarize(found, seconds)


def test_a_fault_of_ours_in_a_worker_is_raised():
    with pytest.raises(AttributeError):
        load(None, [BenchPrompt("chat", ("a",))], PLAN, 1, lambda _: None)


def test_sglangs_counts():
    replies = [Reply("", n, True, None, None, 1.0, {}, {"completion_tokens": n, "spec_verify_ct": 4}) for n in (8, 12)]
    summary = summarize([Asked("chat", "p", 0, 0, reply) for reply in replies], 1.0)
    assert (summary.all.drafts.verify_calls, summary.all.drafts.acceptance_length) == (8, 2.5)
    odd = Reply(
        "", 1, False, None, None, 1.0, {"draft_n": "many", "predicted_per_second": None}, {"spec_verify_ct": -1}
    )
    nothing = summarize([Asked("chat", "p", 0, 0, odd)], 1.0)
    assert nothing.all.drafts.acceptance_length is None
    assert "the server does not count its tokens" in of_load(nothing, {}, None).verdicts[1]


def test_a_server_that_counts_as_sglang_and_as_llama_cpp():
    meta = {"completion_tokens": 9, "spec_verify_ct": 3}
    summary = summarize([Asked("chat", "p", 0, 0, Reply("", 9, True, None, None, 1.0, TIMINGS, meta))], 1.0)
    assert summary.all.drafts == ServerDrafts(12, 5, 3, 3.0)


def test_replies_of_which_nothing_was_drafted_count_in_the_acceptance_length():
    def told(kind, timings):
        return Asked(kind, "p", 0, 0, Reply("", 9, True, None, None, 1.0, timings, {}))

    none = {"predicted_n": 9}
    summary = summarize([told("code", TIMINGS), told("code", none), told("chat", none)], 1.0)
    code, chat = summary.kinds
    # 16 tokens behind the first ones, 5 of them drafted: 11 passes. And 24: 19 passes. And 8 of 8.
    assert code.drafts == ServerDrafts(12, 5, None, pytest.approx(1 + 5 / 11))
    assert summary.all.drafts == ServerDrafts(12, 5, None, pytest.approx(1 + 5 / 19))
    assert chat.drafts == ServerDrafts(0, 0, None, 1.0)
    # A server that names it nowhere may have no drafter; one reply without times says nothing of passes.
    assert summarize([told("chat", none)], 1.0).all.drafts == ServerDrafts(None, None, None, None)
    assert summarize([told("code", TIMINGS), told("code", {})], 1.0).all.drafts.acceptance_length == 1 + 5 / 3


def test_a_server_that_falls_silent(monkeypatch):
    from dflash_gguf.bench import server as module

    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BenchError, match="sent nothing for"):
            asked(url)
    assert time.monotonic() - started < 5
