"""The server over a real session: what it answers is what the session writes, in OpenAI's shapes."""

from __future__ import annotations

import json
import socket

import pytest
from served import serving

from dflash_gguf import Session
from dflash_gguf.runner.generation import Finished, Text

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def pair(tiny_target, tiny_drafter):
    """Passes below 64 rows of Q8_0: the text depends neither on drafts nor on what is kept of a prompt."""
    with Session(
        tiny_target, tiny_drafter, n_ctx=512, n_ubatch=48, n_threads=1, flash_attention="on", depth="fixed"
    ) as session:
        yield session


@pytest.fixture(scope="module")
def served(pair):
    with serving(pair) as found:
        yield found


def said(session, prompt, **options):
    """(text, drafted spans, end) of the session itself; the server must be idle."""
    text, drafted = "", []
    for event in session.generate(prompt, **options):
        if isinstance(event, Text):
            for start, end in event.drafted:
                drafted.append((len(text) + start, len(text) + end))
            text += event.text
        if isinstance(event, Finished):
            return text, joined(drafted), event
    raise AssertionError("no end")


def joined(spans):
    found = []
    for start, end in spans:
        touches = bool(found) and found[-1][1] == start
        found.append((found.pop()[0] if touches else start, end))
    return found


def streamed(events):
    """(text, drafted spans) of chunks."""
    text, drafted = "", []
    for event in events:
        for choice in event["choices"]:
            drafted += [(len(text) + start, len(text) + end) for start, end in choice.get("drafted", ())]
            text += choice["text"] if "text" in choice else choice["delta"].get("content", "")
    return text, joined(drafted)


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_whole_and_streamed_are_what_the_session_writes(served, pair, temperature):
    messages = [{"role": "user", "content": "Tell me."}]
    options = {"max_tokens": 40, "temperature": temperature, "seed": 7}
    expected, drafted, end = said(pair, messages, **options)
    whole = served.posted(CHAT, messages=messages, return_drafted=True, **options)
    choice = whole["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": expected}
    assert (choice["finish_reason"], choice["index"]) == (end.reason, 0)
    assert [tuple(span) for span in choice["drafted"]] == drafted
    assert whole["usage"]["completion_tokens"] == end.stats.predicted_n
    assert whole["object"] == "chat.completion"
    events = served.events(CHAT, messages=messages, return_drafted=True, **options)
    assert streamed(events) == (expected, drafted)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * (len(events) - 1) + [end.reason]
    assert {(event["object"], event["id"]) for event in events} == {("chat.completion.chunk", events[0]["id"])}


def test_without_drafts_the_text_is_the_same(served):
    answers = [served.chat("Go on.", max_tokens=40, seed=3, speculative=alone) for alone in (True, False, True)]
    assert len({answer["choices"][0]["message"]["content"] for answer in answers}) == 1
    assert [answer["timings"]["draft_n"] > 0 for answer in answers] == [True, False, True]
    assert answers[1]["timings"]["drafter"] is None
    assert answers[1]["timings"]["verify_calls"] == answers[1]["usage"]["completion_tokens"] - 1


