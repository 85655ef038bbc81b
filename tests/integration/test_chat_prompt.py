"""Chats that must answer in a form: the grammars that are made allow that, and nothing else."""

from __future__ import annotations

import itertools
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tiny
import tiny_vocab
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_vocab import CHAT_TEMPLATE, EOS_ID

from dflash_gguf import Session, _core
from dflash_gguf.errors import SessionError
from dflash_gguf.runner import thinking
from dflash_gguf.runner.generation import Finished, Text
from dflash_gguf.serve.answer import AnswerParser
from dflash_gguf.serve.chat_prompt import PASSED, ChatPrompt, chat_prompt
from dflash_gguf.serve.deltas import message_of
from dflash_gguf.serve.errors import ApiError
from dflash_gguf.serve.grammars import after_thinking, literal, until

if TYPE_CHECKING:
    from pathlib import Path

TOOLS = "{{ tools | tojson if tools }}"
HERMES = TOOLS + '{# <tool_call>{"name": 1, "arguments": 2} #}' + CHAT_TEMPLATE
QWEN3 = HERMES + "{# <think> {{ enable_thinking }} #}"
CODER = TOOLS + "{# <tool_call><function=f><parameter=p> #}" + CHAT_TEMPLATE
QWEN35 = CODER + "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}"
GPT_OSS = TOOLS + "{# <|channel|> functions. {{ reasoning_effort }} #}" + CHAT_TEMPLATE
GEMMA = TOOLS + "{# <|tool_call>call: <|channel>thought #}" + CHAT_TEMPLATE
OTHER = TOOLS + CHAT_TEMPLATE

WEATHER = {
    "type": "object",
    "properties": {
        "days": {"type": "integer"},
        "city": {"type": "string"},
        "zone": {"$ref": "#/$defs/zone"},
    },
    "required": ["city", "zone"],
    "$defs": {"zone": {"enum": ["utc", "local"]}},
}
HOUR = {
    "type": "object",
    "properties": {"zone": {"$ref": "#/definitions/zone"}},
    "definitions": {"zone": {"type": "null"}},
}
OFFERED = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "hour", "parameters": HOUR}},
    {"type": "function", "function": {"name": "now"}},
]
WRONG = {"type": "function", "function": {"name": "f", "parameters": {"enum": 1}}}
MESSAGES = [{"role": "user", "content": "hi"}]
NAMED = {"type": "function", "function": {"name": "now"}}


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Sessions by the target's template."""
    sessions: dict[str, Session] = {}

    def open_one(template: str) -> Session:
        if template not in sessions:
            target = tmp_path_factory.mktemp("target") / "t.gguf"
            tiny.write_target(target, type="Q8_0", extra_keys={"tokenizer.chat_template": template})
            sessions[template] = Session(target, n_ctx=1024, n_threads=1)
        return sessions[template]

    yield open_one
    for session in sessions.values():
        session.close()


def asked(session: Session, **values: Any) -> ChatPrompt:
    return chat_prompt(session, {"messages": MESSAGES, **values}, lambda _: None)


def follows(session: Session, grammar: str, text: str, *, whole: bool = True) -> bool:
    """Whether ``grammar`` allows ``text``, and with ``whole`` its end there."""
    n = session.n_vocab
    sampler = _core.Sampler(n, _core.FilterSettings(), 0, grammar=grammar, vocab=session.vocabulary.address)
    ids = session.vocabulary.tokenize(text, add_special=False, parse_special=False)
    for place, token in enumerate([*ids, *([EOS_ID] if whole else [])]):
        row = np.zeros(n, np.float32)
        row[token] = 1.0
        try:
            chosen = sampler.choose(row, place)
        except SessionError as error:
            if "grammar" not in str(error):
                raise
            return False
        if chosen != token:
            return False
        sampler.accept(token)
    return True


JSON_WEATHER = '{"city": "Köln <>", "zone": "utc"}'
JSON_CALL = '<tool_call>\n{"name": "weather", "arguments": ' + JSON_WEATHER + "}\n</tool_call>"
JSON_NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
XML_CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n<>\n</parameter>\n<parameter=zone>\nutc\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"
)
XML_NOW = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
GEMMA_CALL = '<|tool_call>call:weather{city:<|"|>Köln <|<|"|>,zone:<|"|>utc<|"|>,days:2}<tool_call|>'
GEMMA_NOW = "<|tool_call>call:now{}<tool_call|>"
TO_WEATHER = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" + JSON_WEATHER
TO_NOW = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"
ANALYSIS = "<|channel|>analysis<|message|>hm <|end|><|start|>assistant"

