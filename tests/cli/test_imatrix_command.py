"""``imatrix`` as a user types it."""

from __future__ import annotations

import json

from test_commands import dflash, one_line_error

from dflash_gguf.quantize.imatrix import read_imatrix

TEXT = "the tides of the sea and the hills of the land " * 4


def test_the_command(tmp_path, tiny_target, tiny_drafter):
    (tmp_path / "text.txt").write_text(TEXT)
    words = ["imatrix", "-m", tiny_target, "-md", tiny_drafter, "-t", 1, "-c", 64, "--chunks", 1]
    done = dflash(*words, "-f", tmp_path / "text.txt", "-o", tmp_path / "m.gguf", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["path"] == str(tmp_path / "m.gguf")
    assert found["drafted"]["n_chunks"] == 1
    assert read_imatrix(tmp_path / "m.gguf").dataset == "text.txt"
    again = dflash(*words, "-f", tmp_path / "text.txt", "-o", tmp_path / "m.gguf")
    assert "exists already; pass `--force`" in one_line_error(again, 1)
    shown = dflash(*words, "-f", tmp_path / "text.txt", "-o", tmp_path / "m.gguf", "--force")
    assert "entries from" in shown.stdout
    assert "selector_predecessor.weight" in shown.stderr
    (tmp_path / "text.txt").write_bytes(b"\xff\xfe text")
    assert "the text is not UTF-8" in one_line_error(dflash(*words, "-f", tmp_path / "text.txt", "-o", "n.gguf"), 2)


def test_the_text_is_an_input(tmp_path, tiny_target, tiny_drafter):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    words = ["imatrix", "-m", tiny_target, "-md", tiny_drafter, "-t", 1, "-f", text, "-o", text, "--force"]
    assert "is one of the inputs" in one_line_error(dflash(*words), 1)
    assert text.read_text() == TEXT