def test_what_two_prompts_share_is_not_read_again(served):
    served.chat("Once upon a time", max_tokens=4, cache_prompt=False)
    again = served.chat("Once upon a time", max_tokens=4)
    n_prompt = again["usage"]["prompt_tokens"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["timings"]["cache_n"] == n_prompt - 1
    assert served.chat("Once upon a time", max_tokens=4, cache_prompt=False)["timings"]["cache_n"] == 0


def test_completions_of_text_ids_and_a_list(served, pair):
    ids = pair.tokenize("hello there", raw=True)
    expected = said(pair, ids, max_tokens=20, temperature=0)[0]
    for prompt in ("hello there", ids, ["hello there"]):
        answer = served.completion(prompt, max_tokens=20, temperature=0)
        assert answer["choices"][0]["text"] == expected
        assert answer["object"] == "text_completion"
        assert answer["usage"]["prompt_tokens"] == len(ids)
    assert streamed(served.events(COMPLETION, prompt=ids, max_tokens=20, temperature=0))[0] == expected
    for echoed in (
        served.completion("hello there", max_tokens=20, temperature=0, echo=True)["choices"][0]["text"],
        streamed(served.events(COMPLETION, prompt="hello there", max_tokens=20, temperature=0, echo=True))[0],
    ):
        assert echoed == "hello there" + expected
    ids = served.posted("/tokenize", content="é漢")["tokens"]
    assert len(ids) > 2, "characters of several tokens"
    assert served.completion(ids, max_tokens=0, echo=True)["choices"][0]["text"] == "é漢"


def test_the_limits_of_an_answer(served, pair):
    answer = served.completion("hello", max_tokens=0)
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("", "length")
    assert served.chat("hello", max_tokens=9, max_completion_tokens=3)["usage"]["completion_tokens"] == 3
    text = served.completion("hello", max_tokens=30, temperature=0)["choices"][0]["text"]
    for stop in (text[7:9], ["~~~~", text[7:9]]):
        answer = served.completion("hello", max_tokens=30, temperature=0, stop=stop)
        assert answer["choices"][0]["text"] == text[: text.find(text[7:9])]
        assert answer["choices"][0]["finish_reason"] == "stop"
    # A prompt that fills the context has room for the one token that follows it.
    full = served.completion([8] * pair.n_ctx)
    assert (full["usage"]["completion_tokens"], full["choices"][0]["finish_reason"]) == (1, "length")
    error = served.refused(COMPLETION, prompt=[8] * (pair.n_ctx + 1))
    assert "1 more than the context of 512 holds" in error["message"]


def test_settings_of_the_choice_reach_the_sampler(served, pair):
    ids = pair.tokenize("hello", raw=True)
    first = next(event for event in pair.generate(ids, max_tokens=1, temperature=0) if not isinstance(event, Text))
    banned = served.completion(ids, max_tokens=5, temperature=0, logit_bias={str(first.tokens[0]): -100})
    assert banned["choices"][0]["text"] != served.completion(ids, max_tokens=5, temperature=0)["choices"][0]["text"]
    options = {"temperature": 0.9, "top_k": 7, "top_p": 0.9, "min_p": 0.01, "presence_penalty": 0.5, "seed": 5}
    expected = said(pair, ids, max_tokens=20, **options)[0]
    assert served.completion(ids, max_tokens=20, **options)["choices"][0]["text"] == expected
    grammar = 'root ::= "a" "b"*'
    text = served.completion(ids, max_tokens=8, grammar=grammar)["choices"][0]["text"]
    assert text[0] == "a"
    assert set(text[1:]) <= {"b"}
    seeds = {served.completion(ids, max_tokens=2, seed=-1)["timings"]["seed"] for _ in range(3)}
    assert len(seeds) == 3


def test_the_last_chunks_of_a_stream(served):
    *chunks, last = served.events(
        CHAT,
        messages=[{"role": "user", "content": "x"}],
        max_tokens=9,
        stream_options={"include_usage": True},
        return_meta_info=True,
        timings_per_token=True,
    )
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 9)
    assert chunks[-1]["timings"]["predicted_n"] == 9
    assert chunks[-1]["meta_info"]["completion_tokens"] == 9
    counts = [chunk["timings"]["predicted_n"] for chunk in chunks[1:]]
    assert counts == sorted(counts)
    assert counts[0] >= 1


def test_meta_info_is_what_the_timings_say(served):
    answer = served.chat("x", max_tokens=30, return_meta_info=True)
    meta, timings = answer["meta_info"], answer["timings"]
    assert meta["spec_verify_ct"] == timings["verify_calls"]
    assert meta["spec_accept_length"] == timings["acceptance_length"] >= 1
    assert "meta_info" not in served.chat("x", max_tokens=1)
    assert "spec_verify_ct" not in served.chat("x", max_tokens=2, return_meta_info=True, speculative=False)["meta_info"]


