"""Text comes out in whole UTF-8 characters, wherever the tokens cut it, and ends before a stop string."""

import itertools

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
            return [*out, stream.take()[0], stream.end()[0]], i
        if i % take_after == take_after - 1:
            out.append(stream.take()[0])
    return [*out, stream.take()[0], stream.end()[0]], None


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


@given(text=st.text(max_size=20), data=st.data())
def test_a_character_was_drafted_when_all_its_bytes_were(text, data):
    raw = text.encode("utf-8", "replace")
    whole = raw.decode("utf-8")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    drafted = data.draw(st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)))
    take_after = data.draw(st.integers(1, 4))
    stream, out, flags = TextStream(pieces.__getitem__, ("\0\0",)), "", []

    def took(taken):
        nonlocal out
        out += taken[0]
        flags.extend(any(a <= i < b for a, b in taken[1]) for i in range(len(taken[0])))

    for i, flag in enumerate(drafted):
        if stream.add(i, drafted=flag):
            return
        if i % take_after == take_after - 1:
            took(stream.take())
    took(stream.take())
    took(stream.end())
    assert out == whole
    of_bytes = [flag for piece, flag in zip(pieces, drafted, strict=True) for _ in piece]
    ends = [len(whole[:i].encode()) for i in range(len(whole) + 1)]
    assert flags == [all(of_bytes[a:b]) for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize(
    ("pieces", "drafted", "text", "spans"),
    [
        ([b"\xf0\x9f", b"\x90\x9f"], [True, True], "\U0001f41f", ((0, 1),)),
        ([b"\xf0\x9f", b"\x90\x9f"], [True, False], "\U0001f41f", ()),
        ([b"\xf0\x9f", b"\x90\x9f"], [False, True], "\U0001f41f", ()),
        ([b"a\xc3", b"\xa4b"], [True, False], "a\xe4b", ((0, 1),)),
        ([b"a\xc3", b"\xa4b"], [False, True], "a\xe4b", ((2, 3),)),
        ([b"\xe2\x82", b"a"], [True, False], "\ufffda", ((0, 1),)),  # a broken character takes nothing of the next
        ([b"\xe2\x82", b"a"], [False, True], "\ufffda", ((1, 2),)),
        ([b"\xe2", b"\xc3", b"\xa4"], [False, True, True], "\ufffd\xe4", ((1, 2),)),
        ([b"\xff", b"\xe2"], [True, False], "\ufffd\ufffd", ((0, 1),)),
        ([b"\xff", b"\xe2"], [False, True], "\ufffd\ufffd", ((1, 2),)),
    ],
)
def test_what_of_a_text_was_drafted(pieces, drafted, text, spans):
    stream = TextStream(pieces.__getitem__)
    for i, flag in enumerate(drafted):
        stream.add(i, drafted=flag)
    taken, tail = stream.take(), stream.end()
    shift = len(taken[0])
    assert taken[0] + tail[0] == text
    assert (*taken[1], *((a + shift, b + shift) for a, b in tail[1])) == spans
