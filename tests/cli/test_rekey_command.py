"""``rekey``: what ``--dry-run`` prints is what is written; refusals are one line; nothing to change says so."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import forks
import pytest
import tiny
from click.testing import CliRunner
from test_commands import dflash, one_line_error

from dflash_gguf.cli import root
from dflash_gguf.gguf_header import read_header
from dflash_gguf.rekeying.answers import QUESTIONS

SMALL = {"hidden": 64, "ffn": 64, "heads": 2, "kv_heads": 1, "head_dim": 32, "vocab": 300}


def run(*words):
    """One command in this process; a failure is raised."""
    return CliRunner().invoke(root, [str(word) for word in words], standalone_mode=False, catch_exceptions=False)


@pytest.fixture
def files(tmp_path):
    """A native file, pulsar's of it, and their target."""
    native = tiny.write_drafter(tmp_path / "native.gguf", kind="dflash", **SMALL)
    fork = forks.write_fork(native, tmp_path / "fork.gguf", forks.STYLES["pulsar"])
    return native, fork, tiny.write_target(tmp_path / "target.gguf", **SMALL)


def words(files, new):
    return ["rekey", files[1], new, "--target", files[2], "--context-length", 2048, "--rms-eps", "1e-6"]


def test_the_plan_is_the_file(files, tmp_path):
    new = tmp_path / "new.gguf"
    dry = json.loads(run(*words(files, new), "--dry-run", "--json").stdout)
    assert not new.exists()
    done = json.loads(run(*words(files, new), "--json").stdout)
    assert (dry.pop("path"), done.pop("path")) == (None, str(new))
    assert dry == done
    assert done["changed"] is True
    assert done["n_bytes"] == new.stat().st_size
    assert {"old": "dflash_fc.weight", "new": "fc.weight"} in done["tensors"]
    keys = {row["old"]: row for row in done["keys"]}
    assert keys["dflash-draft.dflash.block_size"] == {
        "old": "dflash-draft.dflash.block_size",
        "new": "dflash.block_size",
        "value": "8",
    }
    assert read_header(new).integers("dflash.target_layers") == [1, 2, 3]


def test_the_plan_for_a_person(files, tmp_path):
    shown = run(*words(files, tmp_path / "new.gguf"), "--dry-run")
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert ["dflash-draft.dflash.block_size", "->", "dflash.block_size", "8"] in rows
    assert ["(none)", "->", "dflash.context_length", "2048"] in rows
    assert ["dflash_fc.weight", "->", "fc.weight"] in rows
    assert shown.stdout.endswith("nothing was written\n")
    assert "`--causal` decides otherwise" in shown.stderr


def test_nothing_to_change(files, tmp_path):
    new = tmp_path / "new.gguf"
    shown = run("rekey", files[0], new, "--target", files[2])
    assert shown.stdout == f"nothing to change\nwrote {new}\n"
    assert new.read_bytes() == files[0].read_bytes()


def test_what_is_missing_names_its_flags(files, tmp_path):
    line = one_line_error(dflash("rekey", files[1], tmp_path / "new.gguf"), 1)
    for flag in ("--context-length", "--rms-eps", "--target"):
        assert f"`{flag}`" in line
    assert not (tmp_path / "new.gguf").exists()


def test_a_file_in_the_way(files, tmp_path):
    new = tmp_path / "new.gguf"
    new.write_bytes(b"x")
    assert "`--force`" in one_line_error(dflash(*words(files, new)), 1)
    assert "one of the inputs" in one_line_error(dflash(*words(files, files[1]), "--force"), 1)
    assert new.read_bytes() == b"x"


def test_a_plan_is_in_no_files_way(files, tmp_path):
    new = tmp_path / "new.gguf"
    new.write_bytes(b"x")
    for place in (new, files[1]):
        before = place.read_bytes()
        assert "nothing was written" in run(*words(files, place), "--dry-run").stdout
        assert place.read_bytes() == before


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--block-size", "0", "got 0, expected 2 to 1024"),
        ("--block-size", "-5", "got -5, expected 2 to 1024"),
        ("--rope-theta", "nan", "got nan, expected 1e-38 to"),
        ("--rms-eps", "-1", "got -1.0, expected 1e-38 to"),
        ("--context-length", "0", "got 0, expected 1 to"),
        ("--target-layers", "1,1", "got '1,1', expected each layer once"),
        ("--target-layers", "-2,1", "got -2, expected -1 to"),
        ("--sliding-layers", "0,512", "got 512, expected 0 to 511"),
        ("--mask-token-id", "-1", "got -1, expected 0 to"),
    ],
)
def test_a_value_that_no_drafter_has_is_the_flags_fault(tmp_path, flag, value, expected):
    line = one_line_error(dflash("rekey", tmp_path / "none.gguf", tmp_path / "new.gguf", f"{flag}={value}"), 1)
    assert f"`{flag}`" in line
    assert expected in line
    assert "none.gguf" not in line