ALLOWED = [
    (HERMES, "required", [JSON_CALL, JSON_NOW, f"{JSON_CALL}\n{JSON_NOW}"]),
    (HERMES, NAMED, [JSON_NOW]),
    (QWEN3, "required", [JSON_CALL, f"<think>\nhm < </thin></think>\n\n{JSON_CALL}"]),
    (CODER, "required", [XML_CALL, XML_NOW, f"{XML_NOW}\n{XML_CALL}"]),
    (CODER, NAMED, [XML_NOW]),
    (QWEN35, "required", [f"hm\n</think>\n\n{XML_CALL}"]),
    (GPT_OSS, "required", [TO_WEATHER, ANALYSIS + TO_NOW, ANALYSIS + ANALYSIS + TO_WEATHER]),
    (GPT_OSS, NAMED, [TO_NOW]),
    (GEMMA, "required", [GEMMA_CALL, GEMMA_NOW, f"<|channel>thought\nhm<channel|>{GEMMA_NOW}{GEMMA_CALL}"]),
    (GEMMA, NAMED, [GEMMA_NOW]),
]
REFUSED = [
    (HERMES, "required", ["hi", JSON_CALL.replace("utc", "gmt"), JSON_CALL.replace("weather", "rain")]),
    (HERMES, NAMED, [JSON_CALL, f"{JSON_NOW}\n{JSON_NOW}"]),
    (
        CODER,
        "required",
        ["hi", XML_CALL.replace("utc", "gmt"), XML_CALL.replace("2", "two"), XML_NOW.replace("now", "weather")],
    ),
    (QWEN35, "required", [XML_CALL, "hm</think>so"]),
    (GEMMA, "required", ["hi", GEMMA_CALL.replace("utc", "gmt"), GEMMA_CALL.replace("2", '<|"|>2<|"|>')]),
    (GEMMA, "required", ["<|tool_call>call:weather{days:2}<tool_call|>", GEMMA_NOW.replace("{", "{a:1")]),
    (GPT_OSS, "required", ["<|channel|>final<|message|>so", TO_WEATHER.replace("utc", "gmt")]),
]


@pytest.mark.parametrize(("template", "choice", "texts"), ALLOWED)
def test_what_must_be_called_can_be(opened: Any, template: str, choice: Any, texts: list[str]) -> None:
    session = opened(template)
    found = asked(session, tools=OFFERED, tool_choice=choice)
    for text in texts:
        assert follows(session, found.options["grammar"], text), text
        parser = AnswerParser(template, "<think>" if template is QWEN35 else "", {"weather": WEATHER, "now": {}})
        message = message_of([*parser.feed(text), *parser.end()])
        assert message["tool_calls"]
        assert not message["content"]


@pytest.mark.parametrize(("template", "choice", "texts"), REFUSED)
def test_nothing_else_can(opened: Any, template: str, choice: Any, texts: list[str]) -> None:
    session = opened(template)
    found = asked(session, tools=OFFERED, tool_choice=choice)
    for text in texts:
        assert not follows(session, found.options["grammar"], text), text


@pytest.mark.parametrize(("template", "call"), [(CODER, XML_CALL), (GEMMA, GEMMA_CALL)])
def test_what_is_no_name_is_not_needed(opened: Any, template: str, call: str) -> None:
    session = opened(template)
    listed = [["city"], "city", 1, "city", "zone"]
    weather = {"type": "function", "function": {"name": "weather", "parameters": {**WEATHER, "required": listed}}}
    found = asked(session, tools=[weather], tool_choice="required")
    assert follows(session, found.options["grammar"], call)


def test_a_prompt_that_is_refused_has_no_grammar_made(opened: Any) -> None:
    seen: list[int] = []

    def check(ids: list[int]) -> None:
        seen.extend(ids)
        raise ApiError("too long")

    session = opened(HERMES)
    with pytest.raises(ApiError, match="too long"):
        chat_prompt(session, {"messages": MESSAGES, "tools": [WRONG], "tool_choice": "required"}, check)
    assert seen == asked(session, tools=[WRONG]).ids


