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
from dflash_gguf.serve.errors import named_in, of_request, of_server

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

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

    ``fields``: those that the request has; an error is told by the name of one. ``streamed``: each message is handed
    over at once, else all of them at the end. ``counted``: parts carry their statistics. ``fresh``: nothing is kept of
    the prompt before.
    """

    def __init__(
        self,
        ids: Sequence[int],
        options: Mapping[str, Any],
        *,
        fields: Collection[str],
        streamed: bool,
        counted: bool = False,
        fresh: bool = False,
    ) -> None:
        self.ids = ids
        self._options = options
        self._fields = fields
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

    def run(self, session: Session) -> list[Message] | Exception:
        """Writes the answer, and returns what is still to be handed over, its end among it. Raises nothing."""
        self.started_at = time.perf_counter()
        try:
            return self._answer(session)
        except Exception as error:  # noqa: BLE001  it becomes the client's answer
            return of_server(error)
        finally:
            self.ended_at = time.perf_counter()

    def hand_over(self, found: list[Message] | Exception) -> None:
        """To the event loop; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, found)
        except RuntimeError:  # the loop has ended
            self.leave()

    def _answer(self, session: Session) -> list[Message]:
        if self._fresh:
            session.forget()
        try:
            events = cast("Generator[Event]", session.generate(self.ids, wanted=self.wanted, **self._options))
        except DflashError as error:
            raise of_request(error, named_in(error.what, self._fields)) from error
        rest: list[Message] = []
        try:
            with closing(events):
                for message in self._joined(session, events):
                    if self._streamed and isinstance(message, Part):
                        self.hand_over([message])
                    else:
                        rest.append(message)
        finally:
            self.stats = session.stats
        return rest

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