def test_the_metrics_add_up(served):
    before = served.metrics()
    answers = [served.chat("Count.", max_tokens=30, seed=n, speculative=n > 0) for n in range(3)]
    after = served.metrics()
    gained = {name: value - before.get(name, 0.0) for name, value in after.items()}
    timings = [answer["timings"] for answer in answers]

    def total(name):
        return sum(one[name] for one in timings)

    labels = '{engine="0",model_name="tiny"}'
    for prefix, suffix in (("llamacpp", ""), ("vllm", labels)):
        assert gained[f"{prefix}:spec_decode_num_draft_tokens_total{suffix}"] == total("draft_n") > 0
        assert gained[f"{prefix}:spec_decode_num_accepted_tokens_total{suffix}"] == total("draft_n_accepted")
        assert gained[f"{prefix}:spec_decode_num_drafts_total{suffix}"] == sum(one["drafted_at"][0] for one in timings)
    for i in range(7):
        name = f'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}}'
        assert gained[name] == sum(one["accepted_at"][i] for one in timings)
        assert gained[name.replace("llamacpp", "vllm").replace("{", f"{labels[:-1]},")] == gained[name]
    assert gained["llamacpp:tokens_predicted_total"] == gained[f"vllm:generation_tokens_total{labels}"] == 90
    assert gained["llamacpp:prompt_tokens_total"] == total("prompt_n")
    assert gained["llamacpp:prompt_tokens_cached_total"] == total("cache_n")
    assert gained[f"vllm:prompt_tokens_total{labels}"] == total("prompt_n") + total("cache_n")
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_decode_time"):
        assert gained[f"vllm:{name}_seconds_count{labels}"] == 3
    assert gained['vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}'] == 3


def test_models_health_and_the_document(served, pair):
    (model,) = served.client.get("/v1/models").json()["data"]
    assert (model["id"], model["meta"]["n_ctx"], model["meta"]["drafter"]) == ("tiny", pair.n_ctx, "DFlash 2")
    assert served.client.get("/v1/models/tiny").json() == model
    missing = served.client.get("/v1/models/other")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert served.client.get("/health").json() == {"status": "ok"}
    document = served.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for path, methods in document["paths"].items():
        for method in methods:
            answer = served.client.request(method, path.replace("{model}", "tiny"), json={})
            assert str(answer.status_code) in methods[method]["responses"], (path, method)


def test_tokens_of_text_and_text_of_tokens(served, pair):
    text = "héllo <|im_end|>"
    ids = served.posted("/tokenize", content=text)["tokens"]
    assert ids == pair.vocabulary.tokenize(text, add_special=False, parse_special=True)
    assert served.posted("/detokenize", tokens=ids)["content"] == text
    pieces = served.posted("/tokenize", content=text, with_pieces=True, parse_special=False)["tokens"]
    assert b"".join(bytes(p) if isinstance(p, list) else p.encode() for p in (one["piece"] for one in pieces)) == (
        text.encode()
    )
    assert served.refused("/detokenize", tokens=[10**6])["param"] == "tokens"
    assert served.refused("/tokenize", content="\ud800")["param"] == "content"