FORMAT = {"type": "json_schema", "json_schema": {"name": "count", "schema": {"enum": ["one", {"n": 2}]}}}


@pytest.mark.parametrize(
    ("template", "tools", "texts", "wrong"),
    [
        (OTHER, [], ['"one"', '{"n": 2}'], ["one", '"two"']),
        (QWEN3, [], ['"one"', '<think>"two"</think>"one"'], ['<think></think>"two"', '"two"']),
        (QWEN35, [], ['"two"</think>\n\n"one"'], ['"one"']),
        (GPT_OSS, [], ['<|channel|>final<|message|>"one"', ANALYSIS + '<|channel|>final<|message|>"one"'], ['"one"']),
        (HERMES, OFFERED, ['"one"', JSON_NOW, f"{JSON_NOW}\n{JSON_CALL}"], [f'{JSON_NOW}"one"']),
        (OTHER, OFFERED, ['"one"'], [JSON_NOW]),
        (GEMMA, OFFERED, ['"one"', GEMMA_NOW], ["one"]),
    ],
)
def test_a_format_is_kept_behind_the_thinking(
    opened: Any, template: str, tools: list[Any], texts: list[str], wrong: list[str]
) -> None:
    session = opened(template)
    grammar = asked(session, tools=tools, response_format=FORMAT).options["grammar"]
    assert [text for text in texts if not follows(session, grammar, text)] == []
    assert [text for text in wrong if follows(session, grammar, text)] == []


def test_a_format_may_refer_to_its_own_parts(opened: Any) -> None:
    session = opened(OTHER)
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}, "b": {"$ref": "#/properties/a"}, "c": {"$ref": "#/$defs/x y"}},
        "required": ["a", "b", "c"],
        "$defs": {"x y": {"type": "null"}},
    }
    format_ = {"type": "json_schema", "json_schema": {"name": "own", "schema": schema}}
    grammar = asked(session, response_format=format_).options["grammar"]
    assert follows(session, grammar, '{"a": 1, "b": 2, "c": null}')
    assert not follows(session, grammar, '{"a": 1, "b": 3, "c": null}')


def test_an_object_is_json_without_line_breaks_in_texts(opened: Any) -> None:
    session = opened(OTHER)
    grammar = asked(session, response_format={"type": "json_object"}).options["grammar"]
    assert follows(session, grammar, '{"a": [1, "b\\n", {"c": null}]}')
    assert not follows(session, grammar, '{"a": "\n"}')
    assert "grammar" not in asked(session, response_format={"type": "text"}).options


