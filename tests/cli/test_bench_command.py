"""``dflash-gguf bench`` as a user types it."""

import json
import os
import subprocess
import sys

import pytest
from bench_server import chat, serving
from test_commands import dflash, one_line_error

from dflash_gguf.runner.prompts import PROMPTS


@pytest.fixture
def words(tiny_target, tiny_drafter):
    """Drafts of random weights are worth nothing: verified at every depth, they cost."""
    model = ["-m", tiny_target, "-md", tiny_drafter, "-t", 1, "-c", 256]
    return ["bench", *model, "-n", 8, "--runs", 1, "--depth", "fixed"]


def test_a_person_sees_tables_and_a_verdict_and_gets_a_page_and_a_picture(words, tmp_path):
    files = ["--html", tmp_path / "a.html", "--plot", tmp_path / "a.png"]
    done = dflash(*words, "--limit", 3, "--gpu-hour", 2.5, *files)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for title in ("Accepted of the verified drafts, by position", "Where the time goes, with the drafter", "Cost"):
        assert title in lines
    assert lines[0] == f"target: {words[2].name}"
    assert lines[-1].startswith("all: slower than without the drafter: do not use it (0.")
    assert [line.split(":")[0] for line in lines[-4:-1]] == ["structured", "code", "prose"]
    assert "[1/3] structured: Count from 15 to 60." in done.stderr
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    again = dflash(*words, *files)
    assert "exists already; pass `--force`" in one_line_error(again, 1)


def test_json_is_one_object_that_agrees_with_itself(words):
    done = dflash(*words, "--json", "--limit", 4, "--gpu-hour", 1, "--temp", 0.5, "--top-k", 20, "--seed", 7)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert [pair["prompt"] for pair in found["pairs"]] == [PROMPTS[i].text for i in (0, 1, 4, 7)]
    (setting,) = found["settings"]
    assert found["best"] is None
    assert found["slower"] == ["structured", "code", "prose", "all"]
    for row in setting["kinds"]:
        pairs = [pair for pair in found["pairs"] if pair["kind"] == row["kind"]]
        assert row["n"] == len(pairs)
        assert row["drafts"]["draft_n"] == sum(pair["drafted"]["draft_n"] for pair in pairs)
        assert row["speed"]["lowest"] == pytest.approx(min(pair["ratio"] for pair in pairs))
        assert row["verdict"] == "slower"
    assert set(found["costs"]) == {"structured", "code", "prose", "all"}
    assert found["facts"]["sampling"] == "temperature 0.5, top_k 20, seed 7"


def test_a_sweep_measures_every_depth(words):
    done = dflash(*words, "--limit", 1, "--sweep", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(s["name"], s["depth"]) for s in found["settings"]] == [("auto", None), *((str(n), n) for n in range(1, 8))]
    for setting in found["settings"][1:]:
        assert len(setting["all"]["drafts"]["accepted_per_position"]) <= setting["depth"]
    best = max(found["settings"], key=lambda s: s["all"]["speed"]["ratio"])
    assert found["best"] == best["name"]
    assert f"best at depth {best['name']}" in found["verdicts"][0]


def test_verbose_shows_what_depth_control_found(words):
    auto = [*words[:-1], "auto", "--limit", 1]
    (line,) = (line for line in dflash(*auto, "-v").stderr.splitlines() if line.startswith("depth control"))
    said = "depth control: a target pass of 1 to 8 tokens takes "
    assert line.startswith(said)
    assert len(line.removeprefix(said).split(" ms; ")[0].split()) == 8
    for quiet in (dflash(*auto), dflash(*words, "--limit", 1, "-v")):
        assert quiet.returncode == 0
        assert "depth control" not in quiet.stderr


def test_a_grammar_is_named_among_the_facts(words, tmp_path):
    (tmp_path / "four.gbnf").write_text("root ::= [a-f]{4}", encoding="utf-8")
    (tmp_path / "any.json").write_text("{}", encoding="utf-8")
    for option, shown in (
        (["--grammar-file", tmp_path / "four.gbnf"], "temperature 0, grammar of four.gbnf"),
        (["-jf", tmp_path / "any.json"], "temperature 0, json_schema of any.json"),
        (["--grammar", "root ::= [a-f]{4}"], "temperature 0, grammar root ::= [a-f]{4}"),
        (["-j", "{}"], "temperature 0, json_schema {}"),
    ):
        done = dflash(*words, "--limit", 1, *option)
        assert done.returncode == 0, done.stderr
        assert f"sampling: {shown}" in done.stdout.splitlines()


def test_slower_is_a_failure_only_when_asked(words):
    done = dflash(*words, "--limit", 1, "--fail-if-slower", "--json", "--spec-draft-n-max", 99)
    assert done.stderr == "warning: `spec_draft_n_max` 99 is more than the drafter's block holds: drafting 7\n"
    assert done.returncode == 3
    assert json.loads(done.stdout)["slower"] == ["structured"]


