"""A client's messages and tools, as templates of different kinds read them; and what is refused by its field's name."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_gguf import DflashError
from dflash_gguf.runner.chat import ChatTemplate, checked_messages
from dflash_gguf.runner.scores import Scored
from dflash_gguf.serve import logprobs
from dflash_gguf.serve.errors import ApiError
from dflash_gguf.serve.messages import adapted, described, rendered
from dflash_gguf.serve.response_format import schema_of
from dflash_gguf.serve.tools import Offer

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
NOW = {"type": "function", "function": {"name": "now"}}


def call(name: str = "weather", arguments: Any = '{"city":"Köln"}', number: int = 1) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_of(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "a", **function}}


def result(text: str, number: int = 1) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


ASKED = {"role": "user", "content": "how is it?"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [call()]}
TALK = [ASKED, CALLED, result("sunny")]


def template_of(arguments: str, extra: str = "") -> ChatTemplate:
    return ChatTemplate(
        "{% for m in messages %}[{{ m.role }}{{ ' ' + m.name if m.name }}]{{ m.content }}"
        "{% for c in m.tool_calls or [] %}({{ c.function.name }} " + arguments + "){% endfor %}{% endfor %}" + extra
    )


def prompt_of(template: ChatTemplate, messages: list[Any], tools: Any = ()) -> str:
    return rendered(messages, template, lambda found: template.render(checked_messages(found), tools=tools))


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ("{{ c.function.arguments | tojson }}", '{"city": "Köln"}'),
        ("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}", "city=Köln"),
        ("{{ 'json: ' + c.function.arguments }}", 'json: {"city":"Köln"}'),  # fails on an object
        ("{{ c.function.arguments }}", '{"city":"Köln"}'),  # would write an object as Python does
    ],
)
def test_arguments_are_what_the_template_reads(arguments: str, written: str) -> None:
    template = template_of(arguments)
    assert prompt_of(template, TALK) == f"[user]how is it?[assistant](weather {written})[tool weather]sunny"


@pytest.mark.parametrize("given", ["", None, "  ", {}])
def test_a_call_without_arguments(given: Any) -> None:
    template = template_of("{{ c.function.arguments | tojson }}")
    assert "(now {})" in prompt_of(template, [ASKED, {**CALLED, "tool_calls": [call("now", given)]}])


def test_a_template_that_fails_either_way_says_why_it_failed_first() -> None:
    with pytest.raises(DflashError, match="no calls here"):
        prompt_of(template_of("{{ raise_exception('no calls here') }}"), TALK)
    with pytest.raises(DflashError, match="no talk"):
        prompt_of(template_of("{{ raise_exception('no talk') }}", "{{ raise_exception('no talk') }}"), [ASKED])


def test_developers_are_the_system_where_a_template_knows_none() -> None:
    message = {"role": "developer", "content": "be brief"}
    assert adapted([message], ChatTemplate("{{ messages }}"), "object") == [{**message, "role": "system"}]
    assert adapted([message], ChatTemplate("{# developer #}{{ messages }}"), "object") == [message]


@pytest.mark.parametrize("given", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize(("source", "read"), [("m.reasoning_content", "reasoning_content"), ("m.thinking", "thinking")])
def test_thinking_goes_by_the_templates_name(given: str, source: str, read: str) -> None:
    (found,) = adapted([{"role": "assistant", "content": "so", given: "hm"}], ChatTemplate(source), "object")
    assert found == {"role": "assistant", "content": "so", read: "hm"}
    (bare,) = adapted([{"role": "assistant", "content": "so", given: "hm"}], ChatTemplate("{{ m }}"), "object")
    assert bare == {"role": "assistant", "content": "so"}


GPT_OSS = ChatTemplate('{{ m.thinking }} developer {{ m.tool_calls[0] }} {{ "// " + tool.description }}')
OLD_GEMMA = ChatTemplate("{{ m.tool_responses }}")


def test_gpt_oss_gets_one_call_a_message_and_one_kind_of_text() -> None:
    talk = [
        {"role": "assistant", "content": "I look.", "thinking": "hm", "tool_calls": [call(), call("now", "{}", 2)]},
        result("noon", 2),
        result("sunny"),
        ASKED,
    ]
    found = adapted(talk, GPT_OSS, "object")
    assert [message["role"] for message in found] == ["assistant", "tool", "assistant", "tool", "user"]
    assert found[0]["thinking"] == "hm\nI look."
    assert found[0]["content"] == found[2]["content"] == ""
    assert "thinking" not in found[2]
    assert [found[1]["content"], found[3]["content"]] == ["sunny", "noon"]
    assert described([NOW], GPT_OSS)[0]["function"] == {"name": "now", "description": ""}
    assert described([tool_of(name="now", description=None)], GPT_OSS)[0]["function"]["description"] == ""
    assert described([NOW], OLD_GEMMA) == [NOW]


def test_results_of_the_older_gemma_4_stand_in_the_message_that_called() -> None:
    talk = [ASKED, CALLED, result('{"sky": "clear"}'), result("mild"), ASKED]
    _, found, _ = adapted(talk, OLD_GEMMA, "object")
    assert found["tool_responses"] == [
        {"name": "weather", "response": {"sky": "clear"}},
        {"name": "weather", "response": "mild"},
    ]


@pytest.mark.parametrize(
    ("calls", "where"),
    [
        ("call", "tool_calls"),
        (["call"], "tool_calls[0]"),
        ([{"function": {"arguments": "{}"}}], "tool_calls[0]"),
        ([call(), call(arguments="{")], "tool_calls[1].function.arguments"),
        ([call(arguments="[1]")], "tool_calls[0].function.arguments"),
        ([call(arguments=[1])], "tool_calls[0].function.arguments"),
        ([call(arguments="[" * 5000)], "tool_calls[0].function.arguments"),
    ],
)
def test_calls_that_are_none_are_named(calls: Any, where: str) -> None:
    with pytest.raises(ApiError) as caught:
        adapted([ASKED, {**CALLED, "tool_calls": calls}], GPT_OSS, "object")
    assert caught.value.param == f"messages[1].{where}"


def test_tools_are_offered_to_a_template_that_knows_them() -> None:
    offer = Offer.of({"tools": [WEATHER, NOW]})
    assert (offer.listed, offer.forced, offer.many) == ((WEATHER, NOW), (), True)
    assert offer.schemas == {"weather": {"type": "object"}, "now": {}}
    template = template_of("", "{{ tools | length if tools }}")
    assert prompt_of(template, [ASKED], offer.listed) == "[user]how is it?2"
    with pytest.raises(DflashError, match="knows no tools"):
        prompt_of(template_of(""), [ASKED], offer.listed)


def test_what_must_be_called() -> None:
    offered = {"tools": [WEATHER, NOW]}
    assert Offer.of({**offered, "tool_choice": "none"}) == Offer()
    assert Offer.of({**offered, "tool_choice": "required"}).forced == ("weather", "now")
    assert not Offer.of({**offered, "tool_choice": "required", "parallel_tool_calls": False}).many
    named = Offer.of({**offered, "tool_choice": {"type": "function", "function": {"name": "now"}}})
    assert (named.forced, named.many) == (("now",), False)
    assert Offer.of({}) == Offer.of({"tool_choice": "auto"}) == Offer()


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [NOW, {"type": "function"}]}, "tools[1].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "description": 1}}]},
            "tools[0].function.description",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [NOW, NOW]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": {"type": "function", "function": {"name": "then"}}}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": {"type": "function", "function": {"name": ["now"]}}}, "tool_choice"),
        ({"tools": [NOW], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
    ],
)
def test_tools_that_are_none_are_named(values: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        Offer.of(values)
    assert caught.value.param == param


COUNT = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}


def test_what_an_answer_must_be() -> None:
    assert schema_of({"response_format": {"type": "text"}}) is schema_of({}) is None
    assert schema_of({"response_format": {"type": "json_object"}}) == {"type": "object"}
    assert schema_of({"response_format": {"type": "json_object", "schema": COUNT}}) == COUNT
    format_ = {"type": "json_schema", "json_schema": {"name": "count", "schema": COUNT}}
    assert schema_of({"response_format": format_}) == COUNT
    with pytest.raises(ApiError, match="`response_format` and `grammar`"):
        schema_of({"response_format": format_, "grammar": "root ::= [a]"})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "response_format.type"),
        ({"type": "xml"}, "text, json_object or json_schema"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "count"}}, "json_schema.schema"),
        ({"type": "json_object", "schema": [1]}, "response_format.schema"),
        ({"type": "json_schema", "json_schema": {"schema": COUNT, "strict": True}}, "minimum"),
    ],
)
def test_formats_that_are_none_are_named(value: dict[str, Any], says: str) -> None:
    with pytest.raises(ApiError, match=says) as caught:
        schema_of({"response_format": value})
    assert caught.value.param == "response_format"


SPELLING = {1: "ö".encode(), 2: b"\xc3", 3: b"<|im_end|>", 4: b"a"}
SCORES = [Scored(1, -0.5, ((1, -0.5), (2, -float("inf"))), 0), Scored(2, -1.0, (), 1)]


def test_log_probabilities_of_a_chat() -> None:
    first, second = logprobs.of_chat(SCORES, SPELLING.__getitem__)["content"]
    assert (first["token"], first["logprob"], first["bytes"]) == ("ö", -0.5, [195, 182])
    assert first["top_logprobs"][1] == {"token": "bytes:\\xc3", "logprob": -9999.0, "bytes": [195]}
    assert second == {"token": "bytes:\\xc3", "logprob": -1.0, "bytes": [195], "top_logprobs": []}


def test_log_probabilities_of_a_completion() -> None:
    assert logprobs.of_completion(SCORES, SPELLING.__getitem__) == {
        "tokens": ["ö", "bytes:\\xc3"],
        "token_logprobs": [-0.5, -1.0],
        "top_logprobs": [{"ö": -0.5, "bytes:\\xc3": -9999.0}, {}],
        "text_offset": [0, 1],
        "bytes": [[195, 182], [195]],
    }


def test_a_prompt_is_searched_for_a_bounded_number_of_arguments() -> None:
    class Prompt(str):
        __slots__ = ("searches",)

        def __contains__(self, _part: object) -> bool:
            self.searches += 1
            return False

    prompt = Prompt("as JSON")
    prompt.searches = 0
    calls = [call(arguments={"number": number}) for number in range(500)]
    talk = [{"role": "assistant", "tool_calls": calls}] * 4
    assert rendered(talk, ChatTemplate("{{ messages }}"), lambda _: prompt) == "as JSON"
    assert 0 < prompt.searches <= 64
