"""`-hf` and `-hfd` as they are typed, in every command that takes them, against a hub of this machine.

The real client, real files, real processes; the bytes that the hub served are counted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
from test_commands import dflash, one_line_error

SIZES = {"hidden": 128, "ffn": 256, "heads": 4, "kv_heads": 2, "head_dim": 32}
RUN = ["-c", 128, "-t", 1, "-n", 8, "--temp", 0, "--raw", "-p", "hello", "--depth", "fixed"]
TARGET, DRAFT = "ggml-org/Qwen3.8-27B-GGUF", "incoai/Qwen3.8-27B-DFlash2-GGUF"
PAIR = ["-hf", f"{TARGET}:Q4_K_M", "-hfd", f"{DRAFT}:Q4_K_M"]
HEADERS = 1 << 18
"""The parser's first read of a file, which holds a tiny header."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Paths of a target and a drafter."""
    folder = tmp_path_factory.mktemp("pair")
    target = tiny.write_target(folder / "t-Q8_0.gguf", type="Q8_0", **SIZES)
    return target, tiny.write_drafter(folder / "d.gguf", kind="dflash", **SIZES)


@pytest.fixture
def published(hub, pair):
    """The two repositories, each with a file of another type that must not be touched."""
    target, draft = (path.read_bytes() for path in pair)
    hub.add(TARGET, {"Qwen3.8-27B-Q4_K_M.gguf": target, "Qwen3.8-27B-BF16.gguf": target[::-1], "README.md": b"# x"})
    hub.add(DRAFT, {"Qwen3.8-27B-DFlash2-Q4_K_M.gguf": draft, "Qwen3.8-27B-DFlash2-BF16.gguf": draft[::-1]})
    return hub


def answers(*words, **how):
    done = dflash("run", *words, *RUN, "--json", **how)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def chosen(*words):
    """The names of both files, by the Modelfile that is written for them: no model is loaded."""
    done = dflash("modelfile", *words)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("FROM", "DRAFT"))]
    return [Path(path) for _, path in lines]


def test_the_line_of_the_readme_downloads_once_and_writes_what_the_files_write(published, pair):
    first = answers(*PAIR)
    assert published.bytes_of("-BF16.gguf") == 0
    sizes = [path.stat().st_size for path in pair]
    assert sizes[0] <= published.bytes_of("27B-Q4_K_M.gguf") <= sizes[0] + HEADERS
    assert sizes[1] <= published.bytes_of("DFlash2-Q4_K_M.gguf") <= sizes[1] + HEADERS
    published.forget()
    assert answers(*PAIR)["ids"] == first["ids"]
    assert published.bytes_of(".gguf") == 0
    assert answers("-m", pair[0], "-md", pair[1])["ids"] == first["ids"]
    assert first["stats"]["draft_n"] > 0


def test_every_mixture_of_files_and_repositories(published, pair):
    names = "Qwen3.8-27B-Q4_K_M.gguf", "Qwen3.8-27B-DFlash2-Q4_K_M.gguf"
    mixtures = (
        (["-m", pair[0], "-hfd", DRAFT], (pair[0].name, names[1])),
        (["-m", pair[0], "-hfd", DRAFT, "-md", names[1]], (pair[0].name, names[1])),
        (["-hf", TARGET, "-md", pair[1]], (names[0], pair[1].name)),
        (["-hf", TARGET, "--hf-file", names[0], "-hfd", DRAFT], names),
    )
    for words, expected in mixtures:
        assert tuple(path.name for path in chosen(*words)) == expected
    assert answers("-hf", TARGET, "--no-draft")["stats"]["drafter"] is None


def test_offline_takes_the_cache_alone(published):
    told = one_line_error(dflash("modelfile", *PAIR, "--offline"), 1)
    assert f"`{TARGET}` is not in the cache" in told
    online = chosen(*PAIR)
    published.forget()
    assert chosen(*PAIR, "--offline") == online
    assert published.requests == []
    other = one_line_error(dflash("modelfile", "-hf", f"{TARGET}:BF16", "-hfd", DRAFT, "--offline"), 1)
    assert "in the cache has no GGUF of type `BF16`, but these: `Qwen3.8-27B-Q4_K_M.gguf`; leave out" in other


