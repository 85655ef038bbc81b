"""Ctrl-C during a generation stops it within a round and prints what there is."""

import json
import signal
import subprocess
import sys
import time

import pytest
import tiny


def test_an_interrupt_prints_the_text_so_far_and_the_statistics(tmp_path):
    target = tiny.write_target(tmp_path / "target.gguf", type="Q8_0", context=65536, vocab=512)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dflash_gguf",
            "run",
            "-m",
            str(target),
            "--no-draft",
            "-c",
            "60000",
            "-t",
            "1",
            "-p",
            "hi",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)  # 60,000 tokens would take minutes
    assert process.returncode == 130
    assert first + rest
    assert "interrupted" in errors
    assert "tokens/s" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_at_any_moment_ends_the_command(tmp_path, number, code):
    """Also during a load, when libllama calls back into Python and ctypes would drop what a handler raises."""
    target = tiny.write_target(tmp_path / "target.gguf", type="F32", layers=8)
    words = ["run", "-m", str(target), "--no-draft", "-c", "60000", "-t", "1", "-p", "hi", "-v"]
    for seen in ("llama_model_loader", "load_tensors", "llama_context"):
        process = subprocess.Popen(
            [sys.executable, "-m", "dflash_gguf", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for line in process.stderr:
            if seen in line or process.poll() is not None:
                break
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert "Exception ignored" not in errors
        assert process.returncode == code, (seen, errors)


def test_a_termination_ends_the_command_in_order(tmp_path):
    target = tiny.write_target(tmp_path / "target.gguf", type="Q8_0", context=65536)
    words = ["run", "-m", str(target), "--no-draft", "-c", "60000", "-t", "1", "-p", "hi"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dflash_gguf", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.read(1)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in errors


def test_a_termination_in_json_mode_leaves_one_object(tmp_path):
    target = tiny.write_target(tmp_path / "target.gguf", type="Q8_0", context=65536)
    words = ["run", "-m", str(target), "--no-draft", "-c", "60000", "-t", "1", "-p", "hi", "--json", "-v"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dflash_gguf", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if "sched_reserve: reserve took" in line:
            break
    time.sleep(2)
    process.terminate()
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in errors
    found = json.loads(out)
    assert found["finish_reason"] == "interrupted"
    assert found["stats"]["predicted_n"] == len(found["ids"]) > 0


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_in_a_callback_is_not_lost(name, code):
    """ctypes drops what a handler raises there; the command would go on."""
    script = (
        "import ctypes, os, signal, threading\nfrom dflash_gguf import cli\n"
        "def command(**_):\n"
        f"    callback = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.{name}))\n"
        "    callback()\n"
        "    threading.Event().wait(30)\n"
        "cli.root.main = command\ncli.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
