"""The redirection of libllama's log: handles may be dropped, and closed in any order."""

import logging
import subprocess
import sys
import time

import pytest

from dflash_gguf.log import LogRedirection, _callback, log_to

USE = """
import gc, logging
import llama_cpp
import dflash_gguf as dg

class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())

def logger(name):
    made = logging.getLogger(name)
    made.propagate = False
    made.setLevel(logging.DEBUG)
    made.handlers = [Keep()]
    return made

def say():
    llama_cpp.llama_model_load_from_file(b"/no/such/file.gguf", llama_cpp.llama_model_default_params())

def heard(made):
    return any("/no/such/file.gguf" in line for line in made.handlers[0].lines)

one, two = logger("one"), logger("two")
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", USE + code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_dropped_handle_goes_on_working():
    run("dg.log_to(one)\nfor _ in range(5): gc.collect()\nsay()\nassert heard(one)")


def test_closing_in_any_order_restores_what_was_there():
    done = run(
        "a = dg.log_to(one); b = dg.log_to(two); a.close(); a.close(); say(); assert heard(two) and not heard(one)\n"
        "b.close(); del a, b; gc.collect(); say()"
    )
    assert "/no/such/file.gguf" in done.stderr, "llama_cpp's own callback is back"


def test_the_newest_redirection_gets_the_log_and_the_one_before_it_comes_back():
    run(
        "with dg.log_to(one):\n    with dg.log_to(two): say()\n    assert heard(two) and not heard(one)\n    say()\n"
        "assert heard(one)"
    )


def test_pieces_are_joined_to_lines_of_the_first_pieces_level(caplog):
    redirection = LogRedirection(logging.getLogger("joined"))
    with caplog.at_level(logging.DEBUG, "joined"):
        for level, text in ((3, b"first "), (5, b"half\nsec"), (5, b"ond\n"), (2, b"\n"), (4, b"bad \xff\n")):
            redirection.receive(level, text)
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (logging.WARNING, "first half"),
        (logging.WARNING, "second"),
        (logging.ERROR, "bad \ufffd"),
    ]


@pytest.mark.parametrize("logger", [None, "x", 3, print])
def test_what_is_no_logger_is_refused(logger):
    with pytest.raises(TypeError, match="a logger of the logging module is needed"):
        log_to(logger)


def test_a_logger_that_raises_is_left_alone_after_the_first_time():
    class Broken(logging.Logger):
        def log(self, *_, **__):
            raise ZeroDivisionError

    with log_to(Broken("broken")) as redirection:
        with pytest.warns(UserWarning, match="no longer redirected: ZeroDivisionError"):
            _callback._serve(2, b"line\n", None)
        _callback._serve(2, b"line\n", None)
        assert redirection not in _callback._open


def test_an_interrupt_in_the_log_arrives_after_the_call():
    """ctypes drops what a callback raises."""

    class Interrupted(logging.Logger):
        def log(self, *_, **__):
            raise KeyboardInterrupt

    arrived = False
    with log_to(Interrupted("interrupted")):
        try:
            _callback._serve(2, b"line\n", None)
            time.sleep(5)
        except KeyboardInterrupt:
            arrived = True
    assert arrived
