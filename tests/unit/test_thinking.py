"""An answer is split into thinking and words wherever its pieces are cut, and nothing of it is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.runner.thinking import FORMS, Form, Piece, Splitter, form_of

TAGS = next(form for form in FORMS if form.sign == "<think>")
HARMONY = next(form for form in FORMS if form.sign == "<|channel|>")


def split(form: Form | None, text: str, cuts: list[int] | None = None, prompt: str = "") -> list[Piece]:
    splitter = Splitter(form, prompt)
    places = sorted(min(cut, len(text)) for cut in cuts or [])
    out: list[Piece] = []
    for a, b in zip([0, *places], [*places, len(text)], strict=True):
        out += splitter.add(text[a:b])
    return [*out, *splitter.end()]


def joined(pieces: list[Piece], *kinds: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind in kinds)


ANALYSIS = "<|channel|>analysis<|message|>why"
FINAL = "<|channel|>final<|message|>so"
COMMENTARY = "<|channel|>commentary<|message|>now"
NEXT = "<|end|><|start|>assistant"

CASES = [
    (TAGS, "", "<think>\nwhy\n</think>\n\nbecause", "why\n", "because"),
    (TAGS, "", "\n<think></think>so", "", "so"),
    (TAGS, "", "no tags", "", "no tags"),
    (TAGS, "", "  no <think> here", "", "no <think> here"),  # a tag that is spoken of
    (TAGS, "", "<think>never ends", "never ends", ""),
    (TAGS, "", "<thin", "", "<thin"),
    (TAGS, "<|assistant|><think>\n", "why</think>so </think>", "why", "so </think>"),
    (TAGS, "<|assistant|><think>\n\n</think>\n\n", "so", "", "so"),
    (HARMONY, "<|start|>assistant", f"{ANALYSIS}{NEXT}{FINAL}", "why", "so"),
    (HARMONY, "<|start|>assistant", FINAL, "", "so"),
    (HARMONY, "<|start|>assistant", f"{COMMENTARY}{NEXT}{ANALYSIS}", "why", "now"),
    (None, "", "<think>as it is</think>", "", "<think>as it is</think>"),
]


@pytest.mark.parametrize(("form", "prompt", "text", "thinking", "answer"), CASES)
@given(cuts=st.lists(st.integers(0, 120), max_size=12))
def test_the_parts_of_an_answer(
    form: Form | None, prompt: str, text: str, thinking: str, answer: str, cuts: list[int]
) -> None:
    pieces = split(form, text, cuts, prompt)
    assert joined(pieces, "thinking") == thinking
    assert joined(pieces, "answer") == answer
    assert joined(pieces, "thinking", "answer", "mark") == text


@pytest.mark.parametrize("form", FORMS, ids=[form.sign for form in FORMS])
@given(data=st.data())
def test_no_text_is_lost_and_each_character_keeps_its_origin(form: Form, data: st.DataObject) -> None:
    words = st.sampled_from([*form.marks, "a", " ", "\n", "<", "<|", "ä"])
    parts = data.draw(st.lists(words, max_size=12))
    splitter, out, given_flags = Splitter(form, ""), [], []
    for part in parts:
        drafted = data.draw(st.booleans())
        given_flags += [drafted] * len(part)
        out += splitter.add(part, [(0, len(part))] if drafted else [])
    out += splitter.end()
    assert "".join(piece.text for piece in out) == "".join(parts)
    assert [piece.drafted for piece in out for _ in piece.text] == given_flags
    assert all(piece.text for piece in out)


def test_text_comes_as_soon_as_it_is_sure() -> None:
    splitter = Splitter(TAGS, "")
    assert list(splitter.add("<thi")) == []
    assert [piece.text for piece in splitter.add("nk>wh")] == ["<think>", "wh"]
    assert [piece.text for piece in splitter.add("y</")] == ["y"]
    assert [piece.text for piece in splitter.add("b")] == ["</b"]
    plain = Splitter(TAGS, "")
    assert [piece.text for piece in plain.add("Hi")] == ["Hi"]
    assert [piece.text for piece in plain.add(" <")] == [" <"]


def test_a_template_that_knows_no_thinking_has_no_form() -> None:
    assert form_of("{{ messages }}") is None
    assert form_of("{% if '</think>' in c %}<think>{% endif %}") is TAGS
    assert form_of("<|start|>assistant<|channel|>final<|message|>") is HARMONY
