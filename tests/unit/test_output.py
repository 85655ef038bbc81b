"""The one object that prints: what a file says cannot command a terminal, whatever verb it goes through."""

from __future__ import annotations

import io
import json
import sys

import pytest

from dflash_gguf.cli.output import CELL_LIMIT, Output

HOSTILE = "\x1b[31mred\x07\x9b\u202e\udcff"
ESCAPED = "\\x1b[31mred\\x07\\x9b\\u202e\\udcff"


def test_lines_keep_their_breaks_and_nothing_else(capsys):
    output = Output()
    output.line(f"a\n{HOSTILE}")
    output.note(f"b\n{HOSTILE}")
    output.warning(HOSTILE)
    shown = capsys.readouterr()
    assert shown.out == f"a\n{ESCAPED}\n"
    assert shown.err == f"b\n{ESCAPED}\nwarning: {ESCAPED}\n"


def test_a_cell_is_one_line_and_a_long_one_widens_no_other(capsys):
    Output().table(("name", "what"), [(f"{HOSTILE}\n", "x"), ("y" * 1000, "z")])
    head, hostile, long = capsys.readouterr().out.splitlines()
    assert hostile.split() == [f"{ESCAPED}\\n", "x"]
    assert long == f"{'y' * 1000}  z"
    assert len(head) == CELL_LIMIT + 2 + len("what")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_fits_the_encoding(encoding, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding, "strict")
    monkeypatch.setattr(sys, "stdout", stream)
    output = Output()
    output.json_mode = True
    output.result({"path": "ü\udcff", "rows": [{"value": ("\udcff", float("nan"))}]})
    stream.flush()
    found = json.loads(stream.buffer.getvalue().decode(encoding))
    assert found == {"path": "ü\\udcff", "rows": [{"value": ["\\udcff", "nan"]}]}


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", b"\\xfc\\u2713"), ("latin-1", b"\xfc\\u2713")])
def test_text_fits_the_encoding(encoding, shown, monkeypatch):
    """A locale without UTF-8 ends no answer in the middle."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding, "strict")
    monkeypatch.setattr(sys, "stdout", stream)
    Output().line("ü✓")
    Output().text("ü✓")
    stream.flush()
    assert stream.buffer.getvalue() == shown + b"\n" + shown
