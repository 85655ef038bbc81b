"""``rekey``: what ``--dry-run`` prints is what is written; refusals are one line; nothing to change says so."""

from __future__ import annotations

import json

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


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_file_in_the_way(files, tmp_path, dry):
    new = tmp_path / "new.gguf"
    new.write_bytes(b"x")
    assert "`--force`" in one_line_error(dflash(*words(files, new), *dry), 1)
    assert "one of the inputs" in one_line_error(dflash(*words(files, files[1]), "--force", *dry), 1)
    assert new.read_bytes() == b"x"


def test_every_value_has_its_flag(files, tmp_path):
    shown = run("rekey", "--help").stdout
    for row in QUESTIONS:
        assert row.usage.replace("/", " / ") in shown
    given = ["--block-size", 4, "--mask-token-id", 7, "--target-layers", "0,1,2", "--rope-theta", 5e5, "--causal"]
    given += ["--embedding-scale", 2, "--sample-from-anchor"]
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