@pytest.mark.parametrize(
    ("template", "values", "param"),
    [
        (OTHER, {"tools": OFFERED, "tool_choice": NAMED}, "tool_choice"),
        (CHAT_TEMPLATE, {"tools": OFFERED}, "tools"),
        (OTHER, {"reasoning_effort": "high"}, "reasoning_effort"),
        (OTHER, {"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs"),
        (
            OTHER,
            {"response_format": {"type": "json_object", "schema": {"type": "object", "enum": 1}}},
            "response_format",
        ),
        (HERMES, {"tools": [WRONG], "tool_choice": "required"}, "tools"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(opened: Any, template: str, values: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked(opened(template), **values)
    assert caught.value.param == param


def test_a_template_whose_calls_are_not_read_is_said_so(opened: Any) -> None:
    assert asked(opened(OTHER), tools=OFFERED).notes == (PASSED,)
    assert asked(opened(OTHER)).notes == asked(opened(HERMES), tools=OFFERED).notes == ()


def test_marks_that_are_control_tokens_are_spelt_out(tmp_path: Path) -> None:
    marks = {"<|mask|>": "<|tool_call>", "<|pad|>": "<tool_call|>"}
    tokens = [marks.get(token, token) for token in tiny_vocab.tokens(tiny.TARGET.vocab)]
    keys = {"tokenizer.chat_template": GEMMA, "tokenizer.ggml.tokens": tokens}
    target = tiny.write_target(tmp_path / "t.gguf", type="Q8_0", extra_keys=keys)
    text = '<|tool_call>call:now{a:<|"|>b<|"|>}<tool_call|>'
    with Session(target, n_ctx=512, n_threads=1) as session:
        found = asked(session, tools=OFFERED)
        assert {session.token_text(token) for token in found.options["spelt_token_ids"]} == {*marks.values()}
        forced = {"grammar": f"root ::= {literal(text)}", "temperature": 0.0, "max_tokens": 100}
        events = list(session.generate(found.ids, **{**found.options, **forced}))
        texts = [event.text for event in events if isinstance(event, Text)]
        message = message_of([*chain.from_iterable(map(found.parser.feed, texts)), *found.parser.end()])
        assert [call["function"] for call in message["tool_calls"]] == [{"name": "now", "arguments": '{"a": "b"}'}]
        bare = asked(session)
        assert bare.options["spelt_token_ids"] == frozenset()


def test_a_model_that_must_call_does(opened: Any) -> None:
    session = opened(QWEN3)
    found = asked(session, tools=OFFERED, tool_choice=NAMED)
    for seed in range(4):
        bias = dict.fromkeys(session.vocabulary.tokenize("think", add_special=False, parse_special=False), -8.0)
        options = {**found.options, "seed": seed, "max_tokens": 200, "temperature": 1.0, "logit_bias": bias}
        *events, end = list(session.generate(found.ids, **options))
        parser = AnswerParser(QWEN3, "", {"now": {}})
        deltas = [
            delta for event in events if isinstance(event, Text) for delta in parser.feed(event.text, event.drafted)
        ]
        message = message_of([*deltas, *parser.end()])
        assert isinstance(end, Finished)
        if end.reason == "stop":
            assert [one["function"]["name"] for one in message["tool_calls"]] == ["now"]
            assert parser.reason(end.reason) == "tool_calls"


def test_values_of_gemma_are_of_their_types(opened: Any) -> None:
    session = opened(GEMMA)
    kinds = {"n": {"type": "number"}, "b": {"type": ["boolean", "null"]}, "l": {"type": "array"}, "o": {}, "wrong": 1}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": kinds}}}
    grammar = asked(session, tools=[tool], tool_choice="required").options["grammar"]
    for values in ("", "n:-1.5e3,b:null", "b:true", 'l:[1,{a:<|"|>b<|"|>}],o:{}', "o:null,wrong:[]"):
        text = f"<|tool_call>call:f{{{values}}}<tool_call|>"
        assert follows(session, grammar, text), text
        parser = AnswerParser(GEMMA, "", {"f": {}})
        assert message_of([*parser.feed(text), *parser.end()])["tool_calls"]
    for values in ("n:true", "b:1", "x:1", "n:1,", "n:01"):
        assert not follows(session, grammar, f"<|tool_call>call:f{{{values}}}<tool_call|>"), values


MARKS = ("</think>", "aab", "aabaa", "\n</parameter>\n", "[/THINK]")


@settings(max_examples=60)
@given(mark=st.sampled_from(MARKS), data=st.data())
def test_a_text_up_to_a_mark_holds_it_once(opened: Any, mark: str, data: st.DataObject) -> None:
    chars = st.sampled_from(sorted({*mark, "x"}))
    text = "".join(data.draw(st.lists(chars, max_size=12)))
    session = opened(OTHER)
    grammar = "\n".join(["root ::= t-0", *until(mark, "t")])
    first = (text + mark).index(mark) + len(mark)
    assert follows(session, grammar, text + mark) == (first == len(text + mark))
    assert follows(session, grammar, (text + mark)[:first])


def test_every_form_of_thinking_has_a_grammar(opened: Any) -> None:
    session = opened(OTHER)
    for form, prompt in itertools.product(thinking.FORMS, ("", "opened")):
        text = f"x {form.tail}" if prompt else ""
        end = next(iter(form.stages["thinking"].marks))
        bridge = "<|start|>assistant" if form.sign == "<|channel|>" else "\n"
        grammar = after_thinking('"so"', [], form, text)
        assert follows(session, grammar, ("" if prompt else form.tail) + f"hm{end}{bridge}so"), form.sign
        assert follows(session, grammar, "so") == (not prompt)
        closed = after_thinking('"so"', [], form, f"{form.tail}{end}\n\n")
        assert follows(session, closed, "so")
        assert not follows(session, closed, form.tail, whole=False)
