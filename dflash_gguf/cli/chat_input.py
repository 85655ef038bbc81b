"""What the user types in a chat: a message, which may have several lines.

Comes in: a terminal. Goes out: texts. With prompt_toolkit (the extra `chat`) there is a history and editing; without it
lines come as Python reads them. Prompts never go to a stdout that is no terminal.
"""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from dflash_gguf.cli import ENDING
from dflash_gguf.environment import plain_terminal, state_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PROMPT: Final = ">>> "
CONTINUATION: Final = "... "
QUOTES: Final = '"' * 3
"""Begin and end a message of several lines."""


class Reader(Protocol):
    """``read`` raises EOFError when the user is done, KeyboardInterrupt when interrupted with nothing typed."""

    def read(self) -> str:
        """What was typed, complete."""


def open_reader() -> Reader:
    """The best that is there."""
    if find_spec("prompt_toolkit") is None or plain_terminal() or not (sys.stdout.isatty() or sys.stderr.isatty()):
        return PlainReader()
    return ToolkitReader()


def is_complete(text: str) -> bool:
    """Whether a message ends here: not within quotes, nor behind a backslash."""
    if text.startswith(QUOTES):
        return len(text) >= 2 * len(QUOTES) and text.rstrip().endswith(QUOTES)
    return not text.endswith("\\")


def message_of(text: str) -> str:
    """What was meant by what was typed: without the quotes around it, or the backslashes before line breaks."""
    if text.startswith(QUOTES):
        return text.rstrip()[len(QUOTES) : -len(QUOTES)].strip("\n")
    return text.replace("\\\n", "\n")


class PlainReader:
    """Lines as Python reads them, with readline where there is one."""

    def __init__(self) -> None:
        with suppress(ImportError):
            import readline  # noqa: F401  it makes input() edit

    def read(self) -> str:
        """What was typed, complete."""
        text = _line(PROMPT)
        while not is_complete(text):
            text = f"{text}\n{_line(CONTINUATION)}"
        return text


def _line(prompt: str) -> str:
    if sys.stdout.isatty():
        return input(prompt)
    click.echo(prompt, err=True, nl=False)
    return input()


class ToolkitReader:
    """prompt_toolkit: Enter sends, Alt-Enter begins a line, and what is pasted stays whole."""

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output

        self._session: Any = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=CONTINUATION,
            key_bindings=_keys(),
            history=_history(state_folder() / "chat_history"),
            output=create_output(sys.stdout if sys.stdout.isatty() else sys.stderr),
        )

    def read(self) -> str:
        """What was typed, complete; a signal that asks the process to end ends the prompt first."""
        text = ""
        with _told_to_end(self._session.app) as signals:
            try:
                text = str(self._session.prompt())
            except EOFError:
                if not signals:
                    raise
        if signals:
            sys.exit(128 + signals[0])
        return text


@contextmanager
def _told_to_end(app: Any) -> Iterator[list[int]]:
    """The signals that came while ``app`` ran; an exception out of a handler would land in any task of its loop."""
    came: list[int] = []

    def end(number: int, _frame: object) -> None:
        if not app.is_running:
            sys.exit(128 + number)
        came.append(number)
        app.loop.call_soon_threadsafe(leave)

    def leave() -> None:
        if app.is_running and not app.is_done:
            app.exit(exception=EOFError)

    before = {number: signal.signal(number, end) for number in ENDING}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _keys() -> Any:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: Any) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("escape", "enter")
    def begin_a_line(event: Any) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("c-c")
    @keys.add("<sigint>")
    def drop(event: Any) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


def _history(file: Path) -> Any:
    """What was typed before, in a file that only its user reads; a folder that cannot be written to is no hindrance."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class History(FileHistory):
        def load_history_strings(self) -> Iterable[str]:
            with suppress(OSError):
                yield from super().load_history_strings()

        def store_string(self, string: str) -> None:
            with suppress(OSError):
                super().store_string(string)

    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600, exist_ok=True)
    except OSError:
        return InMemoryHistory()
    return History(file)
