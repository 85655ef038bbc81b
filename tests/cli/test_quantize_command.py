"""``quantize``: the plan that ``--dry-run`` prints is what is written; nothing is left behind by what goes wrong."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
import quant_cases
import tiny
from quant_cases import CASES
from test_commands import dflash, one_line_error
from test_convert_command import run

from dflash_gguf import atomic
from dflash_gguf.errors import GGUFError, OutputError, QuantizeError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.quantize.api import quantize

CASE = CASES["blocks of 32"]


@pytest.fixture
def source(tmp_path):
    return quant_cases.write_source(tmp_path / "source.gguf", CASE)


def test_the_plan_is_the_file(tmp_path, source):
    words = ["quantize", source, tmp_path / "out.gguf", "q4_k_m", "--tensor-type", "ATTN_V=f16"]
    plan = json.loads(run(*words, "--dry-run", "--json").stdout)
    assert not (tmp_path / "out.gguf").exists()
    shown = run(*words, "--dry-run").stdout
    result = json.loads(run(*words, "--json").stdout)
    header = read_header(tmp_path / "out.gguf")
    assert [row["key"] for row in plan["keys"]] == list(header.keys)
    assert [(row["name"], row["shape"], row["n_bytes"]) for row in plan["tensors"]] == [
        (t.name, list(t.shape), t.nbytes) for t in header.tensors.values()
    ]
    for name in ("n_bytes", "n_weights", "bits_per_weight", "tensor_types", "quant", "notes", "fallbacks"):
        assert plan[name] == result[name]
    assert result["tensor_types"]["F16"] == 3
    assert "Q5_0 (not Q4_K)" in shown
    assert "nothing was written" in shown


def test_a_misspelt_pattern_is_warned_of(tmp_path, source):
    words = ["quantize", source, tmp_path / "out.gguf", "Q4_0", "--tensor-type", "ffn_dwon=q8_0"]
    told = "warning: the pattern `ffn_dwon` is in the name of no tensor"
    for more in (["--dry-run"], ["--dry-run", "--json"], ["--json", "--force"]):
        done = dflash(*words, *more)
        assert done.returncode == 0
        assert told in done.stderr
        if "--json" in more:
            assert any("`ffn_dwon`" in note for note in json.loads(done.stdout)["notes"])


def test_every_other_key_is_kept(tmp_path, source):
    out = quantize(source, tmp_path / "out.gguf", "Q4_0").path
    before, after = read_header(source), read_header(out)
    moved = {"general.quantization_version", "general.file_type"}
    assert [key for key in before.keys if key not in moved] == [key for key in after.keys if key not in moved]
    assert all(before.raw(key) == after.raw(key) for key in before.keys if key not in moved)
    assert (after.integer("general.file_type"), after.integer("general.quantization_version")) == (2, 2)


def test_a_file_without_these_keys_gets_them(tmp_path):
    path = tiny.write_drafter(tmp_path / "s.gguf", drop_keys=["general.file_type"])
    after = read_header(quantize(path, tmp_path / "out.gguf", "Q8_0").path)
    assert (after.integer("general.file_type"), after.integer("general.quantization_version")) == (7, 2)


def test_a_copy_keeps_every_order(tmp_path, source):
    once = quantize(source, tmp_path / "once.gguf", "Q4_0").path
    for old in (source, once):
        out = quantize(old, tmp_path / "copy.gguf", "COPY", force=True).path
        before, after = read_header(old), read_header(out)
        assert [(n, t.shape, t.type) for n, t in before.tensors.items()] == [
            (n, t.shape, t.type) for n, t in after.tensors.items()
        ]
        assert [key for key in after.keys if key in before.keys] == list(before.keys)
    assert after.integer("general.file_type") == 2
    assert dflash("inspect", once, "--diff", out).returncode == 0


def test_blocks_of_blocks_only_when_asked_for(tmp_path, source):
    once = quantize(source, tmp_path / "once.gguf", "Q8_0").path
    words = ["quantize", once, tmp_path / "out.gguf", "Q4_0"]
    error = one_line_error(dflash(*words), 1)
    assert "31 tensors of" in error
    assert "are quantized already, `fc.weight` to Q8_0" in error
    assert "pass `--allow-requantize`" in error
    assert not (tmp_path / "out.gguf").exists()
    assert dflash(*words, "--allow-requantize").returncode == 0
    assert quantize(once, tmp_path / "same.gguf", "Q8_0").tensor_types["Q8_0"] == 31


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Q9"], "'Q9' is not one of"),
        (["Q4_0", "--tensor-type", "x"], "'x' is not PATTERN=TYPE"),
        (["Q4_0", "--tensor-type", "=q8_0"], "'=q8_0' is not PATTERN=TYPE"),
        (["Q4_0", "--tensor-type", "x=q9"], "'q9' is not one of"),
        (["--mix", "x"], "'x' is not "),
    ],
)
def test_wrong_usage(tmp_path, source, words, message):
    assert message in one_line_error(dflash("quantize", source, tmp_path / "out.gguf", *words), 2)


def test_files_that_are_no_drafter(tmp_path, source):
    target = tiny.write_target(tmp_path / "target.gguf")
    with pytest.raises(GGUFError, match=r"the architecture of `.*target.gguf`: got 'qwen3', expected `dflash`"):
        quantize(target, tmp_path / "out.gguf", "Q4_0")
    fork = tiny.write_gguf(tmp_path / "f.gguf", "dflash-draft", {}, {"fc.weight": tiny.drafter_arrays()["fc.weight"]})
    with pytest.raises(GGUFError, match=r"format of a fork.*dflash-gguf rekey"):
        quantize(fork, tmp_path / "out.gguf", "Q4_0")
    broken = tiny.write_drafter(tmp_path / "b.gguf", drop_tensors=["fc.weight"])
    with pytest.raises(GGUFError, match=r"llama.cpp would not load .*lacks 1 of its tensors"):
        quantize(broken, tmp_path / "out.gguf", "Q4_0")


def test_outputs_that_cannot_be(tmp_path, source):
    with pytest.raises(OutputError, match="is one of the inputs"):
        quantize(source, source, "Q4_0", force=True)
    (tmp_path / "out.gguf").write_text("precious")
    with pytest.raises(OutputError, match="exists already"):
        quantize(source, tmp_path / "out.gguf", "Q4_0")
    assert (tmp_path / "out.gguf").read_text() == "precious"
    matrix = quant_cases.write_matrix(tmp_path / "m.gguf", quant_cases.sums_of(CASE))
    words = ["quantize", source, matrix, "Q4_0", "--imatrix", matrix, "--force", "--dry-run"]
    assert "is one of the inputs" in one_line_error(dflash(*words), 1)


ENDLESS = """
import signal, sys
from dflash_gguf.quantize.api import planned

