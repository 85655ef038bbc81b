"""The commands as a user types them: exit codes, what goes to stdout, one line for a failure."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import tiny
from remedies import check_remedy


def dflash(*words, stdin="", cwd=None):
    """Runs the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dflash_gguf", *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )


def one_line_error(done, code):
    """A failure is one line on stderr, with no traceback, and nothing on stdout."""
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "is a fault in dflash-gguf" not in line
    assert done.stdout == ""
    check_remedy(done.args[3:], line)
    return line


@pytest.fixture
def run_words(tiny_target, tiny_drafter):
    sizes = ["-c", 256, "-t", 1, "-n", 12]
    return ["run", "-m", tiny_target, "-md", tiny_drafter, *sizes, "--temp", 0, "--depth", "fixed"]


def test_help_lists_every_command_and_each_has_its_own():
    from dflash_gguf.cli import COMMANDS

    text = dflash("--help").stdout
    for name in COMMANDS:
        assert f"  {name} " in text
        own = dflash(name, "--help")
        assert own.returncode == 0
        assert "--json" in own.stdout


def test_run_writes_text_to_stdout_and_statistics_to_stderr(run_words):
    done = dflash(*run_words, "-p", "hello", "--raw")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert "mean acceptance length" in done.stderr
    assert "generated 12 tokens" in done.stderr


def test_run_json_is_one_object_and_agrees_with_the_plain_run(run_words):
    drafted = json.loads(dflash(*run_words, "-p", "hello", "--json").stdout)
    assert drafted["finish_reason"] == "length"
    stats = drafted["stats"]
    assert (stats["predicted_n"], len(drafted["ids"])) == (12, 12)
    assert stats["drafter"] == "DFlash 2"
    assert stats["draft_calls"] > 0
    assert stats["acceptance_length"] == pytest.approx(1 + stats["draft_n_accepted"] / stats["verify_calls"])
    plain = json.loads(dflash(*run_words, "-p", "hello", "--json", "--no-draft").stdout)
    assert plain["stats"]["drafter"] is None
    assert plain["stats"]["draft_n"] == plain["stats"]["injected_n"] == 0


def test_the_prompt_comes_from_p_f_or_stdin(run_words, tmp_path):
    (tmp_path / "prompt.txt").write_text("hello", encoding="utf-8")
    texts = {
        dflash(*run_words, "-p", "hello").stdout,
        dflash(*run_words, "-f", tmp_path / "prompt.txt").stdout,
        dflash(*run_words, "-f", "-", stdin="hello").stdout,
        dflash(*run_words, stdin="hello").stdout,
    }
    assert len(texts) == 1


def test_run_shows_what_depth_control_found(run_words):
    auto = [word if word != "fixed" else "auto" for word in run_words]
    done = dflash(*auto, "-p", "hello", "-v")
    said = "depth control: a target pass of 1 to 8 tokens takes "
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("depth control"))
    assert line.startswith(said)
    times = line.removeprefix(said).split(" ms; ")[0].split()
    assert len(times) == 8
    assert all(float(time) > 0 for time in times)
    for quiet in (dflash(*auto, "-p", "hello"), dflash(*run_words, "-p", "hello", "-v")):
        assert "depth control" not in quiet.stderr
    assert quiet.stdout == done.stdout


def test_a_cap_above_the_block_is_clamped_with_one_warning(run_words):
    done = dflash(*run_words, "-p", "hello", "--spec-draft-n-max", 20, "--json")
    assert done.stderr.count("warning: ") == 1
    assert "drafting 7" in done.stderr
    assert len(json.loads(done.stdout)["stats"]["accepted_per_position"]) == 7