def test_the_drafter_beside_the_target_is_taken_and_said(published, pair):
    published.repos[TARGET].files["dflash-Qwen3.8-27B-Q8_0.gguf"] = pair[1].read_bytes()
    done = dflash("run", "-hf", TARGET, *RUN)
    assert "drafter: `dflash-Qwen3.8-27B-Q8_0.gguf`, which lies beside the target" in done.stderr
    assert "mean acceptance length" in done.stderr


def test_without_a_drafter_it_is_asked_for(published):
    told = one_line_error(dflash("run", "-hf", TARGET, *RUN), 2)
    assert "name the drafter with -md or -hfd, or pass --no-draft" in told
    assert published.bytes_of(".gguf") == 0


def test_a_target_that_is_not_there_is_told_before_its_drafter(published, tmp_path):
    for command in ("run", "check", "bench"):
        told = one_line_error(dflash(command, "-m", tmp_path / "none.gguf", stdin="hi"), 1)
        assert "none.gguf` cannot be read: no such file" in told
    (tmp_path / "folder").mkdir()
    assert "name the drafter" in one_line_error(dflash("modelfile", "-m", tmp_path / "folder"), 2)
    told = one_line_error(dflash("check", "-hf", TARGET), 2)
    assert "no drafter lies beside `Qwen3.8-27B-Q4_K_M.gguf`: name the drafter with -md or -hfd" in told


def test_what_does_not_fit_is_not_downloaded(published, tmp_path):
    other = tiny.write_drafter(tmp_path / "other.gguf", kind="dflash", **SIZES | {"hidden": 64})
    published.add("org/other", {"other-Q4_K_M.gguf": other.read_bytes()})
    done = dflash("run", "-hf", TARGET, "-hfd", "org/other", *RUN)
    assert done.returncode == 1
    assert "hidden sizes differ" in done.stderr
    assert "downloading" not in done.stderr
    assert published.bytes_of(".gguf") <= 2 * HEADERS
    assert published.asked("GET", "/cdn/")
    assert all(request.range for request in published.asked("GET", "/cdn/"))


def test_check_and_inspect_read_headers_alone(published, pair, tmp_path):
    assert dflash("check", *PAIR).returncode == 0
    shown = json.loads(dflash("inspect", "-hf", TARGET, "--json").stdout)
    local = json.loads(dflash("inspect", pair[0], "--json").stdout)
    assert shown.pop("path") == f"{TARGET}/Qwen3.8-27B-Q4_K_M.gguf"
    assert shown == {key: value for key, value in local.items() if key != "path"}
    assert json.loads(dflash("inspect", "-hfd", DRAFT, "--json").stdout)["kind"] == "DFlash"
    assert all(request.range for request in published.asked("GET", "/cdn/"))
    assert not list(tmp_path.rglob("*.gguf"))


def test_check_finds_the_same_in_headers_of_the_hub(published, pair, tmp_path):
    other = tiny.write_drafter(tmp_path / "other.gguf", kind="dflash", **SIZES | {"hidden": 64})
    published.add("org/other", {"other.gguf": other.read_bytes()})
    there = dflash("check", "-hf", TARGET, "-hfd", "org/other", "--json")
    here = dflash("check", "-m", pair[0], "-md", other, "--json")
    assert there.returncode == here.returncode == 3
    assert json.loads(there.stdout)["findings"] == json.loads(here.stdout)["findings"]


def test_estimate_reads_headers_alone(published, pair):
    sizes = ["-c", 128, "-t", 1, "--json"]
    there = json.loads(dflash("estimate", *PAIR, *sizes).stdout)
    assert all(request.range for request in published.asked("GET", "/cdn/"))
    here = json.loads(dflash("estimate", "-m", pair[0], "-md", pair[1], *sizes).stdout)
    assert (there["target"], there["draft"]) == (here["target"], here["draft"])


def test_a_modelfile_names_the_files_in_the_cache(published, tmp_path):
    paths = chosen(*PAIR)
    assert [path.name for path in paths] == ["Qwen3.8-27B-Q4_K_M.gguf", "Qwen3.8-27B-DFlash2-Q4_K_M.gguf"]
    assert all(path.is_file() and path.is_relative_to(tmp_path / "hub") for path in paths)


