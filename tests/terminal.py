"""A command in a terminal of its own, and what it shows there.

Comes in: words. Goes out: what is seen, with or without the codes that colour it and move the cursor. The program is
started by `subprocess`: a fork of a process with threads, as tests run in, is warned of.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Self

from pexpect import EOF
from pexpect.fdpexpect import fdspawn

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT = 120
START = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches the program
{prelude}
from dflash_gguf.cli import main
main()
"""
CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Terminal:
    """``prelude``: Python that runs before the command. ``seen`` is all that was read."""

    def __init__(self, *words: object, prelude: str = "", variables: Mapping[str, str] | None = None) -> None:
        own, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, 120))
        surroundings = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        surroundings |= {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **(variables or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-c", START.format(prelude=prelude), *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=surroundings,
            start_new_session=True,
        )
        os.close(theirs)
        self._screen = fdspawn(own, timeout=TIMEOUT, encoding="utf-8")
        self.raw = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT)
        self._screen.close()

    def until(self, text: str) -> str:
        """What is shown up to ``text`` and with it, without codes."""
        self._screen.expect_exact(text)
        return self._took(self._screen.before + text)

    def send(self, keys: str) -> None:
        """Types."""
        self._screen.send(keys)

    def end(self) -> tuple[int, str]:
        """The exit code, and what is shown up to the end."""
        try:
            self._screen.expect(EOF)
            rest = self._screen.before
        except OSError:  # what Linux says of a terminal that nobody has open
            rest = self._screen.buffer
        return self.process.wait(TIMEOUT), self._took(rest)

    def _took(self, text: str) -> str:
        self.raw += text
        return CODES.sub("", text).replace("\r", "")
