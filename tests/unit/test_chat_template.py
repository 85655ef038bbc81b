"""A chat template that cannot be used is refused with the field, the line and what to do."""

from __future__ import annotations

import pytest
from tiny_vocab import CHAT_TEMPLATE

from dflash_gguf.errors import TemplateError
from dflash_gguf.runner import chat
from dflash_gguf.runner.chat import ChatTemplate

HELLO = [{"role": "user", "content": "hello"}]
REASONING = """
{%- set effort = reasoning_effort | default('medium') %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}
{%- if m.role != 'robot' %}[{{ m.role }}: {{ m.content }}]{% endif %}
{%- endfor %}({{ effort }}{% if enable_thinking is defined and not enable_thinking %}, no thinking{% endif %})
"""


def rendered(source: str, *messages: tuple[str, str], **values: object) -> str:
    listed = [{"role": role, "content": content} for role, content in messages] or HELLO
    return ChatTemplate(source).render(listed, values=values)


@pytest.mark.parametrize(
    ("source", "messages", "values", "said"),
    [
        ("", (), {}, "the target has no `tokenizer.chat_template`; send the prompt as it is"),
        ("{% for %}", (), {}, r"`tokenizer.chat_template`, line 1\) failed: TemplateSyntaxError: Expected"),
        ("a\n{% if x %}", (), {}, r"line 2\) failed: TemplateSyntaxError"),
        ("a\n\n{{ messages[7].role.x }}", (), {}, r"line 3\) failed for messages of the roles user: UndefinedError"),
        (
            REASONING,
            (("user", "a"), ("tool", "b")),
            {},
            r"line 4\) failed for .* user, tool: ValueError: no tools here",
        ),
        (REASONING, (("robot", "beep"), ("user", "a")), {}, "leaves out the message 0 of the role `robot`"),
        ("hello", (), {}, "leaves out the message 0 of the role `user`; send the prompt as it is"),
        (REASONING, (), {"thinking": 1}, "does not read `thinking`, expected `enable_thinking`, `reasoning_effort`"),
        (CHAT_TEMPLATE, (), {"thinking": 1}, "does not read `thinking`, expected none: it has no variables"),
        (CHAT_TEMPLATE, (), {"messages": []}, "`messages` is not for the user to set"),
        ("{{ ''.__class__.__mro__ }}", (), {}, "SecurityError"),
        ("{{ range(1000000000) | list }}", (), {}, "OverflowError"),
    ],
)
def test_refusals(source: str, messages: tuple[tuple[str, str], ...], values: dict[str, object], said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        rendered(source, *messages, **values)


def test_values_reach_the_template() -> None:
    assert rendered(REASONING) == "[user: hello](medium)"
    assert rendered(REASONING, reasoning_effort="low", enable_thinking=False) == "[user: hello](low, no thinking)"
    assert rendered(REASONING, ("system", "brief"), ("user", "a")) == "[system: brief][user: a](medium)"


@pytest.mark.parametrize(
    ("source", "level", "values"),
    [
        (REASONING, "high", {"reasoning_effort": "high"}),
        (REASONING, "none", {"reasoning_effort": "none"}),
        ("{{ reasoning_strength }}", "low", {"reasoning_strength": "low"}),
        ("{{ thinking_effort }}", "low", {"thinking_effort": "low"}),
        ("{% if enable_thinking %}x{% endif %}", "none", {"enable_thinking": False}),
    ],
)
def test_efforts(source: str, level: str, values: dict[str, object]) -> None:
    assert ChatTemplate(source).effort(level) == values


def test_an_effort_that_the_template_does_not_know() -> None:
    with pytest.raises(TemplateError, match="knows no reasoning effort `low`; it reads `enable_thinking`"):
        ChatTemplate("{% if enable_thinking %}x{% endif %}").effort("low")
    with pytest.raises(TemplateError, match="knows no reasoning effort `none`; leave it out"):
        ChatTemplate(CHAT_TEMPLATE).effort("none")


class Counting(ChatTemplate):
    """Counts how often it is rendered."""

    n = 0

    def _render(self, *args, **kwargs):
        self.n += 1
        return super()._render(*args, **kwargs)


def turns(n: int, role: str = "tool") -> list[dict[str, str]]:
    return [{"role": role if i % 2 else "user", "content": f"text {i}"} for i in range(n)]


@pytest.mark.parametrize("n", [2, 20, 600])
def test_many_messages_take_as_many_renderings_as_few(n: int) -> None:
    template = Counting(CHAT_TEMPLATE)
    assert f"text {n - 1}<|im_end|>" in template.render(turns(n))
    assert template.n == 2


@pytest.mark.parametrize("shout", ["m['content']", "m['content'] | upper", "(m['content'] | length) * 'x'"])
def test_a_template_that_changes_texts_is_not_mistaken(shout: str) -> None:
    template = Counting("{% for m in messages %}{{ " + shout + " }}\n{% endfor %}")
    assert template.render(turns(600)).count("\n") == 600
    assert template.n <= 2 + chat.DOUBTS


@pytest.mark.parametrize("at", [1, 301, 599])
def test_the_one_of_many_that_is_left_out_is_found(at: int) -> None:
    messages = turns(600)
    messages[at]["role"] = "robot"
    with pytest.raises(TemplateError, match=f"leaves out the message {at} of the role `robot`"):
        Counting(REASONING.replace("'tool'", "'nobody'")).render(messages)
