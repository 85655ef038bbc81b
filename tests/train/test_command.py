"""``train`` as a user types it, in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = ["-t", 1, "--max-tokens", 24, "-c", 128, "--held-out", 3, "--texts", 2, "--anchors", 4, "--layers", 1]


@pytest.fixture(scope="module")
def words(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    prompts = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(9)))
    cache = tmp_path_factory.mktemp("cache")
    return ["train", "-m", tiny_target, "--prompts", prompts, "--cache", cache, *SMALL]


def command(*words: Any) -> list[str]:
    return [sys.executable, "-m", "dflash_gguf", *map(str, words)]


def dflash(*words: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def running(*words: Any) -> Iterator[subprocess.Popen[str]]:
    """The command, killed at the end, so that a test which fails does not wait for all its steps."""
    with subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


def test_it_ends_with_the_curve_and_the_next_command(words: list[Any], tmp_path: Path) -> None:
    out, plot = tmp_path / "out", tmp_path / "curve.svg"
    done = dflash(*words, "-o", out, "--steps", 6, "--eval-every", 2, "--plot", plot)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("loss ")
    assert lines[1].startswith("acceptance length ")
    assert lines[2].strip() == "after 2 to 6 steps, 48 blocks; acceptance in PyTorch, along at most 48 tokens an answer"
    assert lines[3] == f"wrote {out}: DFlash 2, 1 layers, block 8, {lines[3].split(', ')[-1]}"
    assert lines[4].startswith("acceptance length in libllama ")
    assert lines[4].endswith(", drafting along the whole of 3 held-out answers as a session does")
    assert lines[-1] == f"next: dflash-gguf convert {out} --target {words[2]}"
    assert "need" in done.stderr.splitlines()[0]
    assert ", acceptance length in PyTorch " in done.stderr.splitlines()[-2]
    told = [line.split(",")[0] for line in done.stderr.splitlines()[1:]]
    assert told == ["step 2", "step 4", "step 6", f"wrote {plot}"]
    assert plot.read_text().startswith("<?xml")
    made = dflash("convert", out, "--target", words[2], "--quant", "F16", "-o", tmp_path / "drafter.gguf")
    assert made.returncode == 0, made.stderr
    ran = dflash("run", "-m", words[2], "-md", tmp_path / "drafter.gguf", "-p", "say 3", "-n", 8, "-t", 1, "-c", 128)
    assert ran.returncode == 0, ran.stderr


def test_the_next_command_is_one_whatever_the_folder_is_called(words: list[Any], tmp_path: Path) -> None:
    """Nor does an empty name stand for the current folder."""
    done = subprocess.run(
        command(*words, "-o", "./-dash", "--steps", 2), capture_output=True, text=True, timeout=120, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"next: dflash-gguf convert ./-dash --target {words[2]}"
    empty = dflash(*words, "-o", "", "--steps", 2)
    assert empty.returncode == 2
    assert "Invalid value for '-o' / '--out': got an empty text, expected a path" in empty.stderr


def test_json_is_one_object(words: list[Any], tmp_path: Path) -> None:
    done = dflash(*words, "-o", tmp_path / "out", "--steps", 2, "--kind", "dflash", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["path"] == str(tmp_path / "out")
    assert found["config"]["architectures"] == ["DFlashDraftModel"]
    assert [point["step"] for point in found["points"]] == [2]
    assert found["measured"]["n_texts"] == 3
    assert not done.stderr


def test_an_interrupted_training_goes_on_to_the_same_weights(words: list[Any], tmp_path: Path) -> None:
    """Stopped by Ctrl-C at the first line that it prints of a measurement, with many more steps to go."""
    options = ["--steps", 300, "--eval-every", 104]
    whole = dflash(*words, "-o", tmp_path / "whole", *options)
    assert whole.returncode == 0, whole.stderr
    with running(*words, "-o", tmp_path / "broken", *options) as run:
        assert any(line.startswith("step 104,") for line in run.stderr)
        run.send_signal(signal.SIGINT)
        rest = run.stderr.read()
        run.wait(60)
    assert run.returncode == 130, rest
    kept = f"`{tmp_path / 'broken' / 'training.pt'}` is kept: go on with it by `--resume`"
    assert rest.splitlines()[-3:] == [kept, "", "interrupted"]
    assert not (tmp_path / "broken" / "model.safetensors").exists()
    again = dflash(*words, "-o", tmp_path / "broken", *options)
    assert again.returncode == 1
    assert "pass `--resume` to go on with it" in again.stderr
    again = dflash(*words, "-o", tmp_path / "broken", *options, "--resume")
    assert again.returncode == 0, again.stderr
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "broken")]
    assert weights[0] == weights[1]


def test_going_on_keeps_the_length_or_takes_a_longer_one_and_draws_the_curve_anew(
    words: list[Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run = [*words, "-o", out, "--json", "--plot", out / "curve.svg"]
    goes = (["--steps", 3], [0, [3]]), (["--resume"], [0, [3]]), (["--resume", "--steps", 5], [1, [3, 5]])
    for more, (n_restarts, steps) in goes:
        done = dflash(*run, *more)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert [point["step"] for point in found["points"]] == steps
        assert found["restarts"] == [3] * n_restarts
        assert (out / "curve.svg").read_text().startswith("<?xml")
        (out / "curve.svg").write_text("of the run before")
    assert "on another course from step 3 on" in (out / "README.md").read_text()
    shorter = dflash(*run, "--resume", "--steps", 4)
    assert shorter.returncode == 1
    assert "expected more than the 5 steps" in shorter.stderr


@pytest.mark.parametrize(
    ("more", "code", "named"),
    [
        (["--steps", 3, "--minutes", 1], 2, "give --minutes or --steps, not both"),
        (["--taps", "a,b"], 2, "is no list of layers, such as 1,10,19,28"),
        (["--steps", 3, "--plot", "curve.txt"], 2, "ends in none of .png, .svg, .pdf"),
        (["--steps", 3, "--model-draft", "drafter.gguf"], 2, "No such option '--model-draft'"),
        (["--resume", "--force"], 2, "give --resume or --force, not both"),
        (["--kind", "dflash", "--top-k", 16], 2, "--top-k is of --kind dflash2 alone: leave it out"),
        (["--kind", "dflash", "--conv-group", 8], 2, "--conv-group is of --kind dflash2 alone"),
        (["--seed", 1 << 64], 2, f"is not in the range 0<=x<={(1 << 64) - 1}"),
        (["--steps", 3, "--torch-device", "mps"], 1, "PyTorch does not find the device: got 'mps', expected one of"),
        (["--steps", 3, "--held-out", 9], 1, "expected more than the 9 that are held out"),
        (["--steps", 3, "--mask-id", 5], 1, "expected a reserved one, such as 3"),
    ],
)
def test_what_makes_no_sense_is_told_in_a_line(
    more: list[Any], code: int, named: str, words: list[Any], tmp_path: Path
) -> None:
    done = dflash(*words, "-o", tmp_path / "out", *more)
    assert done.returncode == code
    assert named in done.stderr.splitlines()[-1]
    assert not done.stdout


def test_after_a_prompt_that_is_too_long_the_corrected_run_goes_on(words: list[Any], tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out"
    texts = [f"say {i}" for i in range(9)]
    run = ["train", "-m", words[2], "--prompts", prompts, *SMALL, "-o", out, "--steps", 2]
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in [*texts, "say " * 200]))
    refused = dflash(*run)
    assert refused.returncode == 1
    assert f"`{prompts}`, line 10: tokens of the prompt: got " in refused.stderr
    assert not any(out.iterdir())
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    done = dflash(*run)
    assert done.returncode == 0, done.stderr
    assert "  after 2 steps, 16 blocks; " in done.stdout
    assert "2 steps, 16 blocks, 0 seconds; AdamW" in (out / "README.md").read_text()


def test_a_second_run_in_the_folder_is_refused(words: list[Any], tmp_path: Path) -> None:
    out, options = tmp_path / "out", ["--steps", 100000, "--eval-every", 101]
    with running(*words, "-o", out, *options) as run:
        assert any(line.startswith("step 101,") for line in run.stderr)
        second = dflash(*words, "-o", out, *options, "--resume")
    assert second.returncode == 1
    assert f"`{out}` is being written by another run" in second.stderr


def test_a_forced_run_that_was_killed_leaves_nothing_of_the_first_to_go_on_with(
    words: list[Any], tmp_path: Path
) -> None:
    first = dflash(*words, "-o", tmp_path, "--steps", 2)
    assert first.returncode == 0, first.stderr
    with running(*words, "-o", tmp_path, "--force", "--steps", 100000, "--eval-every", 10) as run:
        assert any(line.startswith("step 10,") for line in run.stderr)
    assert not (tmp_path / "training.pt").exists()


def test_the_targets_own_context_and_a_drafter_of_the_environment(
    words: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_SPEC_DRAFT_HF_REPO", "org/drafter")
    done = dflash(*words, "--cache", tmp_path / "cache", "-o", tmp_path / "out", "--steps", 2, "-c", 0)
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "cache" / "answers.jsonl").read_text().splitlines()[0])
    assert first["n_ctx"] == 2048


def test_no_other_command_loads_pytorch() -> None:
    """Nor does `train` before it has read its options."""
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom dflash_gguf.cli import root\n"
        "import dflash_gguf.train.api\n"
        "for name in root.list_commands(None): CliRunner().invoke(root, [name, '--help'], catch_exceptions=False)\n"
        "print(len(root.list_commands(None)) > 12, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr
