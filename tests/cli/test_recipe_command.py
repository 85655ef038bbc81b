"""`recipe` as a user types it."""

from __future__ import annotations

import json
import shlex

import pytest
from published import write_config
from test_commands import dflash, one_line_error

from dflash_gguf.cli.recipe import ENGINES as CHOICES
from dflash_gguf.recipes.table import ENGINES


@pytest.fixture
def words(tmp_path):
    return ["--target", "Qwen/Qwen3.8-27B", "--draft", write_config(tmp_path, "Qwen3.8-27B-DFlash2")]


def test_the_choices_are_the_table():
    assert tuple(ENGINES) == CHOICES


def test_the_recipe_goes_to_stdout_and_warnings_to_stderr(words):
    done = dflash("recipe", "vllm", *words, "--concurrency", 32)
    assert done.returncode == 0
    assert "# num_speculative_tokens 7: block size - 1" in done.stdout
    assert "warning" not in done.stdout
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())
    assert "gains nothing" in done.stderr


def test_json_holds_words_and_reasons(words):
    done = dflash("recipe", "sglang", *words, "--gpus", 2, "--json")
    found = json.loads(done.stdout)
    assert (found["engine"], found["block_size"], found["depth"]) == ("sglang", 8, 8)
    (launch,) = [step for step in found["steps"] if step["title"] == "launch"]
    assert launch["words"][:3] == ["python", "-m", "sglang.launch_server"]
    assert {"words": "--tp-size", "why": "the target over 2 GPUs"} in launch["reasons"]
    assert found["text"].startswith("# SGLang: DFlash 2 drafter, block size 8\n")
    assert found["checked"]
    assert found["source"]


def test_bits(words):
    found = json.loads(dflash("recipe", "omlx", *words, "--mlx-bits", 4, "--json").stdout)
    assert found["depth"] == 5


def test_a_folder_with_a_line_break_in_its_name_stays_one_word(tmp_path):
    draft = write_config(tmp_path / "a\nb", "Qwen3.8-27B-DFlash2")
    done = dflash("recipe", "sglang", "--target", "a/b", "--draft", draft)
    assert str(draft) in shlex.split(done.stdout, comments=True)


def test_list():
    done = dflash("recipe", "list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["engine", *ENGINES]
    found = json.loads(dflash("recipe", "list", "--json").stdout)["engines"]
    assert [row["name"] for row in found] == list(ENGINES)
    assert all(row["source"] and row["checked"] and row["counting"] for row in found)


def test_wrong_usage(words, tmp_path):
    assert "--target and --draft are needed" in one_line_error(dflash("recipe", "vllm"), 2)
    assert "lightllm" in one_line_error(dflash("recipe", "lightllm", *words), 2)
    assert "--concurrency" in one_line_error(dflash("recipe", "vllm", *words, "--concurrency", 0), 2)
    (tmp_path / "target").mkdir()
    done = dflash("recipe", "vllm", "--target", "a/b", "--draft", tmp_path / "target")
    assert "holds 0 GGUF files" in one_line_error(done, 1)
    done = dflash("recipe", "vllm", "--target", "a/b", "--draft", tmp_path / "absent.gguf", "--json")
    assert done.returncode == 1
    assert "does not exist" in json.loads(done.stdout)["error"]
