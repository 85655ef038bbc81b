"""``bench quants`` on a tiny pair: files of each type, what they are worth, and a picture of it."""

from __future__ import annotations

import json

import pytest
from test_commands import dflash, one_line_error

from dflash_gguf.bench.quants import KindOfType, TypeResult
from dflash_gguf.bench.quants_report import of_types
from dflash_gguf.quantize.api import quantize
from dflash_gguf.quantize.mixes import MIXES


@pytest.fixture
def words(tiny_target, tiny_checkpoint):
    return [
        "bench",
        "quants",
        "-m",
        tiny_target,
        "--checkpoint",
        tiny_checkpoint,
        "-t",
        1,
        "-n",
        8,
        "--limit",
        2,
        "-c",
        256,
    ]


def test_a_person_sees_a_table_and_gets_a_picture(words, tmp_path):
    mix = next(iter(MIXES))
    types = f"Q4_0,{mix},BF16"
    done = dflash(*words, "--types", types, "--plot", tmp_path / "p.png", "--keep", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("type "))
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == types.split(",")
    assert lines[-1].startswith("the smallest within 1% of the longest acceptance length")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    kept = sorted(path.name for path in tmp_path.glob("*.gguf"))
    assert kept == sorted(f"tiny-qwen3-Q8_0-dflash-{name}.gguf" for name in types.split(","))
    assert "Q4_0: quantizing" in done.stderr


def test_json_from_a_gguf(words, tiny_drafter):
    words[words.index("--checkpoint") + 1] = tiny_drafter
    done = dflash(*words, "--types", "q8_0", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["types"]
    assert row["name"] == "q8_0"
    assert row["kinds"][-1]["kind"] == "all"
    assert row["kinds"][-1]["acceptance_length"] >= 1
    assert row["n_bytes"] > 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--types", "Q9"], "Q9 is no type or mix; choose from F32, "),
        (["--types", ","], "no type is named"),
        (["--types", "COPY"], "COPY is no type or mix"),
    ],
)
def test_types_that_are_none(words, more, message):
    assert message in one_line_error(dflash(*words, *more), 2)


def test_a_type_that_cannot_be_made_is_told_before_any_is_measured(words, tiny_drafter):
    for source in (words[words.index("--checkpoint") + 1], tiny_drafter):
        words[words.index("--checkpoint") + 1] = source
        error = one_line_error(dflash(*words, "--types", "Q4_0,IQ2_XXS,Q8_0"), 1)
        assert "IQ2_XXS, which needs an importance matrix" in error
    words[words.index("-m") + 1] = "none.gguf"
    assert "`none.gguf` cannot be read" in one_line_error(dflash(*words, "--types", "Q4_0"), 1)


def test_blocks_are_no_source_and_the_remedy_can_be_followed(words, tiny_drafter, tmp_path):
    words[words.index("--checkpoint") + 1] = quantize(tiny_drafter, tmp_path / "q.gguf", "Q8_0").path
    error = one_line_error(dflash(*words, "--types", "Q4_0"), 1)
    assert "start from a file of F32, BF16 or F16, or pass `--allow-requantize` of `dflash-gguf quantize`" in error


def test_files_that_are_kept_replace_none(words, tmp_path):
    old = tmp_path / "tiny-qwen3-Q8_0-dflash-Q8_0.gguf"
    old.write_text("precious")
    error = one_line_error(dflash(*words, "--types", "Q4_0,Q8_0", "--keep", tmp_path), 1)
    assert "Q8_0.gguf` exists already; pass `--force`" in error
    assert old.read_text() == "precious"
    assert dflash(*words, "--types", "Q8_0", "--keep", tmp_path, "--force").returncode == 0
    assert old.read_bytes()[:4] == b"GGUF"


def test_options_before_the_word(tiny_target):
    error = one_line_error(dflash("bench", "--limit", 3, "quants", "-m", tiny_target, "--checkpoint", "x"), 2)
    assert "--limit belongs behind `quants`" in error


def test_the_smallest_that_is_as_good_is_named():
    rows = [
        TypeResult(name, n_bytes, 4.5, 0, (KindOfType("code", length, 1.0), KindOfType("all", length, 1.0)))
        for name, n_bytes, length in (("BF16", 300, 3.0), ("Q8_0", 200, 2.98), ("Q4_0", 100, 2.9))
    ]
    report = of_types(rows, {})
    assert report.verdicts == (
        "the smallest within 1% of the longest acceptance length, 3.000: Q8_0, 0.0 MB and 2.980",
    )
    assert report.charts[0].places == ("Q4_0", "Q8_0", "BF16")
