"""Models made and asked in a server that answers as ollama does: what is sent, and what is said when it refuses."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import sys
from pathlib import Path

import modelfile_reader
import pytest
import tiny
from ollama_server import Store, ollama
from safetensors_pair import write_pair

from dflash_gguf.errors import MissingDependencyError, OllamaError, TemplateError
from dflash_gguf.modelfile.api import render
from dflash_gguf.ollama import client
from dflash_gguf.ollama.ask import ask_both
from dflash_gguf.ollama.create import Created, create

SMALL = {"hidden": 288, "ffn": 64, "layers": 1, "heads": 2, "kv_heads": 1, "taps": (0,), "vocab": 300}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    target = tiny.write_target(folder / "target.gguf", **SMALL | {"layers": 2})
    return target, tiny.write_drafter(folder / "dflash-tiny.gguf", **SMALL)


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def host(store):
    with ollama(store) as place:
        yield place


def digest(path):
    return f"sha256:{hashlib.sha256(Path(path).read_bytes()).hexdigest()}"


def test_what_ollama_is_sent(pair, store, host):
    made = render(*pair, 3, system="Be brief.", parameters={"stop": ["a"], "num_ctx": 64}, licenses=["MIT"])
    told, bytes_ = [], {}
    done = create(made, "mine", host=host, told=told.append, progress=lambda *step: bytes_.update({step[0]: step[1:]}))
    sizes = [path.stat().st_size for path in pair]
    assert done == Created("mine", host, "0.34.0", sum(sizes))
    assert store.models["mine"] == {
        "model": "mine",
        "files": {"target.gguf": digest(pair[0])},
        "draft_files": {"dflash-tiny.gguf": digest(pair[1])},
        "parameters": {"draft_num_predict": 3, "num_ctx": 64, "stop": ["a"]},
        "requires": "0.32.7",
        "system": "Be brief.",
        "license": ["MIT"],
    }
    assert told == ["parsing GGUF", "writing manifest", "success"]
    assert bytes_ == {
        f"{verb} {path.name}": (size, size)
        for path, size in zip(pair, sizes, strict=True)
        for verb in ("reading", "sending")
    }


def test_ollama_is_sent_what_the_modelfile_says(pair, store, host):
    made = render(*pair, system="a\r\nb", template="c\r\n", licenses=["d\r\ne"])
    create(made, "mine", host=host)
    sent = store.models["mine"]
    assert (sent["system"], sent["template"], sent["license"]) == ("a\nb", "c\n", ["d\ne"])
    said = modelfile_reader.request(made.text)
    assert {key: sent[key] for key in ("system", "template")} == {key: said[key] for key in ("system", "template")}


def test_what_ollama_has_is_not_sent_again(pair, store, host):
    made = render(*pair)
    create(made, "one", host=host)
    store.calls.clear()
    assert create(made, "two", host=host).sent == 0
    assert ("POST", "/api/blobs/") not in store.calls
    assert store.models["one"]["files"] == store.models["two"]["files"]


def test_names_of_files_that_ollama_would_refuse(pair, store, host, tmp_path):
    for name in ("a:b.gguf", "a\\b.gguf", "model.safetensors", "größe.gguf", "ends in blank "):
        target = shutil.copy(pair[0], tmp_path / name)
        create(render(target, pair[1]), "mine", host=host)
        assert list(store.models["mine"]["files"]) == ["target.gguf"]


def test_a_model_that_ollama_has(pair, store, host):
    create(render("base:latest", pair[1], from_model=True), "mine", host=host)
    assert store.models["mine"]["from"] == "base:latest"
    assert "files" not in store.models["mine"]
    with pytest.raises(OllamaError, match=r"refused: pull model manifest: file does not exist: other"):
        create(render("other", pair[1], from_model=True), "mine", host=host)


def test_ollamas_own_words(pair, store, host):
    store.refuse = "llama-quantize: unknown architecture\x1b[31m 'qwen9'"
    with pytest.raises(OllamaError, match="refused: llama-quantize: unknown architecture") as caught:
        create(render(*pair), "mine", host=host)
    assert str(caught.value).isprintable()


def test_a_creation_that_ends_half_way(pair, store, host):
    store.cut = "create"
    with pytest.raises(OllamaError, match="ended before the model was made"):
        create(render(*pair), "mine", host=host)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.32.6", r"is 0\.32\.6, and a DFlash drafter needs 0\.32\.7 or newer.*upgrade ollama"),
        ("0.32.7", r"is 0\.32\.7, and DFlash 2 needs one newer than 0\.33\.0-rc2"),
        ("0.35.0", r"is 0\.35\.0, and the Modelfile requires 0\.36\.0"),
    ],
)
def test_an_ollama_that_is_too_old(version, words, pair, store, host):
    store.version = version
    with pytest.raises(OllamaError, match=words):
        create(render(*pair, requires="0.36.0"), "mine", host=host)
    assert store.blobs == {}


@pytest.mark.parametrize("version", ["0.0.0", "main"])
def test_a_developers_ollama_is_trusted(version, pair, store, host):
    store.version = version
    assert create(render(*pair), "mine", host=host).version == version


def test_no_ollama(pair):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(OllamaError, match=f"no ollama answers at {host}; start it with `ollama serve`"):
            create(render(*pair), "mine", host=host)


@pytest.mark.parametrize("step", ["version", "blob"])
def test_a_server_that_says_nothing(step, pair, store, host, monkeypatch):
    monkeypatch.setattr(client, "ANSWER", 0.2)
    store.silent = step
    with pytest.raises(OllamaError, match=f"ollama at {host} was silent for 0 seconds"):
        create(render(*pair), "mine", host=host)
    assert store.blobs == {}


@pytest.mark.parametrize("host", ["http://[::bad", "ftp://x", "host:port:port", "a\nb", "x" * 5000])
def test_a_host_that_is_none(host, pair):
    with pytest.raises(OllamaError, match=r"OLLAMA_HOST|no ollama answers|connection") as caught:
        create(render(*pair), "mine", host=host)
    assert str(caught.value).isprintable()


def test_another_server(pair, store, host):
    store.version = 4
    with pytest.raises(OllamaError, match="is no ollama"):
        create(render(*pair), "mine", host=host)


def test_a_name_that_is_none(pair, host):
    with pytest.raises(TemplateError, match="name of an ollama model"):
        create(render(*pair), "./mine", host=host)


def test_a_file_that_is_cut_while_it_is_sent(pair, store, host, tmp_path):
    target = Path(shutil.copy(pair[0], tmp_path / "target.gguf"))
    made = render(target, pair[1])

    def cut(label, done, total):
        if label.startswith("reading target") and done == total:
            os.truncate(target, 100)

    with pytest.raises(OllamaError, match="refused: digest mismatch"):
        create(made, "mine", host=host, progress=cut)
    assert "mine" not in store.models


def test_httpx_is_asked_for(pair, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'dflash-gguf\[ollama\]'"):
        create(render(*pair), "mine", host="127.0.0.1:9")


def test_one_question_asked_twice(pair, store, host):
    create(render(*pair), "mine", host=host)
    pieces = []
    asked = ask_both("mine", "Hi?", 7, host, pieces.append)
    assert [request["options"]["draft_num_predict"] for request in store.generated] == [0, 7]
    assert {request["options"]["temperature"] for request in store.generated} == {0}
    assert "".join(pieces) == asked.drafted.text == asked.plain.text == "Hm. Hello"
    assert (asked.drafted.per_second, asked.plain.per_second) == (80.0, 40.0)
    assert asked.ratio == 2.0


def test_an_answer_without_times(store, host):
    store.speed = {True: 0, False: 0}
    assert ask_both("base:latest", "Hi?", 7, host).ratio is None


def test_questions_that_fail(store, host):
    with pytest.raises(OllamaError, match="refused: model 'absent' not found"):
        ask_both("absent", "Hi?", 7, host)
    store.cut = "generate"
    with pytest.raises(OllamaError, match="ended its answer half way"):
        ask_both("base:latest", "Hi?", 7, host)


@pytest.fixture
def safetensors_pair(tmp_path):
    return write_pair(tmp_path)


PROGRAM = '#!/bin/sh\necho "import $*"\npwd > "$OUT.folder"\ncp "$4" "$OUT"\nexit "${CODE:-0}"\n'


@pytest.fixture
def program(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ollama").write_text(PROGRAM)
    (folder / "ollama").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("OUT", str(tmp_path / "seen"))
    return tmp_path / "seen"


def test_safetensors_are_imported_by_ollamas_program(safetensors_pair, program, capfd):
    made = render(*safetensors_pair, draft_quantize="int4")
    assert create(made, "mine", host="").name == "mine"
    assert program.read_text() == made.text
    # Elsewhere than here, where a folder could have the name of a model.
    assert Path(program.with_name("seen.folder").read_text()).name.startswith("dflash-gguf-")
    said = capfd.readouterr()
    assert said.out == ""
    assert "import create mine -f " in said.err
    assert said.err.strip().endswith("--experimental --draft-quantize int4")


def test_ollamas_program_fails(safetensors_pair, program, monkeypatch, capfd):
    monkeypatch.setenv("CODE", "7")
    with pytest.raises(OllamaError, match="ended with code 7"):
        create(render(*safetensors_pair), "mine", host="")


def test_without_ollamas_program_there_is_its_command(safetensors_pair, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        OllamaError, match=r"then: ollama create mine -f Modelfile --experimental --draft-quantize int4"
    ):
        create(render(*safetensors_pair, draft_quantize="int4"), "mine", host="")


def test_safetensors_stay_on_this_machine(safetensors_pair, program):
    with pytest.raises(OllamaError, match=r"OLLAMA_HOST is example\.org:11434"):
        create(render(*safetensors_pair), "mine", host="example.org")
