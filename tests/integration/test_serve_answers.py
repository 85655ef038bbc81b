"""What an answer holds, through the server: calls, thinking, log probabilities, formats; streamed and whole alike."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest
import tiny
from served import serving
from tiny_vocab import CHAT_TEMPLATE

from dflash_gguf import Session

TEMPLATE = (
    '{# <tool_call>{"name": 1, "arguments": 2} <think> #}{{ tools | tojson if tools }}'
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.reasoning_content }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
MUST = {"tool_choice": "required"}
LOOP = {"$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}]}}, "anyOf": [{"$ref": "#/$defs/n"}]}
"""A schema without an end, which libllama finds in its grammar."""
CHAT = "/v1/chat/completions"
ASKED = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory, tiny_drafter):
    """A server of a target that thinks and calls."""
    target = tmp_path_factory.mktemp("target") / "t.gguf"
    tiny.write_target(target, type="Q8_0", extra_keys={"tokenizer.chat_template": TEMPLATE})
    with Session(target, tiny_drafter, n_ctx=512, n_threads=1, depth="fixed") as session, serving(session) as found:
        yield found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """One of a target whose template knows tools, but no way to call them that is read."""
    target = tmp_path_factory.mktemp("target") / "t.gguf"
    keys = {"tokenizer.chat_template": "{{ tools | tojson if tools }}" + CHAT_TEMPLATE}
    tiny.write_target(target, type="Q8_0", extra_keys=keys)
    with Session(target, n_ctx=512, n_threads=1) as session, serving(session) as found:
        yield found


def says(text: str) -> dict[str, Any]:
    """Fields that make the model write ``text``."""
    return {"grammar": f"root ::= {json.dumps(text)}", "temperature": 0, "max_tokens": 200}


def joined(chunks: list[Any]) -> dict[str, Any]:
    """The message that chunks make, as a client joins them."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        for name in ("content", "reasoning_content"):
            message[name] += delta.get(name) or ""
        for part in delta.get("tool_calls", ()):
            if part["index"] == len(message["tool_calls"]):
                message["tool_calls"].append(
                    {"id": part["id"], "type": part["type"], "function": dict(part["function"])}
                )
            else:
                message["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    return message


def without_ids(calls: list[Any]) -> list[Any]:
    return [{name: value for name, value in call.items() if name != "id"} for call in calls]


CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "utc"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "content", "thought", "n_calls"),
    [
        (f"<think>\nhm\n</think>\n\nI look.\n{CALL}\n{CALL}", "I look.", "hm\n", 2),
        (CALL, None, "", 1),
        ("<tool_call>no", "<tool_call>no", "", 0),
    ],
)
def test_calls_streamed_and_whole(served: Any, text: str, content: str | None, thought: str, n_calls: int) -> None:
    fields = {"messages": ASKED, "tools": [NOW], **says(text)}
    whole = served.posted(CHAT, **fields)["choices"][0]
    message = whole["message"]
    assert message["content"] == content
    assert message.get("reasoning_content", "") == thought
    calls = message.get("tool_calls", [])
    assert [call["function"] for call in calls] == [{"name": "now", "arguments": '{"zone": "utc"}'}] * n_calls
    assert whole["finish_reason"] == ("tool_calls" if n_calls else "stop")
    chunks = served.events(CHAT, **fields)
    streamed = joined(chunks)
    assert (streamed["content"] or None, streamed["reasoning_content"]) == (content, thought)
    assert without_ids(streamed["tool_calls"]) == without_ids(calls)
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]


def test_a_call_that_takes_long_does_not_look_like_silence(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"messages": ASKED, "tools": [NOW], **says(CALL)}
    few = served.events(CHAT, **fields)
    assert len(few) == 4  # the role, the call's head, its arguments, the reason
    timed = served.events(CHAT, timings_per_token=True, **fields)
    monkeypatch.setattr("dflash_gguf.serve.completions.LONGEST_SILENCE", 0.0)
    for chunks in (timed, served.events(CHAT, **fields)):
        assert len(chunks) > len(few) + 3
        assert without_ids(joined(chunks)["tool_calls"]) == without_ids(joined(few)["tool_calls"])
    assert all("timings" in chunk for chunk in timed[1:])


def test_a_call_and_its_result_go_into_the_next_prompt(served: Any) -> None:
    called = served.posted(CHAT, messages=ASKED, tools=[NOW], **says(CALL))["choices"][0]["message"]
    (call,) = called["tool_calls"]
    talk = [*ASKED, called, {"role": "tool", "tool_call_id": call["id"], "content": "noon"}]
    answer = served.posted(CHAT, messages=talk, tools=[NOW], **says("It is noon."))
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "It is noon."}


