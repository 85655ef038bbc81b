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
