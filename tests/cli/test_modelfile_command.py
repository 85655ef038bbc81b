"""`modelfile` and `convert --modelfile` as a user types them, beside a server that answers as ollama does."""

from __future__ import annotations

import json
import shlex

import modelfile_reader
import pytest
import zoo
from ollama_server import Store, ollama
from safetensors_pair import write_pair
from terminal import Terminal
from test_commands import dflash, one_line_error


@pytest.fixture
def words(tiny_target, tiny_drafter):
    return ["modelfile", "-m", tiny_target, "-md", tiny_drafter]


def test_the_modelfile_goes_to_stdout_and_its_command_to_stderr(words, tiny_target):
    done = dflash(*words)
    assert done.returncode == 0
    assert modelfile_reader.request(done.stdout)["from"] == str(tiny_target)
    assert done.stderr == "next: ollama create tiny-qwen3-q8_0-dflash -f Modelfile\n"


def test_every_option_ends_up_in_the_file(words, tmp_path):
    (tmp_path / "licence").write_text("MIT\nas it is\n", encoding="utf-8")
    options = [
        "--system",
        'Say "hi" # always',
        "--template",
        "{{ .Prompt }}",
        "--license",
        "@licence",
        "--license",
        "x",
    ]
    options += [
        "--parameter",
        "num_ctx=4096",
        "--parameter",
        "stop=a",
        "--parameter",
        "stop=b",
        "--requires",
        "v0.40.0",
    ]
    options += ["--renderer", "qwen3.8", "--parser", "qwen3.5", "--draft-num-predict", 5, "-o", "out file"]
    done = dflash(*words, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = modelfile_reader.request((tmp_path / "out file").read_text(encoding="utf-8"))
    del found["from"], found["draft"]
    assert found == {
        "parameters": {"draft_num_predict": 5, "num_ctx": 4096, "stop": ["a", "b"]},
        "system": 'Say "hi" # always',
        "template": "{{ .Prompt }}",
        "license": ["MIT\nas it is\n", "x"],
        "renderer": "qwen3.8",
        "parser": "qwen3.5",
        "requires": "0.40.0",
    }
    command = done.stdout.splitlines()[-1].removeprefix("next: ")
    assert shlex.split(command)[-2:] == ["-f", str(tmp_path / "out file")]


def test_wrong_usage(words, tmp_path):
    assert "give both" in one_line_error(dflash(*words, "--run", "Hi?"), 2)
    undrafted = ("--create", "mine", "--run", "Hi?", "--draft-num-predict", "0")
    assert "turns off" in one_line_error(dflash(*words, *undrafted), 2)
    assert "absent" in one_line_error(dflash(*words, "--license", "@absent", cwd=tmp_path), 2)
    (tmp_path / "bytes").write_bytes(b"\xff")
    assert "not UTF-8" in one_line_error(dflash(*words, "--system", "@bytes", cwd=tmp_path), 2)
    assert "NAME=VALUE" in one_line_error(dflash(*words, "--parameter", "num_ctx"), 1)


def test_create_and_run(words, monkeypatch):
    store = Store()
    with ollama(store) as host:
        monkeypatch.setenv("OLLAMA_HOST", host)
        done = dflash(*words, "--create", "mine", "--run", "Hi?")
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"created mine in the ollama at {host}\nHm. Hello\n"
        assert "with the drafter: 20 tokens, 80.0 tokens/s\nwithout it: 20 tokens, 40.0 tokens/s\n" in done.stderr
        assert "2.00 times as fast, the same text" in done.stderr
        found = json.loads(dflash(*words, "--create", "mine", "--run", "Hi?", "--json").stdout)
    assert found["created"] == {"name": "mine", "place": host, "version": "0.34.0", "sent": 0}
    assert found["asked"]["with_drafter"]["tokens_per_second"] == 80.0
    assert found["asked"]["same_text"] is True
    assert found["create_command"] == "ollama create mine -f Modelfile"


def test_an_answer_cannot_command_the_terminal(words):
    store = Store()
    store.text = ["a\x1b[31mb", "\x07"]
    with (
        ollama(store) as host,
        Terminal(*words, "--create", "mine", "--run", "Hi?", variables={"OLLAMA_HOST": host}) as screen,
    ):
        screen.until("Hm. a\\x1b[31mb\\x07")
        assert screen.end()[0] == 0


def test_an_answer_that_is_no_text(words, monkeypatch):
    store = Store()
    store.text = ["a\ud800", "b"]
    with ollama(store) as host:
        monkeypatch.setenv("OLLAMA_HOST", host)
        done = dflash(*words, "--create", "mine", "--run", "Hi?")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("Hm. a\\ud800b\n")
        found = json.loads(dflash(*words, "--create", "mine", "--run", "Hi?", "--json").stdout)
    assert found["asked"]["without"]["text"] == "Hm. a\\ud800b"


def test_refusals_are_one_sentence(words, monkeypatch):
    store = Store(version="0.32.6")
    with ollama(store) as host:
        monkeypatch.setenv("OLLAMA_HOST", host)
        line = dflash(*words, "--create", "mine").stderr.splitlines()[-1]
        assert line.endswith("upgrade ollama: https://ollama.com/download")
        store.version, store.refuse = "0.34.0", "no space left on device"
        assert "no space left on device" in dflash(*words, "--create", "mine").stderr.splitlines()[-1]
    done = dflash(*words, "--create", "mine", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"].startswith(f"no ollama answers at {host}")


def test_a_model_that_ollama_has(tiny_drafter, monkeypatch):
    words = ["modelfile", "-m", "base:latest", "-md", tiny_drafter, "--from-model"]
    done = dflash(*words)
    assert done.returncode == 0, done.stderr
    assert modelfile_reader.request(done.stdout)["from"] == "base:latest"
    assert "the pair was not checked" in done.stderr
    store = Store()
    with ollama(store) as host:
        monkeypatch.setenv("OLLAMA_HOST", host)
        assert dflash(*words, "--create", "mine").returncode == 0
    assert store.models["mine"]["from"] == "base:latest"


def test_the_other_kind_of_files(tmp_path, monkeypatch):
    target, draft = write_pair(tmp_path)
    done = dflash("modelfile", "-m", target, "-md", draft, "--draft-quantize", "int4")
    assert "--experimental --draft-quantize int4" in done.stderr
    monkeypatch.setenv("PATH", "/nowhere")
    done = dflash("modelfile", "-m", target, "-md", draft, "--create", "mine")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("then: ollama create mine -f Modelfile --experimental")


def test_convert_writes_one_beside_the_file(tiny_checkpoint, tiny_target, tmp_path):
    command = ["convert", tiny_checkpoint, "--target", tiny_target, "--modelfile", "-o", "d.gguf"]
    found = json.loads(dflash(*command, "--json", cwd=tmp_path).stdout)
    assert found["modelfile"]["path"] == str(tmp_path / "d.Modelfile")
    assert modelfile_reader.request((tmp_path / "d.Modelfile").read_text())["draft"] == str(tmp_path / "d.gguf")
    (tmp_path / "d.gguf").unlink()
    done = dflash(*command, cwd=tmp_path)
    assert done.returncode == 1
    assert "no Modelfile was written" in done.stderr
    assert (tmp_path / "d.gguf").is_file()
    done = dflash(*command, "--force", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("next: ollama create")
    assert dflash(*command, "-o", "d.v2", cwd=tmp_path).returncode == 0
    assert (tmp_path / "d.v2.Modelfile").is_file()


def test_convert_needs_the_targets_gguf_for_a_modelfile(tmp_path):
    checkpoint = zoo.write_checkpoint("incoai-2", tmp_path)
    target = zoo.write_target_folder("incoai-2", tmp_path)
    done = dflash("convert", checkpoint, "--target", target, "--modelfile", cwd=tmp_path)
    assert "needs the target's GGUF" in one_line_error(done, 2)