def test_verify_and_bench_take_repositories_too(published, tmp_path):
    sizes = ["-c", 128, "-t", 1]
    verified = dflash("verify", *PAIR, *sizes, "-n", 8, "-p", "hello", "--raw")
    assert verified.returncode == 0, verified.stderr
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("hello\n", encoding="utf-8")
    benched = dflash("bench", *PAIR, *sizes, "-n", 4, "--runs", 1, "--prompts", prompts, "--raw", "--json")
    assert benched.returncode == 0, benched.stderr
    assert json.loads(benched.stdout)["facts"]["target"] == "Qwen3.8-27B-Q4_K_M.gguf"


def test_the_names_of_llama_cpps_environment(published, pair, monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_HF_REPO", TARGET)
    monkeypatch.setenv("LLAMA_ARG_SPEC_DRAFT_HF_REPO", DRAFT)
    paths = chosen()
    monkeypatch.setenv("LLAMA_ARG_OFFLINE", "1")
    published.forget()
    assert chosen() == paths
    assert published.requests == []
    monkeypatch.setenv("LLAMA_ARG_HF_FILE", "none.gguf")
    assert "no file `none.gguf`" in one_line_error(dflash("modelfile"), 1)
    # What is typed wins, all of it.
    assert chosen("-hf", f"{TARGET}:Q4_K_M") == paths
    assert chosen("-m", pair[0], "-md", pair[1]) == list(pair)


def test_a_token_goes_to_the_hub(published):
    from hub_server import TOKEN

    published.repos[TARGET].gated = True
    told = one_line_error(dflash("inspect", "-hf", TARGET), 1)
    assert "is gated" in told
    assert dflash("inspect", "-hf", TARGET, "--hf-token", TOKEN).returncode == 0


def test_the_folder_of_llama_cpp(published, tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "llama"))
    assert all(path.is_relative_to(tmp_path / "llama") for path in chosen(*PAIR))


def test_safetensors_are_converted_for_the_target_once(published, pair, tmp_path):
    checkpoint = tiny.write_checkpoint(tmp_path / "checkpoint", kind="dflash", **SIZES)
    published.add("z-lab/D", {path.name: path.read_bytes() for path in checkpoint.iterdir()})
    words = ["-hf", TARGET, "-hfd", "z-lab/D:Q8_0"]
    first = dflash("run", *words, *RUN)
    assert "converting `z-lab/D` to Q8_0 for `Qwen3.8-27B-Q4_K_M.gguf`" in first.stderr
    published.forget()
    second = dflash("run", *words, *RUN, "--offline")
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert "converting" not in second.stderr
    assert published.requests == []
    other = dflash("modelfile", "-hf", TARGET, "-hfd", "z-lab/D:Q4_K_M")
    assert other.returncode == 0
    assert "warning: Q5_0 in the place of Q4_K" in other.stderr
    assert "ncols" not in other.stderr  # libllama's own log
    asked = one_line_error(dflash("inspect", "-hfd", "z-lab/D"), 1)
    assert "`dflash-gguf convert z-lab/D --dry-run`" in asked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "-hf", "a", "-p", "x"], "ORG/REPO@REVISION:TAG; a file is named with -m or -md"),
        (["run", "-hf", "a/b/c:Q8", "-p", "x"], "the name of a repository"),
        (["run", "-m", "org/repo", "-p", "x"], "a repository is named with -hf"),
        (["run", "-m", "x.gguf", "-md", "org/repo:Q4_K_M", "-p", "x"], "a repository is named with -hfd"),
        (["run", "-m", "x.gguf", "-hf", "org/repo", "-p", "x"], "give the target with -m or -hf, not both"),
        (["run", "-m", "x.gguf", "--hf-file", "y", "-p", "x"], "--hf-file needs -hf"),
        (["check", "-hfd", "org/repo"], "name the target with -m or -hf"),
        (["inspect"], "name one file: FILE, or with -hf or -hfd"),
        (["inspect", "x.gguf", "-hf", "org/repo"], "name one file: FILE, or with -hf or -hfd"),
        (["bench", "--server", "http://x", "-hf", "org/repo"], "--hf-repo does not go with --server"),
    ],
)
def test_wrong_usage(words, message):
    assert message in one_line_error(dflash(*words), 2)
