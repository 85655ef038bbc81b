"""Turn after turn: what is kept of each, and what the template makes of it."""

from __future__ import annotations

import json

import pytest
import tiny
from certain import write_certain_drafter, write_certain_target
from tiny_vocab import CHAT_TEMPLATE

from dflash_gguf import DflashError, Session
from dflash_gguf.runner.conversation import Conversation
from dflash_gguf.runner.generation import Finished, Text
from dflash_gguf.runner.thinking import Piece

THINKING = """
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking %}<think>
{% endif %}{% endif %}"""
HARMONY = "{# <|channel|> #}" + CHAT_TEMPLATE.replace("m['content']", "m['content'] ~ m['thinking']")


@pytest.fixture(scope="module")
def opened(tmp_path_factory, tiny_drafter):
    """Sessions by the target's template."""
    sessions = {}

    def open_one(template):
        if template not in sessions:
            folder = tmp_path_factory.mktemp("target")
            keys = {"tokenizer.chat_template": template}
            target = tiny.write_target(folder / "t.gguf", type="Q8_0", extra_keys=keys)
            sessions[template] = Session(target, tiny_drafter, n_ctx=512, n_threads=1, depth="fixed")
        return sessions[template]

    yield open_one
    for session in sessions.values():
        session.close()


def ask(conversation, text, answer=None, **options):
    """The pieces of an answer that a grammar forces, and its end."""
    if answer is not None:
        options |= {"grammar": f"root ::= {json.dumps(answer)}"}
    *pieces, end = list(conversation.ask(text, temperature=0, **{"max_tokens": 100, **options}))
    assert isinstance(end, Finished)
    return [piece for piece in pieces if isinstance(piece, Piece)], end


def test_both_sides_of_each_turn_are_kept(opened):
    conversation = Conversation(opened(CHAT_TEMPLATE), system="be brief")
    pieces, _ = ask(conversation, "one", "two")
    assert "".join(piece.text for piece in pieces) == "two"
    _, end = ask(conversation, "three", "four")
    assert conversation.messages == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"},
    ]
    assert end.stats.cache_n > end.stats.prompt_n
    conversation.clear()
    _, end = ask(conversation, "one", "two")
    assert end.stats.cache_n > 0  # what the system says is there still
    assert len(conversation.messages) == 2


def test_thinking_is_kept_apart_for_the_template(opened):
    session = opened(THINKING)
    conversation = Conversation(session)
    ask(conversation, "one", "<think>\nhm\n</think>\n\ntwo")
    assert conversation.messages[1] == {"role": "assistant", "content": "two", "reasoning_content": "hm"}
    assert "<think>hm</think>two<|im_end|>" in session.render(conversation.messages)
    begun = Conversation(session, values={"enable_thinking": True})
    pieces, _ = ask(begun, "one", "hm</think>two")  # the prompt has opened it
    assert [(piece.kind, piece.text) for piece in joined(pieces)] == [
        ("thinking", "hm"),
        ("mark", "</think>"),
        ("answer", "two"),
    ]
    assert begun.messages[1]["reasoning_content"] == "hm"


def joined(pieces):
    """Pieces of one kind in a row as one."""
    out = []
    for piece in pieces:
        if out and out[-1].kind == piece.kind:
            out[-1] = Piece(piece.kind, out[-1].text + piece.text)
        else:
            out.append(Piece(piece.kind, piece.text))
    return out


def test_harmony_channels(opened):
    """Their marks are plain text in this vocabulary; where they are control tokens, these are spelt out."""
    conversation = Conversation(opened(HARMONY))
    answer = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>two"
    pieces, _ = ask(conversation, "one", answer)
    assert "".join(piece.text for piece in pieces if piece.kind == "thinking") == "hm"
    assert conversation.messages[1] == {"role": "assistant", "content": "two", "thinking": "hm"}


def test_control_tokens_among_the_marks_are_spelt(opened):
    session = opened(CHAT_TEMPLATE)
    vocabulary = session.vocabulary
    (control,) = vocabulary.tokenize("<|mask|>", add_special=False, parse_special=True)
    assert vocabulary.text_bytes(control) == b""
    assert vocabulary.spelt({control})(control) == b"<|mask|>"
    assert vocabulary.spelt({control})(100) == vocabulary.text_bytes(100)
    options = {"max_tokens": 3, "logit_bias": {control: 1000.0}}
    silent = [event for event in session.generate("hi", **options) if not hasattr(event, "tokens")]
    spelt = list(session.generate("hi", spelt_token_ids=[control], **options))
    assert len(silent) == 1
    assert "".join(event.text for event in spelt if hasattr(event, "text")) == 3 * "<|mask|>"


@pytest.mark.parametrize("n_taken", [0, 1, 3])
def test_an_answer_that_is_left_is_kept_as_far_as_it_came(n_taken, opened):
    conversation = Conversation(opened(CHAT_TEMPLATE))
    answer = conversation.ask("one", temperature=0, grammar='root ::= "abcdefgh"')
    text = ""
    while len(text) < n_taken:
        event = next(answer)
        text += event.text if isinstance(event, Piece) else ""
    if n_taken == 0:
        next(answer)
    answer.close()
    said = [message["content"] for message in conversation.messages]
    assert said == (["one", text] if n_taken else [])
    ask(conversation, "two", "three")
    assert conversation.messages[-1]["content"] == "three"


def test_a_turn_that_fails_is_none(opened):
    conversation = Conversation(opened(CHAT_TEMPLATE))
    ask(conversation, "one", "two")
    for wrong in ({"text": "x " * 600}, {"text": "a", "temperature": -1.0}):
        with pytest.raises(DflashError):
            list(conversation.ask(**wrong))
        assert len(conversation.messages) == 2
    pieces, _ = ask(conversation, "one", "<", max_tokens=0)
    assert pieces == []
    assert len(conversation.messages) == 2


def test_wrong_values_are_refused_at_once(opened):
    with pytest.raises(DflashError, match="does not read `thinking`"):
        Conversation(opened(CHAT_TEMPLATE), values={"thinking": True})


def test_events_say_what_was_drafted(tmp_path):
    """A round's text is seven drafts and the target's own token."""
    target, draft = write_certain_target(tmp_path / "t.gguf"), write_certain_drafter(tmp_path / "d.gguf")
    with Session(target, draft, n_ctx=256, n_threads=1, depth="fixed") as session:
        texts = [e for e in session.generate("hello", max_tokens=20, temperature=0) if isinstance(e, Text)]
        first, second, third, last = texts
        assert (first.text, first.drafted) == ('"', ())
        assert (second.text, second.drafted) == (third.text, third.drafted) == (8 * '"', ((0, 7),))
        assert (last.text, last.drafted) == (3 * '"', ((0, 2),))  # the limit ends it: of two drafts and one of its own
