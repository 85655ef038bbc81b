"""The demo's training prompts: many, always the same, and none that drafters are measured by."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_gguf.bench.prompts import built_in
from dflash_gguf.demo.prompts import HELD_OUT, N_GENERAL, N_STRUCTURED, TEMPLATES, demo_prompts
from dflash_gguf.train.prompts import read_prompts

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "demo_prompts.py"
MEASURED = [prompt.turns[0] for prompt in built_in()]


def words(text):
    return " ".join("".join(char if char.isalnum() else " " for char in text.lower()).split())


def test_no_training_prompt_contains_a_built_in_one_or_its_template():
    prompts = demo_prompts()
    for measured in MEASURED:
        assert not [prompt for prompt in prompts if words(measured) in words(prompt)]
    for template in TEMPLATES:
        assert not [prompt for prompt in prompts if template.search(prompt)]


def test_each_built_in_prompt_has_its_template():
    for measured in MEASURED:
        assert sum(bool(template.search(measured)) for template in TEMPLATES) == 1, measured


@pytest.mark.parametrize(
    "text",
    [
        "Count from 0 to 9.",
        "Please write the multiplication table of 12.",
        "Write a Java function that adds two numbers.",
        "Write the numbers from 1 to 9 in steps of 2.",
    ],
)
def test_a_template_finds_its_own_in_other_words_and_numbers(text):
    assert any(template.search(text) for template in TEMPLATES)


def test_they_are_the_same_everywhere():
    prompts = demo_prompts()
    assert len(prompts) == N_STRUCTURED + N_GENERAL == 1850
    assert len(set(map(words, prompts))) == len(prompts)
    assert HELD_OUT >= 70
    digest = hashlib.sha256("\n".join(prompts).encode()).hexdigest()
    assert digest == "253ad02b1eba8cffb56c7539d5d569c039b3d146832159e1199a03609525b4b2"


def test_the_script_writes_what_train_reads(tmp_path):
    out = tmp_path / "prompts.jsonl"
    out.write_bytes(subprocess.run([sys.executable, SCRIPT], capture_output=True, check=True, timeout=60).stdout)
    assert [prompt.messages for prompt in read_prompts(out)] == [(("user", text),) for text in demo_prompts()]
