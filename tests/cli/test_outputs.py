"""No command that writes replaces what it reads, whatever --force says."""

from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from dflash_gguf.cli import root
from dflash_gguf.errors import OutputError

BENCH = ["bench", "-m", "target.gguf", "-md", "draft.gguf", "-t", "1", "-c", "256"]
QUANTS = ["bench", "quants", "-m", "target.gguf", "--checkpoint", "folder", "-t", "1", "-c", "256"]
TRAIN = ["train", "-m", "target.gguf"]
CASES = {
    "prompts.txt": [*BENCH, "--prompts", "prompts.txt", "--html", "prompts.txt"],
    "p.svg": [*BENCH, "--prompts", "p.svg", "--plot", "p.svg"],
    "p.html.partial": [*BENCH, "--prompts", "p.html.partial", "--html", "p.html"],
    "target.gguf": [*BENCH, "--html", "target.gguf"],
    "draft.gguf": [*BENCH, "--html", "draft.gguf"],
    "rules.gbnf": [*BENCH, "--grammar-file", "rules.gbnf", "--html", "rules.gbnf"],
    "dflash-target.gguf": ["bench", "-m", "target.gguf", "--html", "dflash-target.gguf"],
    "folder/config.json": [*QUANTS, "--html", "folder/config.json"],
    "matrix": [*QUANTS, "--imatrix", "matrix", "--html", "matrix"],
    "kept/target-dflash-BF16.gguf": [
        *QUANTS, "--checkpoint", "kept/target-dflash-BF16.gguf", "--types", "Q4_0,BF16", "--keep", "kept",
    ],
    "out/README.md": [*TRAIN, "--prompts", "out/README.md", "-o", "out"],
    "out/corpus/answers.jsonl": [*TRAIN, "--prompts", "out/corpus/answers.jsonl", "-o", "out"],
    "out/config.json": [*TRAIN, "--prompts", "prompts.txt", "--features-from", "out/config.json", "-o", "out"],
    "curve.png": [*TRAIN, "--prompts", "curve.png", "-o", "out", "--plot", "curve.png"],
    "body.txt": ["modelfile", "-m", "target.gguf", "-md", "draft.gguf", "--template", "@body.txt", "-o", "body.txt"],
    "terms": ["modelfile", "-m", "target.gguf", "-md", "draft.gguf", "--license", "@terms", "-o", "terms"],
    "weights": ["convert", "folder", "--target", "target.gguf", "--imatrix", "weights", "-o", "weights"],
    "text.txt": ["imatrix", "-m", "target.gguf", "-md", "draft.gguf", "-f", "text.txt", "-o", "text.txt"],
}  # fmt: skip
"""What is read, and would be replaced -> a command line."""


@pytest.fixture
def here(tmp_path, monkeypatch, tiny_target, tiny_drafter, tiny_checkpoint):
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(tiny_target, "target.gguf")
    shutil.copytree(tiny_checkpoint, "folder")
    (tmp_path / "out" / "corpus").mkdir(parents=True)
    (tmp_path / "kept").mkdir()
    for name in ("draft.gguf", "dflash-target.gguf", "kept/target-dflash-BF16.gguf"):
        shutil.copyfile(tiny_drafter, name)
    for name in CASES:
        if not (tmp_path / name).exists():
            (tmp_path / name).write_text('root ::= "x"\n')
    (tmp_path / "prompts.txt").write_text("Count.\n")
    return tmp_path


@pytest.mark.parametrize("name", list(CASES))
def test_an_input_is_no_output(here, name):
    before = (here / name).read_bytes()
    there = sorted(here.rglob("*"))
    done = CliRunner().invoke(root, [*CASES[name], "--force"], standalone_mode=False)
    assert isinstance(done.exception, OutputError), done.exception
    assert "is one of the inputs; choose another name for the output" in str(done.exception)
    assert (here / name).read_bytes() == before
    assert sorted(here.rglob("*")) == there
