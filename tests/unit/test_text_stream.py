"""Text comes out in whole UTF-8 characters, wherever the tokens cut it."""

from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.runner.vocabulary import TextStream


@given(text=st.text(max_size=40), data=st.data())
def test_pieces_join_to_the_text_and_no_character_is_cut(text, data):
    raw = text.encode("utf-8", "replace")
    whole = raw.decode("utf-8")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    stream = TextStream(pieces.__getitem__)
    out = [stream.add([i]) for i in range(len(pieces))]
    assert "".join(out) == whole
    assert stream.end() == ""


def test_half_a_character_waits_and_one_that_never_comes_is_replaced():
    stream = TextStream([b"a\xf0\x9f", b"\x90", b"\x9f", b"\xc3"].__getitem__)
    assert [stream.add([i]) for i in range(4)] == ["a", "", "\U0001f41f", ""]
    assert stream.end() == "\ufffd"
