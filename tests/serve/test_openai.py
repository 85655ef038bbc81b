"""OpenAI's own client: what it asks for and gets, streamed and whole, and the exceptions that our errors become."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
import tiny
from live import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from live import Live

COUNT = [{"role": "user", "content": "Count from 1 to 30."}]
SAMPLED = {"temperature": 0.7, "seed": 11, "max_tokens": 48}
GREEDY = {"temperature": 0, "max_tokens": 48}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Rome"}}\n</tool_call>'
SPOKEN = "root ::= " + json.dumps(CALL)
"""A tiny model says nothing that makes sense, but a grammar has it say this."""


def client_of(live: Live, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=live.v1, api_key=key, max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def client(demo: Live) -> Iterator[openai.OpenAI]:
    with client_of(demo) as found:
        yield found


@pytest.fixture(scope="module")
def tools(small: Live) -> Iterator[openai.OpenAI]:
    with client_of(small) as found:
        yield found


def streamed(stream: Any) -> tuple[str, str | None, Any]:
    """The text, the reason for which it ended, and the usage."""
    text, reason, usage = "", None, None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
        usage = chunk.usage or usage
    return text, reason, usage


@pytest.mark.parametrize("settings", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
def test_a_streamed_chat_and_a_whole_one_are_equal(client: openai.OpenAI, settings: dict[str, Any]) -> None:
    whole = client.chat.completions.create(model="demo", messages=COUNT, **settings)
    stream = client.chat.completions.create(
        model="demo", messages=COUNT, **settings, stream=True, stream_options={"include_usage": True}
    )
    text, reason, usage = streamed(stream)
    assert text == whole.choices[0].message.content != ""
    assert reason == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens > 20
    assert usage.prompt_tokens == whole.usage.prompt_tokens


@pytest.mark.parametrize("settings", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
def test_the_text_is_the_same_without_drafts(client: openai.OpenAI, settings: dict[str, Any]) -> None:
    found = [
        client.chat.completions.create(model="demo", messages=COUNT, **settings, extra_body={"speculative": switch})
        for switch in (True, False)
    ]
    drafted, alone = (each.choices[0].message.content for each in found)
    assert drafted == alone
    assert found[0].timings["draft_n"] > 0
    assert found[0].timings["draft_n_accepted"] > 0
    assert found[1].timings["draft_n"] == 0


def test_completions_streamed_and_whole(client: openai.OpenAI) -> None:
    ask = {"model": "demo", "prompt": "1, 2, 3, 4, 5,", **GREEDY, "stop": [" 20"]}
    whole = client.completions.create(**ask)
    chunks = list(client.completions.create(**ask, stream=True))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    assert whole.choices[0].text.startswith(" 6, 7, 8")
    assert client.completions.create(**ask, echo=True).choices[0].text == ask["prompt"] + whole.choices[0].text


def test_a_stop_ends_the_text_before_it(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="demo", messages=COUNT, **GREEDY, stop=["\n5"])
    assert whole.choices[0].message.content == "1. 1\n2. 2\n3. 3\n4. 4"
    assert whole.choices[0].finish_reason == "stop"


def test_the_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_an_answer_in_a_schema_parses(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": schema}}
    ask = {"model": "demo", "messages": [{"role": "user", "content": "A city as JSON."}], "temperature": 0}
    whole = client.chat.completions.create(**ask, max_tokens=80, response_format=form)
    found = json.loads(whole.choices[0].message.content)
    assert set(found) == {"city", "people"}
    assert isinstance(found["people"], int)
    stream = client.chat.completions.create(**ask, max_tokens=80, response_format=form, stream=True)
    assert streamed(stream)[0] == whole.choices[0].message.content


def test_any_json_object(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": "Your name as JSON, short."}],
        temperature=0,
        max_tokens=60,
        response_format={"type": "json_object"},
    )
    text = whole.choices[0].message.content
    assert text.startswith("{")
    if whole.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


def test_log_probabilities_are_of_the_tokens_of_the_text(client: openai.OpenAI) -> None:
    ask = {"model": "demo", "messages": COUNT, **GREEDY, "logprobs": True, "top_logprobs": 3}
    whole = client.chat.completions.create(**ask)
    tokens = whole.choices[0].logprobs.content
    assert "".join(token.token for token in tokens) == whole.choices[0].message.content
    assert len(tokens) == whole.usage.completion_tokens
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.logprob == max(top.logprob for top in token.top_logprobs) <= 0
        assert token.token == token.top_logprobs[0].token
    chunks = list(client.chat.completions.create(**ask, stream=True))
    found = [
        token.token
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs
        for token in choice.logprobs.content
    ]
    assert found == [token.token for token in tokens]


def test_a_call_is_a_call_streamed_and_whole(tools: openai.OpenAI) -> None:
    ask = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "How is Rome?"}],
        "tools": [WEATHER],
        "max_tokens": 200,
        "extra_body": {"grammar": SPOKEN},
    }
    whole = tools.chat.completions.create(**ask).choices[0]
    assert whole.finish_reason == "tool_calls"
    (call,) = whole.message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"place": "Rome"}
    assert not whole.message.content
    with tools.chat.completions.stream(**ask) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.tool_calls[0].function.arguments == call.function.arguments


def test_what_a_function_said_goes_back_into_the_chat(tools: openai.OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Rome"}'}}
    found = tools.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "user", "content": "How is Rome?"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ],
        tools=[WEATHER],
        max_tokens=4,
    )
    assert found.usage.completion_tokens == 4


def test_without_functions_a_call_is_text(tools: openai.OpenAI) -> None:
    found = tools.chat.completions.create(
        model="tiny", messages=COUNT, max_tokens=200, extra_body={"grammar": SPOKEN}
    ).choices[0]
    assert found.message.content == CALL
    assert found.message.tool_calls is None


WRONG = {
    "temperature": {"temperature": "hot"},
    "max_tokens": {"max_tokens": 1.5},
    "top_p": {"top_p": 3},
    "n": {"n": 2},
    "messages": {"messages": []},
    "logit_bias": {"logit_bias": {"x": 1}},
    "stop": {"stop": 5},
    "seed": {"seed": -7},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_a_bad_request_that_names_its_field(client: openai.OpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": "demo", "messages": COUNT} | WRONG[name])
    assert caught.value.param == name
    assert caught.value.type == "invalid_request_error"
    assert name in str(caught.value)


def test_a_prompt_that_is_too_long_is_told_by_how_much(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="demo", prompt=[100] * 2148)
    assert caught.value.code == "context_length_exceeded"
    assert "100 more than the context of 2048 holds" in str(caught.value)


def test_a_wrong_key_is_an_authentication_error_and_the_right_one_is_not(locked: Live) -> None:
    for key in ("wrong", "a key2", "A KEY"):
        with client_of(locked, key) as client, pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(model="locked", messages=COUNT)
    with client_of(locked, "a key") as client:
        found = client.chat.completions.create(model="locked", messages=COUNT, max_tokens=2)
    assert found.usage.completion_tokens == 2


def test_an_answer_that_takes_too_long_is_not_asked_for_again(tmp_path: Path) -> None:
    target = tiny.write_target(tmp_path / "target.gguf", type="Q8_0")
    with serving("-m", target, "--no-draft", "-c", 60000, "--timeout", 0.3) as live, client_of(live) as client:
        with pytest.raises(openai.InternalServerError) as told:
            client.with_options(max_retries=2).completions.create(model="tiny", prompt="x")
        assert (told.value.status_code, told.value.code) == (504, "timeout")
        assert told.value.request.headers["x-stainless-retry-count"] == "0"


def test_unknown_fields_are_ignored_and_unknown_routes_are_not_found(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model="demo", messages=COUNT, max_tokens=1, store=False, user="me", extra_body={"best_thing": [1]}
    )
    assert found.usage.completion_tokens == 1
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="demo", input="text")


def test_a_client_that_leaves_a_stream_frees_the_server(client: openai.OpenAI, demo: Live) -> None:
    stream = client.chat.completions.create(model="demo", messages=COUNT, temperature=0, stream=True)
    next(iter(stream))
    stream.close()
    assert demo.text("Hi", max_tokens=1, temperature=0)
