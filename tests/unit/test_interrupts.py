"""An interrupt that is held back during a native call is raised after it."""

import os
import signal
import threading

import pytest

from dflash_gguf.runner.interrupts import held_back


def test_an_interrupt_is_seen_at_once_and_raised_at_the_end():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work():
        with held_back() as interrupt:
            seen.append(interrupt.pending)
            os.kill(os.getpid(), signal.SIGINT)
            seen.append(interrupt.pending)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == [False, True]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_handler_of_another_signal_is_called_at_the_end(number):
    came = []

    def end(number, _frame):
        came.append(number)
        raise SystemExit(128 + number)

    def work():
        with held_back() as interrupt:
            os.kill(os.getpid(), number)
            assert interrupt.pending
            assert not came

    before = signal.signal(number, end)
    try:
        with pytest.raises(SystemExit, match=str(128 + number)):
            work()
        assert came == [number]
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, before)


def test_what_is_ignored_stays_ignored():
    """So are interrupts in a shell's background jobs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
        assert not interrupt.pending
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_nothing_happens_without_an_interrupt_or_outside_the_main_thread():
    with held_back():
        pass
    seen = []

    def work():
        with held_back() as interrupt:
            seen.append(interrupt.pending)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
