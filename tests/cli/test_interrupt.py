"""Ctrl-C during a generation stops it within a round and prints what there is."""

import signal
import subprocess
import sys

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
    assert (first + rest).strip()
    assert "interrupted" in errors
    assert "tokens/s" in errors
    assert "Traceback" not in errors