def test_a_call_that_must_be_made(served: Any) -> None:
    fields = {"tool_choice": {"type": "function", "function": {"name": "now"}}, "temperature": 0, "max_tokens": 300}
    tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
    # Kept from thinking, for the model has no sense and might do so for ever.
    bias = {str(token): -50 for token in served.posted("/tokenize", content="<think>")["tokens"]}
    found = served.posted(CHAT, messages=ASKED, tools=[tool], logit_bias=bias, **fields)["choices"][0]
    assert [call["function"]["name"] for call in found["message"]["tool_calls"]] == ["now"]
    assert found["finish_reason"] == "tool_calls"
    error = served.refused(CHAT, messages=ASKED, tools=[tool], grammar="root ::= [a]", **fields)
    assert error["param"] == "tool_choice"


def test_a_template_whose_calls_are_not_read(plain: Any) -> None:
    answer = plain.posted(CHAT, messages=ASKED, tools=[NOW], **says(CALL))
    assert answer["choices"][0]["message"]["content"] == CALL
    assert "left in the text" in answer["warnings"][0]
    assert plain.events(CHAT, messages=ASKED, tools=[NOW], **says(CALL))[-1]["warnings"] == answer["warnings"]
    assert plain.refused(CHAT, messages=ASKED, tools=[NOW], tool_choice="required")["param"] == "tool_choice"


@pytest.mark.parametrize("speculative", [True, False])
def test_log_probabilities_are_of_the_text(served: Any, speculative: bool) -> None:
    fields = {"messages": ASKED, "max_tokens": 24, "temperature": 0.8, "seed": 4, "speculative": speculative}
    fields |= {"logprobs": True, "top_logprobs": 3, "stop": ["e"]}
    whole = served.posted(CHAT, **fields)
    choice, used = whole["choices"][0], whole["usage"]["completion_tokens"]
    entries = choice["logprobs"]["content"]
    data = bytes(byte for entry in entries for byte in entry["bytes"])
    assert data.decode("utf-8", "replace").startswith(choice["message"]["content"])
    assert len(entries) <= used
    assert all(len(entry["top_logprobs"]) == 3 and entry["logprob"] <= 0 for entry in entries)
    assert all(entry["top_logprobs"][0]["logprob"] >= entry["logprob"] for entry in entries)
    chunks = served.events(CHAT, **fields)
    streamed = [entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert streamed == entries


def test_log_probabilities_of_thinking_and_calls_are_told_too(served: Any) -> None:
    text = f"<think>hm</think>{CALL}"
    chunks = served.events(CHAT, messages=ASKED, tools=[NOW], logprobs=True, **says(text))
    found = [entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert bytes(byte for entry in found for byte in entry["bytes"]).decode() == text
    assert all(entry["top_logprobs"] == [] for entry in found)


def test_log_probabilities_of_a_completion(served: Any) -> None:
    fields = {"prompt": "one", "max_tokens": 12, "temperature": 0, "logprobs": 2}
    choice = served.posted("/v1/completions", **fields)["choices"][0]
    found = choice["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == len(found["bytes"]) == 12
    assert bytes(chain.from_iterable(found["bytes"])).decode("utf-8", "replace") == choice["text"]
    assert found["text_offset"] == sorted(found["text_offset"])
    assert found["text_offset"][0] == 0
    chunks = [chunk["choices"][0] for chunk in served.events("/v1/completions", **fields)]
    assert [name for chunk in chunks if chunk["logprobs"] for name in chunk["logprobs"]["tokens"]] == found["tokens"]
    assert served.posted("/v1/completions", prompt="one", max_tokens=2)["choices"][0]["logprobs"] is None


def test_formats(served: Any) -> None:
    format_ = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"enum": ["one", 2]}}}
    fields = {"response_format": format_, "temperature": 0, "max_tokens": 40}
    choice = served.completion("one", **fields)["choices"][0]
    assert json.loads(choice["text"]) in ("one", 2)
    bias = {str(token): -100 for token in served.posted("/tokenize", content="<think>")["tokens"][:1]}
    message = served.chat("hi", **fields, logit_bias=bias)["choices"][0]["message"]
    assert json.loads(message["content"]) in ("one", 2)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [NOW], "tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "json_schema": {}}, "response_format"),
        ({"response_format": {"type": "json_object", "schema": LOOP}}, "response_format"),
        ({"tools": [{"type": "function", "function": {"name": "now", "parameters": LOOP}}], **MUST}, "tools"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"messages": [*ASKED, {"role": "assistant", "tool_calls": [1]}]}, "messages[1].tool_calls[0]"),
    ],
)
def test_wrong_values_are_named(served: Any, fields: dict[str, Any], param: str) -> None:
    assert served.refused(CHAT, **{"messages": ASKED, **fields})["param"] == param


def test_the_prompts_tokens_have_no_log_probabilities(served: Any) -> None:
    assert served.refused("/v1/completions", prompt="a", echo=True, logprobs=1)["param"] == "logprobs"


def test_what_a_template_does_not_read_is_left_out(served: Any) -> None:
    answer = served.chat("hi", chat_template_kwargs={"enable_thinking": False}, **says("so"))
    assert answer["choices"][0]["message"]["content"] == "so"