MESSAGES = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {}, "messages"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": ["x"]}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": 3}]}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        (COMPLETION, {}, "prompt"),
        (COMPLETION, {"prompt": []}, "prompt"),
        (COMPLETION, {"prompt": ["a", "b"]}, "prompt"),
        (COMPLETION, {"prompt": [1, "b"]}, "prompt"),
        (COMPLETION, {"prompt": [-1]}, "prompt"),
        (COMPLETION, {"prompt": [10**6]}, "prompt"),
        (COMPLETION, {"prompt": "\ud800"}, "prompt"),
        (COMPLETION, {"prompt": ""}, "prompt"),
        (COMPLETION, {"prompt": "x", "suffix": "y"}, "suffix"),
        (COMPLETION, {"prompt": "x", "best_of": 2}, "best_of"),
        *(
            (CHAT, {"messages": MESSAGES, name: value}, name)
            for name, value in [
                ("model", 3),
                ("max_tokens", "5"),
                ("max_tokens", 1.5),
                ("max_tokens", -2),
                ("max_completion_tokens", True),
                ("temperature", "hot"),
                ("temperature", -1),
                ("temperature", True),
                ("top_p", 1.1),
                ("min_p", -0.1),
                ("top_k", 2.5),
                ("frequency_penalty", []),
                ("presence_penalty", 1e9),
                ("logit_bias", [1]),
                ("logit_bias", {"x": 1}),
                ("logit_bias", {"1": 101}),
                ("logit_bias", {"1": None}),
                ("seed", -2),
                ("seed", 1 << 64),
                ("stop", 5),
                ("stop", ["a", 5]),
                ("stop", ["a"] * 33),
                ("stop", ["a" * 1025]),
                ("n", 2),
                ("n", True),
                ("stream", "yes"),
                ("stream_options", True),
                ("speculative", 1),
                ("chat_template_kwargs", []),
                ("grammar", 3),
                ("json_schema", 3),
            ]
        ),
    ],
)
def test_a_wrong_value_is_told_by_its_fields_name(served, path, body, param):
    error = served.refused(path, **body)
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"3", b'"x"', b"null", b"\xff", b'{"prompt": NaN}', b'{"a":1}x'),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"9" * 5000, id="long number"),
    ],
)
def test_what_is_no_json_object_is_refused(served, body):
    answer = served.client.post(COMPLETION, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_constant_that_json_has_not_is_named(served, constant):
    answer = served.client.post(COMPLETION, content=f'{{"prompt": "x", "temperature": {constant}}}')
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == (
        f"the body is no JSON: it has no constant `{constant}`; write a number, or null"
    )


def test_special_tokens_that_a_message_spells_are_read_as_such(served):
    """As by llama-server."""
    counts = [served.chat(text, max_tokens=1)["usage"]["prompt_tokens"] for text in ("a", "a<|im_end|>")]
    assert counts[1] - counts[0] == 1


def test_a_client_that_shuts_its_sending_side_has_left(served):
    body = b'{"prompt": "x", "max_tokens": 400}'  # long enough for the server to see it
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    url = served.client.base_url
    with socket.create_connection((url.host, url.port), timeout=30) as client:
        client.sendall(head + body)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


@pytest.mark.parametrize("n", [60_000, 200_000])
def test_a_large_body_is_read_aside(served, n):
    error = served.refused(COMPLETION, prompt=[8] * n)
    assert error["n_prompt_tokens"] == n
    assert served.refused(COMPLETION, prompt=[8] * n, temperature="x")["param"] == "temperature"
    assert served.refused(CHAT, messages=[{"role": "user", "content": "hello there " * n}])["code"] == (
        "context_length_exceeded"
    )


def test_what_is_unknown_or_null_is_ignored(served):
    odd = {"user": "me", "store": False, "x": [1, {"y": None}], "temperature": None, "stop": None, "seed": None}
    assert served.chat("x", max_tokens=3.0, model="gpt-4o", **odd)["model"] == "tiny"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", CHAT, 405), ("PUT", "/health", 405), ("GET", "/v1/models/../../etc/passwd", 404)],
)
def test_routes_that_are_not_there(served, method, path, status):
    answer = served.client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}


def test_a_sampler_that_cannot_be_made_is_the_requests_fault(served):
    for stream in (True, False):
        answer = served.client.post(COMPLETION, json={"prompt": "x", "grammar": "root ::= (", "stream": stream})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "grammar"
    assert served.completion("x", max_tokens=1)["usage"]["completion_tokens"] == 1
    banned = {str(token): -100 for token in range(512)}
    assert served.refused(COMPLETION, prompt="x", logit_bias=banned)["param"] == "logit_bias"
    assert served.refused(COMPLETION, prompt="x", logit_bias={"512": 1})["param"] == "logit_bias"
    assert (
        served.refused(COMPLETION, prompt="x", json_schema={"type": "string", "pattern": "("})["param"] == "json_schema"
    )
    large = {"enum": [f"{number:060}" for number in range(4000)]}
    assert served.refused(COMPLETION, prompt="x", json_schema=large)["param"] == "json_schema"
    breakers = {"dry_multiplier": 1, "dry_sequence_breakers": [""]}
    assert served.refused(COMPLETION, prompt="x", **breakers)["param"] == "dry_sequence_breakers"
    schema = {"type": "json_object", "schema": {"type": "string", "pattern": "^\\d$"}}
    assert served.refused(COMPLETION, prompt="x", response_format=schema)["param"] == "response_format"


def test_a_requests_grammar_stands_for_the_servers(pair):
    with serving(pair, defaults={"grammar": 'root ::= "a"+'}) as served:
        assert set(served.completion("x", max_tokens=5)["choices"][0]["text"]) == {"a"}
        schema = {"enum": [3]}
        assert served.completion("x", max_tokens=5, json_schema=schema)["choices"][0]["text"] == "3"
        assert set(served.completion("x", max_tokens=5, grammar='root ::= "b"+')["choices"][0]["text"]) == {"b"}


def test_half_a_surrogate_pair_in_a_field_is_quoted_safely(served):
    answer = served.client.post(
        CHAT, content=b'{"messages": [{"role": "user", "content": "x"}], "temperature": "\\ud800"}'
    )
    assert json.loads(answer.content)["error"]["param"] == "temperature"
