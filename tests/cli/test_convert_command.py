"""``convert``: the plan that ``--dry-run`` prints is what is written; a flag for every value of `Overrides`."""

from __future__ import annotations

import json

import pytest
import zoo
from click.testing import CliRunner
from families import target_of
from test_commands import dflash, one_line_error

import dflash_gguf
from dflash_gguf.cli import root
from dflash_gguf.convert.overrides import TABLE
from dflash_gguf.errors import CheckpointError
from dflash_gguf.ggml_types import type_name
from dflash_gguf.gguf_header import read_header


def run(*words):
    """One command in this process; a failure is raised."""
    return CliRunner().invoke(root, [str(word) for word in words], standalone_mode=False, catch_exceptions=False)


@pytest.fixture
def words(tmp_path):
    """A drafter whose config lacks its block size, with embeddings of its own, and its target."""
    checkpoint = zoo.write_checkpoint("nemotron-v1", tmp_path)
    return ["convert", checkpoint, "--target", target_of("nemotron-v1"), "-o", tmp_path / "out.gguf"]


@pytest.mark.parametrize("quant", ["BF16", "Q4_K_M"])
def test_the_plan_is_the_file(tmp_path, words, quant):
    chosen = [*words, "--quant", quant, "--block-size", 8]
    plan = json.loads(run(*chosen, "--dry-run", "--json").stdout)
    assert not (tmp_path / "out.gguf").exists()
    result = json.loads(run(*chosen, "--json").stdout)
    header = read_header(tmp_path / "out.gguf")
    assert [row["key"] for row in plan["keys"]] == list(header.keys)
    assert all(row["value"] == header.integer(row["key"]) for row in plan["keys"] if row["type"] == "uint32")
    assert [(row["name"], row["shape"], row["type"], row["n_bytes"]) for row in plan["tensors"]] == [
        (t.name, list(t.shape), type_name(t.type), t.nbytes) for t in header.tensors.values()
    ]
    assert plan["n_bytes"] == (tmp_path / "out.gguf").stat().st_size
    for name in ("n_bytes", "n_weights", "bits_per_weight", "tensor_types", "quant"):
        assert plan[name] == result[name]
    assert plan["notes"] == list(result["notes"])


def test_a_misspelt_pattern_is_told_and_what_stays_packed_is_no_match(words):
    patterns = ["--tensor-type", "attn_qq=q8_0", "--tensor-type", "ffn_gate=q8_0", "--tensor-type", "attn_q=q8_0"]
    plan = json.loads(run(*words, "--block-size", 8, "--dry-run", "--json", *patterns).stdout)
    told = [note.split("`")[1] for note in plan["notes"] if note.startswith("the pattern")]
    assert told == ["attn_qq", "ffn_gate"]


def test_the_plan_for_a_person(words):
    shown = run(*words, "--block-size", 8, "--dry-run")
    lines = shown.stdout.splitlines()
    assert any(line.split() == ["dflash.block_size", "uint32", "8"] for line in lines)
    assert any(line.startswith("tokenizer.ggml.tokens") and line.endswith("512 items") for line in lines)
    row = next(line for line in lines if line.startswith("blk.0.ffn_gate.weight"))
    assert row.split() == ["blk.0.ffn_gate.weight", "[256,", "512]", "NVFP4", "73728", "layers.0.mlp.gate_proj.weight"]
    assert "bits per weight" in lines[-2]
    assert lines[-1] == "nothing was written"
    assert "is taken from the target" in shown.stderr


def test_a_value_that_is_missing_names_its_flag(words):
    with pytest.raises(CheckpointError, match="pass `--block-size`"):
        run(*words)


def test_every_value_has_its_flag(words):
    shown = run("convert", "--help").stdout
    for row in TABLE:
        assert row.flag in shown
        assert row.off in shown
    given = ["--block-size", 4, "--mask-token-id", 7, "--target-layers", "0,1,2", "--rope-theta", 5e5, "--causal"]
    given += ["--embedding-scale", 2, "--partial-rotary-factor", 0.5, "--sample-from-anchor"]
    plan = json.loads(run(*words, *given, "--dry-run", "--json").stdout)
    keys = {row["key"]: row["value"] for row in plan["keys"]}
    assert keys["dflash.block_size"] == 4
    assert keys["tokenizer.ggml.mask_token_id"] == 7
    assert keys["dflash.target_layers"] == [1, 2, 3]
    assert keys["dflash.rope.freq_base"] == 5e5
    assert keys["dflash.attention.causal"] is True
    assert keys["dflash.embedding_scale"] == 2
    assert keys["dflash.rope.dimension_count"] == 32
    assert keys["dflash.sample_from_anchor"] is True


def test_layers_that_are_no_numbers(words):
    done = CliRunner().invoke(root, [*map(str, words), "--target-layers", "1,x"])
    assert done.exit_code == 2
    assert "--target-layers" in done.stderr


def test_overrides_are_public():
    assert dflash_gguf.Overrides(block_size=8).block_size == 8
    assert dflash_gguf.Overrides() == dflash_gguf.Overrides(causal=None)


def test_a_dry_run_refuses_what_the_run_would(tiny_checkpoint, tiny_target, tmp_path):
    out = tmp_path / "there.gguf"
    out.write_bytes(b"x")
    words = ["convert", tiny_checkpoint, "--target", tiny_target, "-o", out, "--dry-run"]
    assert "exists already" in one_line_error(dflash(*words), 1)
    assert dflash(*words, "--force").returncode == 0
    assert out.read_bytes() == b"x"
