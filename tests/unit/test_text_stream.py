"""Text comes out in whole UTF-8 characters, wherever the tokens cut it, and ends before a stop string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.runner.vocabulary import TextStream


def spelt(pieces, stops=(), take_after=1):
    """All that comes out of ``pieces``, taken after every so many tokens, and whether a stop string ended it."""
    stream = TextStream(pieces.__getitem__, stops)
    out = []
    for i in range(len(pieces)):
        if stream.add(i):
            return [*out, stream.take(), stream.end()], i
        if i % take_after == take_after - 1:
            out.append(stream.take())
    return [*out, stream.take(), stream.end()], None


@given(text=st.text(max_size=40), data=st.data())
def test_pieces_join_to_the_text_and_no_character_is_cut(text, data):
    raw = text.encode("utf-8", "replace")
    whole = raw.decode("utf-8")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    out, _ = spelt(pieces)
    assert "".join(out[:-1]) == whole
    assert out[-1] == ""


def test_half_a_character_waits_and_one_that_never_comes_is_replaced():
    out, _ = spelt([b"a\xf0\x9f", b"\x90", b"\x9f", b"\xc3"])
    assert out == ["a", "", "\U0001f41f", "", "", "\ufffd"]


@given(
    text=st.text("ab|", max_size=30),
    stops=st.lists(st.text("ab|", min_size=1, max_size=4), min_size=1, max_size=3),
    data=st.data(),
)
def test_the_text_ends_before_the_first_stop_string(text, stops, data):
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=30, max_size=30))
    pieces, rest = [], text
    for size in sizes:
        pieces.append(rest[:size].encode())
        rest = rest[size:]
    out, stopped = spelt(pieces, stops, data.draw(st.integers(1, 4)))
    # What a token completes counts: the first token after which any of them is there, and there the earliest of them.
    seen = ""
    for i, piece in enumerate(pieces):
        seen += piece.decode()
        places = [seen.find(stop) for stop in stops if stop in seen]
        if places:
            assert stopped == i
            assert "".join(out) == seen[: min(places)]
            return
    assert stopped is None
    assert "".join(out) == text


@pytest.mark.parametrize(
    ("pieces", "stops", "out"),
    [
        ([b"one <", b"/s", b"> two"], ["</s>"], ["one ", "", "", ""]),
        ([b"one <", b"/b", b"> two"], ["</s>"], ["one ", "</b", "> two", "", ""]),
        ([b"one <", b"/s"], ["</s>"], ["one ", "", "", "</s"]),
    ],
)
def test_the_beginning_of_a_stop_string_waits(pieces, stops, out):
    assert spelt(pieces, stops)[0] == out