def stop(number, frame):
    raise KeyboardInterrupt

planned(sys.argv[1], "Q4_0", tensor_types={"ffn_up": "q8_0"})
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    planned(sys.argv[1], "Q4_0", tensor_types={r"(.*)*\\1*x": "q8_0"})
except KeyboardInterrupt:
    print("left")
"""


def test_a_pattern_without_end_can_be_interrupted(source):
    done = subprocess.run([sys.executable, "-c", ENDLESS, str(source)], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"left\n"), done.stderr


def test_a_full_disk_and_an_interrupt_leave_nothing(tmp_path, source, monkeypatch):
    real = os.pwrite

    def full(fd, data, offset):
        if offset > 40_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    monkeypatch.setattr(atomic.os, "pwrite", full)
    with pytest.raises(OutputError, match="no space left on device"):
        quantize(source, tmp_path / "out.gguf", "Q4_0")
    monkeypatch.undo()

    def stop(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(source, tmp_path / "out.gguf", "Q4_0", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["source.gguf"]


def test_weights_that_are_not_finite(tmp_path):
    arrays = tiny.drafter_arrays()
    arrays["fc.weight"][3, 4] = float("nan")
    path = tiny.write_drafter(tmp_path / "s.gguf", tensors={"fc.weight": arrays["fc.weight"]})
    with pytest.raises(QuantizeError, match=r"tensor `fc.weight`: a value is not finite"):
        quantize(path, tmp_path / "out.gguf", "Q4_0")
    assert [path.name for path in tmp_path.iterdir()] == ["s.gguf"]
