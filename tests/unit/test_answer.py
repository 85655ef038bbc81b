"""What an answer says, thinks and calls, wherever its text is cut; and what is no call stays text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_gguf.runner import thinking
from dflash_gguf.serve import tool_calls
from dflash_gguf.serve.answer import AnswerParser
from dflash_gguf.serve.deltas import Delta, message_of

HERMES = '<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>'
QWEN3 = f"{HERMES} {{{{ '<think>' }}}}"
QWEN35 = "<think> <tool_call>\\n<function=example>\\n<parameter=example>"
CODER = "<tool_call>\\n<function=example>\\n<parameter=example>"
GPT_OSS = "<|start|>assistant<|channel|>final<|message|> to=functions."
GEMMA = "'<|tool_call>call:' + name <|channel>thought"
PLAIN = "{{ messages }}"

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "metric": {"type": "boolean"},
        "near": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "tags": {"type": "array"},
        "any": {},
        "zone": {"$ref": "#/$defs/zone"},
    },
    "$defs": {"zone": {"type": "object"}},
}
TOOLS = {"weather": WEATHER, "now": {}}


def answer(
    template: str, text: str, cuts: list[int] | None = None, tools: Any = TOOLS, prompt: str = ""
) -> dict[str, Any]:
    """The whole message, its calls as (name, arguments)."""
    parser = AnswerParser(template, prompt, tools)
    places = sorted(min(cut, len(text)) for cut in cuts or [])
    deltas: list[Delta] = []
    for a, b in zip([0, *places], [*places, len(text)], strict=True):
        deltas += parser.feed(text[a:b])
    message = message_of([*deltas, *parser.end()])
    calls = message.pop("tool_calls", [])
    assert parser.n_calls == len(calls)
    assert parser.reason("stop") == ("tool_calls" if calls else "stop")
    assert len({call["id"] for call in calls}) == len(calls)
    message["calls"] = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
    return message


JSON_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln", "days": 2}}\n</tool_call>'
KOELN = ("weather", {"city": "Köln", "days": 2})
NOW = ("now", {})
XML_CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"
)
GEMMA_CALL = '<|tool_call>call:weather{city:<|"|>Köln<|"|>,days:2}<tool_call|>'
HARMONY_CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Köln", "days": 2}'
ANALYSIS = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"

CASES = [
    (HERMES, "Hello", "Hello", "", []),
    (HERMES, f"One moment.\n\n{JSON_CALL}", "One moment.", "", [KOELN]),
    (HERMES, f"{JSON_CALL}\n{JSON_CALL}\n", None, "", [KOELN, KOELN]),
    (HERMES, f"{JSON_CALL} Done.", "Done.", "", [KOELN]),
    (QWEN3, f"<think>\nhm\n</think>\n\n{JSON_CALL}", None, "hm\n", [KOELN]),
    (QWEN3, f"<think>{JSON_CALL}</think>so", "so", JSON_CALL, []),  # it only thinks of a call
    (HERMES, '<tool_call>{"name": "now"}', None, "", [NOW]),  # the closing mark is missing
    (HERMES, '<tool_call>{"arguments": "{\\"a\\": 1}", "name": "now"}</tool_call>', None, "", [("now", {"a": 1})]),
    (
        HERMES,
        '<tool_call>{"name": "now", "arguments": {"a": "</tool_call>"}}</tool_call>',
        None,
        "",
        [("now", {"a": "</tool_call>"})],
    ),
    (HERMES, f"<tool_call>oh {JSON_CALL}", "<tool_call>oh", "", [KOELN]),
    (HERMES, f"{JSON_CALL}</tool_call>\n", None, "", [KOELN]),
    (QWEN35, f"hm\n</think>\n\n{XML_CALL}", None, "hm\n", [KOELN]),
    (QWEN35, f"hm\n\n{XML_CALL}", None, "hm", [KOELN]),  # the call ends the thinking
    (CODER, f"{XML_CALL}\n{XML_CALL}", None, "", [KOELN, KOELN]),
    (CODER, XML_CALL.removeprefix("<tool_call>\n"), None, "", [KOELN]),
    (CODER, "<tool_call><function=now></function></tool_call>", None, "", [NOW]),
    (
        CODER,
        "<function=weather><parameter=city>\n</parameter>\n<tool_call>\n\n</parameter></function>",
        None,
        "",
        [("weather", {"city": "</parameter>\n<tool_call>\n"})],
    ),
    (GPT_OSS, f"{ANALYSIS}{HARMONY_CALL}", None, "hm", [KOELN]),
    (
        GPT_OSS,
        ' to=functions.weather<|channel|>analysis<|message|>{"city": "Köln", "days": 2}',
        None,
        "",
        [KOELN],
    ),
    (GPT_OSS, "<|channel|>commentary to=functions.now<|message|>", None, "", [NOW]),
    (GPT_OSS, f"{HARMONY_CALL}<|end|><|start|>assistant{HARMONY_CALL}", None, "", [KOELN, KOELN]),
    (GPT_OSS, f"{ANALYSIS}<|channel|>commentary<|message|>I look.<|end|>{HARMONY_CALL}", "I look.", "hm", [KOELN]),
    (GPT_OSS, f"{ANALYSIS}<|channel|>final<|message|>so", "so", "hm", []),
    (GPT_OSS, "so", "so", "", []),  # without any header
    (GEMMA, GEMMA_CALL, None, "", [KOELN]),
    (GEMMA, f"Yes.{GEMMA_CALL}{GEMMA_CALL}", "Yes.", "", [KOELN, KOELN]),
    (GEMMA, f"<|channel>thought\nhm\n<channel|>{GEMMA_CALL}", None, "hm\n", [KOELN]),
    (GEMMA, f"<|channel>thought\nhm{GEMMA_CALL}", None, "hm", [KOELN]),
    (
        GEMMA,
        '<|tool_call>call:now{a:{b:[1,-2.5e1,true,null],<|"|>c d<|"|>:<|"|><tool_call|>"}<|"|>}, e: "f"}<tool_call|>',
        None,
        "",
        [("now", {"a": {"b": [1, -25.0, True, None], "c d": '<tool_call|>"}'}, "e": "f"})],
    ),
    (GEMMA, "<|tool_call>call:now{}<tool_call|>", None, "", [NOW]),
    (PLAIN, JSON_CALL, JSON_CALL, "", []),
]


@pytest.mark.parametrize(("template", "text", "content", "reasoning", "calls"), CASES)
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 200), max_size=12))
def test_the_message_of_an_answer(
    template: str, text: str, content: str | None, reasoning: str, calls: list[Any], cuts: list[int]
) -> None:
    prompt = "<|im_start|>assistant\n<think>\n" if template is QWEN35 else ""
    message = answer(template, text, cuts, prompt=prompt)
    assert message["content"] == content
    assert message.get("reasoning_content", "") == reasoning
    assert message["calls"] == calls


NO_CALLS = [
    (HERMES, "<tool_call>{}</tool_call>"),
    (HERMES, '<tool_call>{"name": "now", "arguments": [1]}</tool_call> !'),
    (HERMES, '<tool_call>{"name": "no w", "arguments": {}}</tool_call>'),
    (HERMES, '<tool_call>{"name": 1}</tool_call>'),
    (HERMES, '<tool_call>{"name": "now"} now</tool_call>'),
    (HERMES, '<tool_call>{"name": "now", "arguments": {"a": NaN}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "now", "arguments": "{\\"a\\": \\"\\ud800\\"}"}</tool_call>'),
    (HERMES, '<tool_call>{"name": "now", "arguments": {"a": "cut'),
    (HERMES, "<tool_call>" + "[" * 2000),
    (HERMES, '<tool_call>{"name": "now", "arguments": {"a": ' + "1" * 5000 + "}}</tool_call>"),
    (HERMES, '<tool_call>{"name": "now", "arguments": {"a": 1e999}}</tool_call>'),
    (HERMES, "a <tool_call>"),
    (HERMES, "a <tool_c"),
    (HERMES, "\n blanks \n"),
    (CODER, "<tool_call>\n<function=now>\n<parameter=a>\n1\n</function>\n</tool_call>"),
    (CODER, "<tool_call>\n<function=now>\nwhat?\n</function>\n</tool_call>"),
    (CODER, "<tool_call></tool_call>"),
    (CODER, "<function=unknown>\n</function>"),
    (CODER, "#include <functional>, <function=f"),
    (GEMMA, "<|tool_call>call:now{a}<tool_call|>"),
    (GEMMA, "<|tool_call>call:now{a:b}<tool_call|>"),
    (GEMMA, "<|tool_call>call:now{a:[1 2]}<tool_call|>"),
    (GEMMA, "<|tool_call>now{}<tool_call|>"),
    (GEMMA, "<|tool_call>call:now" + "{a:" * 80),
    (GEMMA, '<|tool_call>call:now{a:<|"|>cut'),
    (GPT_OSS, '<|channel|>commentary to=functions.now<|message|>{"a": '),
]


@pytest.mark.parametrize(("template", "text"), NO_CALLS)
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 80), max_size=8))
def test_what_is_no_call_stays_text(template: str, text: str, cuts: list[int]) -> None:
    assert answer(template, text, cuts) == {"role": "assistant", "content": text, "calls": []}


@pytest.mark.parametrize("template", [HERMES, CODER, GEMMA, GPT_OSS])
def test_without_tools_calls_are_text(template: str) -> None:
    text = {HERMES: JSON_CALL, CODER: XML_CALL, GEMMA: GEMMA_CALL, GPT_OSS: "<|message|>so"}[template]
    assert answer(template, text, tools=None)["content"] == text.removeprefix("<|message|>")


WORDS = (
    *(
        "<tool_call>",
        "</tool_call>",
        '{"name": "now", "arguments": {',
        "}}",
        '"a": "b"',
        "<function=now>",
        "</function>",
    ),
    *("<parameter=a>", "</parameter>", "\n", " ", "a", "<", "ä", "<|tool_call>", "<tool_call|>", "call:now{", '<|"|>'),
    *("<think>", "</think>", "<|channel|>", "<|message|>", "<|end|>", "commentary to=functions.now", "analysis"),
)


@pytest.mark.parametrize("template", [HERMES, QWEN3, QWEN35, CODER, GPT_OSS, GEMMA, PLAIN])
@settings(max_examples=60)
@given(data=st.data())
def test_cuts_change_nothing_and_characters_keep_their_origin(template: str, data: st.DataObject) -> None:
    words = data.draw(st.lists(st.sampled_from(WORDS), max_size=14))
    text = "".join(words)
    whole = answer(template, text)
    assert answer(template, text, data.draw(st.lists(st.integers(0, len(text)), max_size=8))) == whole
    if not whole["calls"] and thinking.form_of(template) is None:
        assert whole["content"] == text
    # Capitals are drafted: what comes out says so itself.
    loud = "".join(word.upper() if data.draw(st.booleans()) and word in "aä\n" else word for word in words)
    parser = AnswerParser(template, "", TOOLS)
    deltas = [*parser.feed(loud, [(i, i + 1) for i, char in enumerate(loud) if char in "AÄ"]), *parser.end()]
    for delta in deltas:
        said = delta.content or delta.reasoning_content
        drafted = {i for start, end in delta.drafted for i in range(start, end)}
        assert drafted == {i for i, char in enumerate(said) if char in "AÄ"}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("city", "12", "12"),
        ("days", "12", 12),
        ("days", "12.0", 12),
        ("days", "soon", "soon"),
        ("days", "true", "true"),
        ("metric", "True", True),
        ("metric", "false", False),
        ("metric", "1", "1"),
        ("near", "None", None),
        ("near", "null", None),
        ("near", "2.5", 2.5),
        ("near", "NaN", "NaN"),
        ("near", "1e999", "1e999"),
        ("tags", '["a", 1]', ["a", 1]),
        ("tags", "a, b", "a, b"),
        ("any", "12", 12),
        ("any", "null", None),
        ("any", "so", "so"),
        ("zone", '{"a": "\\ud800"}', {"a": "\ud800"}),
        ("unknown", "12", "12"),
    ],
)
def test_values_are_typed_by_the_schema(key: str, text: str, value: object) -> None:
    body = f"<tool_call>\n<function=weather>\n<parameter={key}>\n{text}\n</parameter>\n</function>\n</tool_call>"
    assert answer(CODER, body)["calls"] == [("weather", {key: value})]


def test_calls_are_streamed_in_openai_s_shape() -> None:
    parser = AnswerParser(HERMES, "", TOOLS)
    assert [delta.as_dict() for delta in parser.feed("Yes. ")] == [{"content": "Yes."}]
    assert parser.feed(JSON_CALL[:-3]) == []
    head, arguments = (delta.as_dict()["tool_calls"] for delta in parser.feed(JSON_CALL[-3:]))
    name = head[0].pop("id")
    assert name.startswith("call_")
    assert head == [{"index": 0, "type": "function", "function": {"name": "weather", "arguments": ""}}]
    assert arguments == [{"index": 0, "function": {"arguments": '{"city": "Köln", "days": 2}'}}]
    again = [delta.tool_calls[0].index for delta in parser.feed(JSON_CALL)]
    assert again == [1, 1]
    assert parser.reason("length") == "length"


def test_templates_say_how_calls_are_written() -> None:
    names = [form and form.name for form in map(tool_calls.form_of, (HERMES, QWEN35, GPT_OSS, GEMMA, PLAIN))]
    assert names == ["json", "xml", "harmony", "gemma4", None]
    assert tool_calls.form_of(HERMES + "<arg_key>") is None  # GLM's are written otherwise
