"""One request on its way through the worker: the worker runs it, the event loop reads what it yields.

Comes in: token ids and the keywords of `Session.generate`. Goes out: parts of the answer and its end, across threads.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dflash_gguf.errors import DflashError
from dflash_gguf.runner.generation import Finished, Round, Text
from dflash_gguf.serve.errors import of_request, of_server

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from dflash_gguf.runner.session import Event, Session
    from dflash_gguf.runner.stats import RunStats


class GoneError(Exception):
    """The client has left."""


@dataclass(frozen=True, slots=True)
class Part:
    """Text, with the rounds that it came of; ``stats``: what was counted until then, where that was asked for."""

    text: Text
    rounds: tuple[Round, ...]
    stats: RunStats | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The last message of an answer: how it ended, and rounds that left no text of their own."""

    finished: Finished
    rounds: tuple[Round, ...]


Message = Part | End


class Job:
    """State: whether anybody still wants it, its clock, and the messages that wait for the event loop.

    ``streamed``: each message is handed over at once, else all of them at the end. ``counted``: parts carry their
    statistics. ``fresh``: nothing is kept of the prompt before.
    """

    def __init__(
        self,
        ids: Sequence[int],
        options: Mapping[str, Any],
        *,
        streamed: bool,
        counted: bool = False,
        fresh: bool = False,
    ) -> None:
        self.ids = ids
        self._options = options
        self._streamed = streamed
        self._counted = counted
        self._fresh = fresh
        self._wanted = True
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[list[Message] | Exception] = asyncio.Queue()
        self.queued_at = time.perf_counter()
        self.started_at = self.first_at = self.ended_at = 0.0
        self.stats: RunStats | None = None
        self.reason = "abort"

    @property
    def seconds(self) -> float:
        """How long the worker was busy with it."""
        return self.ended_at - self.started_at

    # ------------------------------------------------ the event loop's side

    async def messages(self) -> list[Message]:
        """What has come since the last call, at least one. Raises what went wrong: ApiError, GoneError."""
        found = await self._inbox.get()
        if isinstance(found, Exception):
            raise found
        return found

    def leave(self) -> None:
        """Nobody wants the answer any more: the worker stops after the pass that is running."""
        self._wanted = False

    def gone(self) -> None:
        """The client has left: whoever waits for a message is told."""
        self.leave()
        self._inbox.put_nowait(GoneError())

    def wanted(self) -> bool:
        """Whether to go on."""
        return self._wanted

    # ------------------------------------------------ the worker's side

    def fail(self, error: Exception) -> None:
        """Hands over what went wrong; from any thread."""
        self.leave()
        self._hand_over(error)

    def run(self, session: Session) -> None:
        """Writes the answer. Raises nothing."""
        self.started_at = time.perf_counter()
        try:
            for message in self._messages(session):
                self._hand_over([message] if isinstance(message, Part | End) else message)
        except Exception as error:  # noqa: BLE001  it becomes the client's answer
            self.fail(of_server(error))
        finally:
            self.ended_at = time.perf_counter()

    def _messages(self, session: Session) -> Generator[list[Message] | Message]:
        if self._fresh:
            session.forget()
        try:
            events = session.generate(self.ids, wanted=self.wanted, **self._options)
        except DflashError as error:
            raise of_request(error, None) from error
        collected: list[Message] = []
        with closing(cast("Generator[Event]", events)):
            for message in self._joined(session, cast("Generator[Event]", events)):
                if self._streamed:
                    yield message
                else:
                    collected.append(message)
        self.stats = session.stats
        if collected:
            yield collected

    def _joined(self, session: Session, events: Generator[Event]) -> Generator[Message]:
        """Rounds are kept until there is text, so that the event loop is woken no more often than it must."""
        rounds: list[Round] = []
        for event in events:
            match event:
                case Round():
                    self.first_at = self.first_at or time.perf_counter()
                    rounds.append(event)
                case Text():
                    yield Part(event, tuple(rounds), session.progress if self._counted else None)
                    rounds.clear()
                case Finished():
                    self.reason = event.reason
                    yield End(event, tuple(rounds))

    def _hand_over(self, found: list[Message] | Exception) -> None:
        try:
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, found)
        except RuntimeError:  # the loop has ended
            self.leave()