@pytest.mark.parametrize("given", [["--sample-from-anchor"], ["--selector-top-k", "4"]])
def test_a_value_of_another_kind_of_drafter(files, tmp_path, given):
    line = one_line_error(dflash(*words(files, tmp_path / "new.gguf"), *given), 1)
    assert f"leave `{given[0]}" in line


def test_every_value_has_its_flag(files, tmp_path):
    shown = run("rekey", "--help").stdout
    for row in QUESTIONS:
        assert row.usage.replace("/", " / ") in shown
    given = ["--block-size", 4, "--mask-token-id", 7, "--target-layers", "0,1,2", "--rope-theta", 5e5, "--causal"]
    given += ["--embedding-scale", 2]
    plan = json.loads(run(*words(files, tmp_path / "new.gguf"), *given, "--dry-run", "--json").stdout)
    values = {row["new"]: row["value"] for row in plan["keys"]}
    assert values["dflash.block_size"] == "4"
    assert values["tokenizer.ggml.mask_token_id"] == "7"
    assert values["dflash.target_layers"] == "[1, 2, 3]"
    assert values["dflash.attention.causal"] == "True"
    assert values["dflash.embedding_scale"] == "2.0"


@pytest.mark.parametrize("flag", ["--sliding-layers", "--target-layers"])
def test_layers_that_are_no_numbers(files, tmp_path, flag):
    done = CliRunner().invoke(root, [*map(str, words(files, tmp_path / "new.gguf")), flag, "1,x"])
    assert done.exit_code == 2
    assert flag in done.stderr


HOSTILE = "\x1b[31mred\x07\u202e\n"


@pytest.fixture
def hostile(files, tmp_path):
    """A fork's file that names a key and a value so as to command a terminal."""
    style = forks.Style(
        "dflash-draft",
        forks.STYLES["buun"].keys,
        forks.STYLES["buun"].tensors,
        drop=("dflash.attention.causal",),
        extra={
            f"dflash-draft.{HOSTILE}": (1, forks.UINT32),
            "dflash-draft.hidden_activation": ("silu", forks.STRING),
        },
        vocabulary=True,
    )
    return forks.write_fork(files[0], tmp_path / "hostile.gguf", style)


def test_what_a_file_says_does_not_reach_the_terminal_as_it_is(hostile, tmp_path):
    done = dflash("rekey", hostile, tmp_path / "new.gguf", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert not {char for char in done.stdout + done.stderr if not char.isprintable()} - {"\n"}
    assert "dflash-draft.\\x1b[31mred\\x07\\u202e\\n" in done.stdout


def test_nor_a_terminal_that_is_one(hostile, tmp_path):
    """Into a pipe, click itself leaves out what colours."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dflash_gguf", "rekey", str(hostile), str(tmp_path / "new.gguf"), "--dry-run"]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # Linux's way to say that the other end is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    assert b"\\x1b[31mred" in shown
    assert not set(shown) & {0x1B, 0x07}


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
@pytest.mark.parametrize("mode", [[], ["--json"]])
def test_a_name_that_is_no_text_under_a_strict_locale(files, tmp_path, encoding, mode):
    odd = os.fsdecode(bytes(tmp_path) + b"/\xff\xc3\xbc.gguf")
    try:
        files[0].rename(odd)
    except OSError:
        pytest.skip("this file system takes no such name")
    new = os.fsdecode(bytes(tmp_path) + b"/\xfe\xc3\xbc.gguf")
    for words in (["rekey", odd, new], ["check", "-m", str(files[2]), "-md", odd], ["inspect", odd]):
        done = subprocess.run(
            [sys.executable, "-m", "dflash_gguf", *words, *mode],
            capture_output=True,
            check=False,
            env=os.environ | {"PYTHONIOENCODING": encoding},
        )
        assert done.returncode == 0, done.stderr
        assert mode == [] or json.loads(done.stdout)