@pytest.mark.parametrize(
    "words",
    [
        ["run", "-p", "hello"],
        ["run", "-m", "x.gguf", "--no-draft", "-p", "a", "-f", "-"],
        ["run", "-m", "x.gguf", "-md", "y.gguf", "-p", "a", "--spec-draft-n-max", "0"],
        ["run", "-m", "x.gguf", "-md", "y.gguf", "-p", "a", "-n", "many"],
        ["convert"],
        ["convert", "folder", "--target", "x.gguf", "--quant", "Q9_9"],
        ["nothing"],
        ["run", "--no-such-option"],
    ],
)
def test_wrong_usage_exits_2_with_one_line(words):
    one_line_error(dflash(*words), 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train -hfd x", "No such option '-hfd'. (Did you mean one of: '-hf'"),
        ("quantize -md x", "No such option '-md'."),
        ("recipe -p -zo -oz", "No such option '-p'."),
        ("run -p -yz -zzz", "No such option '-zzz'."),
        ("bench quants -vfx", "No such option '-vfx'."),
        ("run --modle x", "No such option '--modle'. (Did you mean one of: '--model'"),
        ("run -k", "No such option '-k'."),
        ("train -mfoo.gguf -u", "No such option '-u'."),
        ("train -oout -k", "No such option '-k'."),
        ("run -p -kx -k", "No such option '-k'."),
        ("-xy", "No such option '-x'."),
    ],
)
def test_an_unknown_option_is_named_as_it_was_written(words, said):
    assert f"error: {said}" in one_line_error(dflash(*words.split()), 2)


def test_bytes_that_are_no_text_are_wrong_usage(run_words, tmp_path):
    (tmp_path / "prompt.bin").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in one_line_error(dflash(*run_words, "-f", tmp_path / "prompt.bin"), 2)


