"""libllama's log for the time of a command: all of it on stderr with ``-v``; else its last error, for our own message.

Comes in: a click context. Goes out: a redirection that ends with the command.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

from dflash_gguf.log import log_to

if TYPE_CHECKING:
    import click

LOGGER: Final = logging.getLogger("dflash_gguf.libllama")


class _LastError(logging.Handler):
    """Keeps the text of the newest error."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a record of level ERROR."""
        self.text = record.getMessage()


_last: Final = _LastError(logging.ERROR)


def last_error() -> str:
    """The newest error that libllama logged in this process; empty when there was none."""
    return _last.text


def native_log(ctx: click.Context, *, verbose: bool) -> None:
    """Takes libllama's log until the command ends."""
    LOGGER.propagate = False
    LOGGER.setLevel(logging.DEBUG if verbose else logging.ERROR)
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(logging.Formatter("libllama: %(message)s"))
    LOGGER.handlers = [_last, *([shown] if verbose else [])]
    ctx.call_on_close(log_to(LOGGER).close)