def test_prompts_of_a_file(words, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "hi", "kind": "short"}\n{"turns": ["a", "b"], "kind": "chat"}\n')
    found = json.loads(dflash(*words, "--prompts", tmp_path / "p.jsonl", "--json").stdout)
    assert [(pair["kind"], pair["turn"]) for pair in found["pairs"]] == [("short", 0), ("chat", 0), ("chat", 1)]
    (tmp_path / "p.jsonl").write_text('{"prompt": "hi"}\n{"prompt": 1}\n')
    message = one_line_error(dflash(*words, "--prompts", tmp_path / "p.jsonl"), 1)
    assert "p.jsonl`, line 2: `prompt`: got 1, expected a text" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name the target with -m or -hf, or a server with --server"),
        (["-m", "x", "-md", "y", "--concurrency", "2"], "--concurrency needs --server"),
        (["-m", "x", "-md", "y", "--prompts", "p", "--dataset", "mbpp"], "give --prompts or --dataset, not both"),
        (["--server", "http://x", "-m", "x"], "--model does not go with --server"),
        (["--server", "http://x", "--sweep"], "--sweep does not go with --server"),
        (["--server", "http://x", "-ngl", "3"], "--n-gpu-layers does not go with --server"),
        (["--server", "http://x", "--no-mmap"], "--mmap does not go with --server"),
        (["--server", "http://x", "--exact"], "--exact does not go with --server"),
        (["--server", "http://x", "-j", "{}"], "--json-schema does not go with --server"),
        (["--server", "http://x", "--plot", "a.jpg"], "--plot a.jpg ends in none of .png, .svg, .pdf"),
        (["--server", "http://x", "--plot", "a.png", "--html", "./a.png"], "--plot and --html name the same file"),
        (["-m", "x", "-md", "y", "--dataset", "mmlu"], "'mmlu' is not one of"),
        (["-m", "x", "-md", "y", "-n", "1"], "1 is not in the range"),
        (["-m", "x", "-md", "y", "--gpu-hour", "nan"], "'nan' is no finite number"),
        (["-m", "x", "-md", "y", "--gpu-hour", "inf"], "'inf' is no finite number"),
        (["-m", "x", "-md", "y", "--gpu-hour", "-1"], "-1.0 is not in the range"),
        (["-m", "x", "-md", "y", "--spec-draft-p-min", "nan"], "'nan' is no finite number"),
        (["-m", "x", "-md", "y", "--spec-draft-p-min", "1.5"], "1.5 is not in the range"),
    ],
)
def test_wrong_usage(words, message, tmp_path):
    assert message in one_line_error(dflash("bench", *words, cwd=tmp_path), 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--html", "none/a.html"], "/none` does not exist"),
        (["--html", "."], "is a folder, expected the name of a file"),
        (["--plot", "here.png"], "here.png` exists already; pass `--force` to replace it"),
        (["--force", "--html", "/proc/a.html"], "`/proc/a.html` could not be written: "),
        (["--prompts", "none.txt"], "`none.txt` cannot be read: no such file or directory; check the path"),
        (["--prompts", "empty.txt"], "`empty.txt` holds no prompt; write one a line"),
        ([], "`x` cannot be read: no such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_measured(words, message, tmp_path):
    for name in ("here.png", "empty.txt"):
        (tmp_path / name).touch()
    assert message in one_line_error(dflash("bench", "-m", "x", "-md", "y", *words, cwd=tmp_path), 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt", "here.png"]


def test_a_server_is_measured(tmp_path):
    with serving(chat()) as url:
        done = dflash("bench", "--server", url, "--limit", 3, "--runs", 1, "--html", tmp_path / "s.html")
        found = json.loads(dflash("bench", "--server", url, "--concurrency", 2, "--json").stdout)
    assert done.returncode == 0, done.stderr
    assert "tokens per second in all" in done.stdout.splitlines()[-1]
    assert "Milliseconds to the first token" in (tmp_path / "s.html").read_text(encoding="utf-8")
    assert (found["facts"]["model"], found["facts"]["concurrency"]) == ("tiny", "2")
    assert found["all"]["n"] == len(found["requests"]) == 2 * len(PROMPTS)
    assert found["all"]["drafts"]["draft_n"] == 12 * 2 * len(PROMPTS)
    assert "text" not in found["requests"][0]["reply"]


def test_a_server_that_fails_in_between_is_told_and_exits_1():
    with serving(chat(fails_at=(3,))) as url:
        done = dflash("bench", "--server", url, "--limit", 3, "--runs", 1)
    assert done.returncode == 1
    assert "1 of 3 requests failed" in done.stdout
    assert done.stderr.count("warning: ") == 1
    assert "answered 500: out of luck" in done.stderr


def test_no_server_and_no_key_are_one_line(monkeypatch):
    assert "nobody answers at" in one_line_error(dflash("bench", "--server", "http://127.0.0.1:9"), 1)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    done = dflash("bench", "--server", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH_KEY")
    assert "the environment variable `NO_SUCH_KEY` is not set" in one_line_error(done, 1)
    monkeypatch.setenv("NO_SUCH_KEY", "geheim\nniss")
    done = dflash("bench", "--server", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH_KEY")
    message = one_line_error(done, 1)
    assert "the key in `NO_SUCH_KEY`, expected printable ASCII" in message
    assert "geheim" not in message


def test_the_key_is_taken_from_the_environment(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret\n")
    handler = chat()
    with serving(handler) as url:
        done = dflash("bench", "--server", url, "--limit", 1, "--runs", 1, "--api-key-env", "MY_KEY", "--json")
    assert handler.asked[-1][2]["Authorization"] == "Bearer secret"
    assert "secret" not in done.stdout + done.stderr


def test_the_help_page_loads_nothing_heavy():
    script = (
        "from dflash_gguf.cli import root; root.main(['bench', '--help'], standalone_mode=False)\n"
        "import sys; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "matplotlib", "huggingface_hub", "llama_cpp", "pyarrow", "dflash_gguf.runner.session"}