def test_failures_exit_1_with_one_line(tiny_target, tiny_drafter, tiny_checkpoint, tmp_path):
    other = tiny.write_target(tmp_path / "other.gguf", hidden=256, vocab=600, type="F16")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_target.read_bytes()[:5000])
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(tiny_target.read_bytes().replace(b"blk.0.attn_q.weight", b"blk.0.attn_w.weight"))
    pointer = tmp_path / "pointer"
    pointer.mkdir()
    (pointer / "config.json").write_bytes((tiny_checkpoint / "config.json").read_bytes())
    (pointer / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    cases = {
        "libllama: ": ["run", "-m", torn, "--no-draft", "-p", "a", "-t", 1],
        "Git LFS pointer": ["convert", pointer, "--target", tiny_target],
        "no regular file": ["convert", tiny_checkpoint, "--target", tmp_path / "pipe"],
        "is one of the inputs": [
            "convert",
            pointer.parent / "checkpoint",
            "--target",
            tiny_target,
            "--force",
            "-o",
            pointer.parent / "checkpoint/config.json",
        ],
        "no regular file; choose": [
            "convert",
            tiny_checkpoint,
            "--target",
            tiny_target,
            "--force",
            "-o",
            tmp_path / "pipe",
        ],
        "no such file": ["run", "-m", tmp_path / "none.gguf", "--no-draft", "-p", "a"],
        "truncated": ["run", "-m", broken, "--no-draft", "-p", "a"],
        "does not fit": ["run", "-m", other, "-md", tiny_drafter, "-p", "a"],
        "is a drafter": ["run", "-m", tiny_drafter, "--no-draft", "-p", "a"],
        "prompt is empty": ["run", "-m", tiny_target, "--no-draft", "--raw", "-p", "", "-t", 1],
        "not a folder": ["convert", tmp_path / "none", "--target", tiny_target],
        "is no GGUF file": ["convert", tiny_checkpoint, "--target", tiny_checkpoint / "config.json"],
        "are the same file": ["modelfile", "-m", tiny_target, "-md", tiny_target],
    }
    shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for text, words in cases.items():
        assert text in one_line_error(dflash(*words, cwd=tmp_path), 1)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_stdin_without_a_prompt(run_words):
    for text in ("", " \n"):
        assert "stdin holds no prompt; give one with -p or -f" in one_line_error(dflash(*run_words, stdin=text), 2)


def test_what_is_no_utf8_in_the_command_line(run_words, tmp_path):
    odd = os.fsencode(tmp_path) + b"/caf\xe9.gguf"
    words = [os.fsencode(str(word)) for word in run_words]
    shutil.copy(run_words[2], odd)
    words[2] = odd
    for end, code in (([b"-p", b"hello"], 0), ([b"-p", b"caf\xe9"], 2)):
        command = [os.fsencode(sys.executable), b"-m", b"dflash_gguf", *words, *end]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        assert done.returncode == code, done.stderr


def test_convert_then_modelfile(tiny_checkpoint, tiny_target, tmp_path):
    done = dflash("convert", tiny_checkpoint, "--target", tiny_target, "--quant", "int4", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    (written,) = tmp_path.glob("dflash-*-Q4_0.gguf")
    assert result["path"] == str(written)
    assert result["tensor_types"]["Q4_0"] > 0
    again = dflash("convert", tiny_checkpoint, "--target", tiny_target, "-o", written)
    assert "--force" in one_line_error(again, 1)
    made = dflash("modelfile", "-m", tiny_target, "-md", written, "-o", tmp_path / "Modelfile")
    assert made.returncode == 0, made.stderr
    assert "ollama create" in made.stdout
    lines = (tmp_path / "Modelfile").read_text(encoding="utf-8").splitlines()
    assert f"DRAFT {written}" in lines
    assert "PARAMETER draft_num_predict 7" in lines


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_streams_are_no_fault(closed, run_words):
    words = " ".join(map(str, [*run_words, "-p", "hello"]))
    command = ["sh", "-c", f"{sys.executable} -m dflash_gguf {words} {closed}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert "fault" not in done.stderr


def test_a_reader_that_leaves_is_no_traceback(run_words):
    process = subprocess.Popen(
        [sys.executable, "-m", "dflash_gguf", *map(str, run_words), "-p", "hello"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=120)
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def test_run_shows_warnings_and_ends_before_a_text(tiny_target, tmp_path, run_words):
    draft = tiny.write_drafter(tmp_path / "d.gguf", drop_keys=["dflash.attention.causal"])
    words = ["run", "-m", tiny_target, "-md", draft, "-c", 256, "-t", 1, "-n", 12, "-ctkd", "q8_0", "-fa", "on"]
    done = dflash(*words, "-p", "hello", "--raw", "--temp", 0)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 2
    assert "`dflash.attention.causal` is missing" in warnings[0]
    assert "cache is quantized" in warnings[1]
    text = dflash(*run_words, "-p", "hello", "--raw").stdout
    stop = text[4:7]
    assert dflash(*run_words, "-p", "hello", "--raw", "-r", stop).stdout == text[: text.find(stop)] + "\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-sm", "tensor"], "split mode `tensor` ends the process"),
        (["--rpc", "nowhere"], "an RPC server: got 'nowhere', expected host:port"),
        (["--rpc", "nowhere:50052"], "without RPC, which `nowhere:50052` needs; build llama-cpp-python anew with"),
        (["-dev", "CUDA7"], "`dflash-gguf doctor` lists those that there are"),
        (["-ctv", "q8_0", "-fa", "off"], "a quantized cache of values"),
    ],
)
def test_settings_that_cannot_be_are_one_line(run_words, words, message):
    assert message in one_line_error(dflash(*run_words, "-p", "x", *words), 1)


def test_no_arguments_is_the_help_and_wrong_usage():
    done = dflash()
    assert done.returncode == 2
    assert done.stdout.splitlines()[0].startswith("Usage: ")
    assert "  check " in done.stdout
    assert done.stderr == ""


def test_a_failure_in_json_mode_is_an_object_too(tmp_path):
    done = dflash("inspect", "--json", tmp_path / "absent.gguf")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"error": done.stderr.removeprefix("error: ").strip()}


def test_a_prompt_without_end_is_refused(run_words):
    done = dflash(*run_words, "-f", "/dev/zero")
    assert "the prompt is longer than" in one_line_error(done, 2)
