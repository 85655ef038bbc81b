"""libllama's log, sent to a Python logger for as long as someone asks for it.

Comes in: a ``logging.Logger``. Goes out: a handle that ends the redirection.
llama_cpp installs a process-wide callback when it is imported; nothing here touches it unless ``log_to`` is called. One
permanent callback of ours then stands in for it and serves the newest open redirection; when the last is closed, the
callback from before is put back.
"""

from __future__ import annotations

import _thread
import ctypes
import logging
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

_LEVELS: Final[dict[int, int]] = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
"""ggml_log_level -> logging level."""

AGAIN: Final = 0.01
"""Seconds after which an interrupt is sent again."""

_CONTINUE: Final = 5
"""The level of text that goes on with the line before."""


class LogRedirection:
    """An open redirection. ``close()``, or leaving the ``with``, ends it; in any order, any number of times."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._line = ""
        self._level = logging.INFO

    def receive(self, level: int, text: bytes) -> None:
        """Takes a piece of the log; whole lines go to the logger."""
        if level != _CONTINUE:
            self._level = _LEVELS.get(level, logging.INFO)
        self._line += text.decode("utf-8", "replace")
        *lines, self._line = self._line.split("\n")
        for line in lines:
            if line.strip():
                self._logger.log(self._level, "%s", line)

    def close(self) -> None:
        """Ends the redirection."""
        _callback.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Callback:
    """The open redirections, the newest last, and the C callback that serves them. It is never freed."""

    def __init__(self) -> None:
        self._open: list[LogRedirection] = []
        self._ours: Any = None
        self._previous: tuple[Any, ctypes.c_void_p] | None = None

    def add(self, redirection: LogRedirection) -> None:
        import llama_cpp

        self._ours = self._ours or llama_cpp.llama_log_callback(self._serve)
        if not self._open:
            previous, data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
            llama_cpp.llama_log_get(ctypes.byref(previous), ctypes.byref(data))
            self._previous = previous, data
            llama_cpp.llama_log_set(self._ours, ctypes.c_void_p(0))
        self._open.append(redirection)

    def remove(self, redirection: LogRedirection) -> None:
        if redirection not in self._open:
            return
        self._open.remove(redirection)
        if not self._open and self._previous is not None:
            import llama_cpp

            llama_cpp.llama_log_set(*self._previous)

    def _serve(self, level: int, text: bytes, _: Any) -> None:
        """Called by libllama. What is raised here ctypes drops: an interrupt is sent again, once it is through."""
        if not self._open:
            return
        redirection = self._open[-1]
        try:
            redirection.receive(level, text)
        except KeyboardInterrupt:
            threading.Timer(AGAIN, _thread.interrupt_main).start()
        except Exception as error:  # noqa: BLE001  a logger that fails once would fail for each of hundreds of lines
            self.remove(redirection)
            warnings.warn(f"libllama's log is no longer redirected: {error!r}", stacklevel=2)


_callback: Final = _Callback()


def log_to(logger: logging.Logger) -> LogRedirection:
    """Sends libllama's log to ``logger`` until the returned handle is closed; the newest redirection gets all of it."""
    if not isinstance(logger, logging.Logger | logging.LoggerAdapter):
        raise TypeError(f"a logger of the logging module is needed, not {type(logger).__name__}")
    redirection = LogRedirection(logger)
    _callback.add(redirection)
    return redirection
