"""`dflash-gguf doctor` on this machine, with an ollama of our own making beside it."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

import dflash_gguf

UPGRADE = "brew upgrade ollama" if sys.platform == "darwin" else "curl -fsSL https://ollama.com/install.sh | sh"


@pytest.fixture
def doctor(tmp_path):
    """Runs the command where no ollama listens and the hub's cache is new; ``environment`` adds to that."""

    def run(*words, **environment):
        base = os.environ | {"OLLAMA_HOST": "127.0.0.1:9", "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": ""}
        return subprocess.run(
            [sys.executable, "-m", "dflash_gguf", "doctor", *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=base | environment,
        )

    return run


@pytest.fixture
def fake_ollama(tmp_path):
    """Puts a program named ollama, which tells a version, in front of PATH; returns the PATH."""

    def made(version):
        program = tmp_path / "bin" / "ollama"
        program.parent.mkdir(exist_ok=True)
        warning = "Warning: could not connect to a running Ollama instance"
        program.write_text(f"#!/bin/sh\necho '{warning}'\necho 'Warning: client version is {version}'\n", "utf-8")
        program.chmod(0o755)
        return f"{program.parent}{os.pathsep}{os.environ['PATH']}"

    return made


def checks(done):
    found = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if found["ok"] else 3)
    return {check["name"]: check for check in found["checks"]}


def test_it_finds_what_these_tests_run_on(doctor, tmp_path, fake_ollama):
    found = checks(doctor("--json", PATH=fake_ollama("99.0.0")))
    assert found["dflash-gguf"]["found"] == dflash_gguf.__version__
    assert found["llama-cpp-python"]["found"] == "0.3.36"
    assert found["exported functions"]["found"] == "15 of 15"
    assert found["libllama"]["found"].startswith("0.5.0-dev, ggml ")
    assert found["hub cache"]["found"] == f"{tmp_path / 'hf' / 'hub'}, not made yet"
    assert found["hub token"]["found"].startswith("none: ")
    assert found["ollama"]["status"] == "ok"
    for name in ("Python", "dflash-gguf", "llama-cpp-python", "libllama", "ABI", "libllama mapped", "devices"):
        assert found[name]["status"] == "ok"


def test_a_person_reads_a_table(doctor, fake_ollama):
    done = doctor(PATH=fake_ollama("99.0.0"))
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["check", "status", "found"]
    assert any(line.split()[:3] == ["llama-cpp-python", "ok", "0.3.36"] for line in lines)


def test_an_old_ollama_is_a_problem_that_ends_with_its_command(doctor, fake_ollama):
    done = doctor("--json", PATH=fake_ollama("0.30.0"))
    ollama = checks(done)["ollama"]
    assert done.returncode == 3
    assert (ollama["status"], ollama["remedy"]) == ("problem", UPGRADE)
    assert ollama["found"].endswith("DFlash needs 0.32.7 or newer")
    text = doctor(PATH=fake_ollama("0.30.0")).stdout
    assert f"  {UPGRADE}" in text.partition("To mend it:\n")[2].splitlines()


def test_an_ollama_too_old_for_dflash_2_is_a_warning(doctor, fake_ollama):
    ollama = checks(doctor("--json", PATH=fake_ollama("0.32.7")))["ollama"]
    assert ollama["status"] == "warning"
    assert ollama["found"].endswith("DFlash: yes, DFlash 2: no, needs newer than 0.33.0-rc2")


class Ollama(BaseHTTPRequestHandler):
    """Answers as ollama 98.0.0 does."""

    def do_GET(self):
        self.send_response(200 if self.path == "/api/version" else 404)
        self.end_headers()
        self.wfile.write(b'{"version":"98.0.0"}')

    def log_message(self, *_):
        pass


def test_a_server_wins_over_the_program_and_no_proxy_is_asked(doctor, fake_ollama):
    with HTTPServer(("127.0.0.1", 0), Ollama) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        place = f"127.0.0.1:{server.server_address[1]}"
        proxies = {"http_proxy": "http://127.0.0.1:9", "all_proxy": "http://127.0.0.1:9"}
        done = doctor("--json", PATH=fake_ollama("0.30.0"), OLLAMA_HOST=f"http://{place}", **proxies)
        server.shutdown()
        thread.join()
    assert checks(done)["ollama"]["found"].startswith(f"98.0.0, server at {place}; DFlash: yes")


def test_no_ollama_is_only_a_warning(doctor, tmp_path):
    ollama = checks(doctor("--json", PATH=str(tmp_path)))["ollama"]
    assert ollama["status"] == "warning"
    assert ollama["found"] == "not found on PATH, no server at 127.0.0.1:9; only needed for what `modelfile` writes"


def test_a_token_is_there_and_not_shown(doctor):
    done = doctor("--json", HF_TOKEN="hf_verysecret")  # noqa: S106  made up
    assert checks(done)["hub token"]["found"] == "present"
    assert "verysecret" not in done.stdout + done.stderr


def test_a_broken_llama_cpp_is_rows_not_a_traceback(doctor, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "llama_cpp.py").write_text("raise ImportError('wrong ELF class')", encoding="utf-8")
    done = doctor("--json", PYTHONPATH=str(tmp_path / "broken"))
    found = checks(done)
    assert done.returncode == 3
    for name in ("libllama", "ABI", "exported functions", "devices"):
        assert found[name]["status"] == "problem"
        assert "wrong ELF class" in found[name]["found"]
    assert found["Python"]["status"] == "ok"
    command = "pip install --no-cache-dir --force-reinstall llama-cpp-python==0.3.36"
    assert found["libllama"]["remedy"] == command
    text = doctor(PYTHONPATH=str(tmp_path / "broken")).stdout
    assert text.count(f"\n  {command}\n") == 1
