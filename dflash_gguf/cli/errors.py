"""Failures to one line on stderr and an exit code.

Comes in: an exception. Goes out: a code. A failure that is not ours prints its traceback under ``DFLASH_GGUF_DEBUG``.
"""

from __future__ import annotations

import errno
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from dflash_gguf.cli.native_log import last_error
from dflash_gguf.cli.remedies import followable
from dflash_gguf.environment import debug
from dflash_gguf.errors import DflashError, QuantizeError, SessionError
from dflash_gguf.file_text import printable

if TYPE_CHECKING:
    from dflash_gguf.cli.output import Output

FAILED: Final = 1
WRONG_USAGE: Final = 2
NOT_PASSED: Final = 3
INTERRUPTED: Final = 130


def report_and_exit_code(error: BaseException, output: Output) -> int:
    """Prints ``error`` for a person, in json mode as an object too, and returns the exit code of its kind."""
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "dflash-gguf"
        click.echo(f"error: {' '.join(error.format_message().split())} (see `{command} --help`)", err=True)
        return WRONG_USAGE
    if isinstance(error, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        sys.stdout = None  # the reader is gone: nothing may be flushed to it at exit
        return FAILED
    if debug():
        traceback.print_exception(error)
    reason = f" (libllama: {last_error()})" if isinstance(error, SessionError | QuantizeError) and last_error() else ""
    text = f"{sentence(error)}{reason}"
    if output.context is not None:
        text = followable(text, output.context)
    click.echo(f"error: {text}", err=True)
    with suppress(OSError):
        output.result({"error": text})
    return FAILED


def ending_code(ending: KeyboardInterrupt | SystemExit) -> int:
    """The exit code behind an interrupt, or a signal that ends the process."""
    code = ending.code if isinstance(ending, SystemExit) else None
    return code if isinstance(code, int) else INTERRUPTED


def sentence(error: BaseException) -> str:
    """One line: what failed, the value, what was expected, the next step."""
    return printable(" ".join(_words(error).split()))


def _words(error: BaseException) -> str:
    if isinstance(error, DflashError | click.ClickException):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"`{error.filename}`: {_os_reason(error)}"
    if isinstance(error, OSError) and error.errno in REASONS:
        return f"what was being written, or read, failed: {REASONS[error.errno]}"
    if isinstance(error, ImportError | MemoryError | OSError):
        return f"{type(error).__name__}: {error}"
    return (
        f"{type(error).__name__}: {error}; this is a fault in dflash-gguf: "
        "set DFLASH_GGUF_DEBUG=1 and report what it prints"
    )


REASONS: Final = {
    errno.ENOENT: "no such file; check the path",
    errno.EACCES: "permission denied; check who may read or write it",
    errno.ENOSPC: "the disk is full; free some space or write to another folder, by TMPDIR what is temporary",
    errno.EROFS: "the file system is read-only; write to another folder, by HF_HOME what is downloaded",
    errno.EISDIR: "it is a folder, a file was expected",
    errno.ENOTDIR: "a part of the path is no folder",
}


def _os_reason(error: OSError) -> str:
    return REASONS.get(error.errno or 0, str(error.strerror))
