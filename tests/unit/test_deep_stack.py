"""Long texts are tokenized on a stack of their own."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import tiny

from dflash_gguf.errors import SessionError
from dflash_gguf.runner.deep_stack import LONGEST, SHALLOW, with_deep_stack


def test_a_short_text_stays_in_its_thread():
    assert with_deep_stack(SHALLOW, threading.current_thread) is threading.current_thread()
    assert with_deep_stack(SHALLOW + 1, threading.current_thread) is not threading.current_thread()


def test_what_the_call_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        with_deep_stack(SHALLOW + 1, lambda: 1 // 0)


def test_the_size_of_other_threads_stacks_is_put_back():
    before = threading.stack_size()
    with_deep_stack(1 << 20, int)
    assert threading.stack_size() == before


def test_too_long_a_text():
    with pytest.raises(SessionError, match=f"a text of {LONGEST + 1} bytes, expected at most {LONGEST}"):
        with_deep_stack(LONGEST + 1, int)


def test_an_unbroken_run_does_not_end_the_process(tmp_path):
    """`default` is split by a recursive std::regex: on the usual stack, 30,000 letters were too many."""
    path = tiny.write_target(
        tmp_path / "t.gguf",
        extra_keys={"tokenizer.ggml.pre": "default"},
        hidden=64,
        ffn=64,
        layers=1,
        heads=1,
        kv_heads=1,
    )
    code = (
        "import sys; from pathlib import Path; from dflash_gguf.runner.models import Model;"
        "from dflash_gguf.runner.vocabulary import Vocabulary;"
        "v = Vocabulary(Model(Path(sys.argv[1])));"
        "print(len(v.tokenize('1' * 200_000, add_special=False, parse_special=False)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.returncode
    assert done.stdout.splitlines()[-1] == "200000"
