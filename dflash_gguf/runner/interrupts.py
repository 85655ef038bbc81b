"""Ctrl-C during a long native call that calls back into Python.

Comes in: nothing. Goes out: a context that holds an interrupt back. ctypes drops what a callback raises, so an
interrupt that arrives during such a call would be lost there.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class Interrupt:
    """``pending`` turns true when the user interrupts; a callback may end the native call then."""

    pending: bool = False


@contextmanager
def held_back() -> Iterator[Interrupt]:
    """Holds SIGINT back and raises KeyboardInterrupt at the end if it came. Only in the main thread, as signals are."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def note(_signal: int, _frame: Any) -> None:
        interrupt.pending = True

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
        if interrupt.pending:
            raise KeyboardInterrupt
