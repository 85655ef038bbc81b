"""libllama's log, sent to a Python logger for as long as someone asks for it.

Comes in: a ``logging.Logger``. Goes out: a handle that puts the previous callback back.
llama_cpp installs a process-wide callback when it is imported; nothing here touches it unless ``log_to`` is called.
"""

from __future__ import annotations

import ctypes
import logging
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

_LEVELS: Final[dict[int, int]] = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
"""ggml_log_level -> logging level. llama.cpp's DEBUG is 1; CONT (5) continues the line before."""

_CONTINUE: Final = 5


class LogRedirection:
    """A callback in place of the process-wide one. ``close()``, or leaving the ``with``, restores the previous."""

    def __init__(self, logger: logging.Logger) -> None:
        import llama_cpp

        self._set = llama_cpp.llama_log_set
        self._logger = logger
        self._line = ""
        self._level = logging.INFO
        self._previous: Any = llama_cpp.llama_log_callback()
        self._previous_data = ctypes.c_void_p()
        llama_cpp.llama_log_get(ctypes.byref(self._previous), ctypes.byref(self._previous_data))
        self._callback: Any = llama_cpp.llama_log_callback(self._receive)
        self._set(self._callback, ctypes.c_void_p(0))
        self._open = True

    def _receive(self, level: int, text: bytes, _: Any) -> None:
        if level != _CONTINUE:
            self._level = _LEVELS.get(level, logging.INFO)
        self._line += text.decode("utf-8", "replace")
        *lines, self._line = self._line.split("\n")
        for line in lines:
            if line.strip():
                self._logger.log(self._level, "%s", line)

    def close(self) -> None:
        """Puts the previous callback back. A second call does nothing."""
        if self._open:
            self._set(self._previous, self._previous_data)
            self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def log_to(logger: logging.Logger) -> LogRedirection:
    """Sends libllama's log to ``logger`` until the returned handle is closed; use it in a ``with``, or keep it."""
    return LogRedirection(logger)
