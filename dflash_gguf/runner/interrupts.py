"""Ctrl-C, and signals that ask to end, during a long native call that calls back into Python.

Comes in: nothing. Goes out: a context that holds such a signal back. A signal's handler runs in the next Python code,
which during such a call is a callback, and ctypes drops what that raises.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(slots=True)
class Interrupt:
    """``pending`` turns true when a signal asks to end; a callback may end the native call then."""

    number: int = 0

    @property
    def pending(self) -> bool:
        """Whether a signal came."""
        return self.number > 0


@contextmanager
def held_back() -> Iterator[Interrupt]:
    """Holds back those of ``ENDING`` that a Python function handles, and calls that at the end if one came.

    Only in the main thread, as signals are.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def note(number: int, _frame: Any) -> None:
        interrupt.number = interrupt.number or number

    handlers = {number: found for number in ENDING if callable(found := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, note)
    try:
        yield interrupt
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if interrupt.pending:
            handlers[signal.Signals(interrupt.number)](interrupt.number, None)
