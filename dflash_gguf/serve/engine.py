"""One worker thread owns the session; requests wait for it in a queue of bounded length.

Comes in: jobs, from the event loop. Goes out: their events, handed back to the loop. Knows nothing of HTTP.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from dflash_gguf.serve.errors import ApiError, of_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dflash_gguf.runner.session import Session
    from dflash_gguf.serve.job import Job, Message

LONGEST_WAIT: Final = 120
"""Seconds of a Retry-After at the most."""
_AGE: Final = 0.7
"""What the usual duration keeps of itself when another is seen."""


class Engine:
    """State: how many requests are inside, waiting or running, and how long one usually takes.

    All methods but the worker's are called from the event loop's thread. The queue holds nothing but jobs that wait and
    are wanted; what the worker takes from it is the running one at once, so that none is missed at the end.
    """

    def __init__(self, session: Session, most_waiting: int, finished: Callable[[Job], None]) -> None:
        self.session = session
        self._most = most_waiting + 1
        self._finished = finished
        self._inside = 0
        self._usual = 1.0
        self._open = True
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._running: Job | None = None
        self._thread = threading.Thread(target=self._work, name="session", daemon=True)

    def start(self) -> None:
        """Begins to take jobs."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return max(0, self._inside - self.running)

    @property
    def running(self) -> int:
        """1 while an answer is written."""
        return int(self._running is not None)

    @property
    def alive(self) -> bool:
        """Whether requests are taken."""
        return self._open and self._thread.is_alive()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """A place inside for as long as the block runs. Raises ApiError when there is none."""
        if not self.alive:
            raise _ending()
        if self._inside >= self._most:
            wait = min(LONGEST_WAIT, max(1, math.ceil(self._usual * self._inside)))
            raise ApiError(
                f"{self._inside} requests are inside already: one is answered at a time",
                status=429,
                code="rate_limit_exceeded",
                headers={"Retry-After": str(wait)},
                remedy=f"try again in {wait} seconds; `dflash-gguf recipe` shows engines that answer many at once",
            )
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def submit(self, job: Job) -> None:
        """Puts a job at the queue's end. Raises ApiError once no requests are taken."""
        with self._changed:
            if not self._open:
                raise _ending()
            self._jobs.append(job)
            self._changed.notify()

    def withdraw(self, job: Job) -> None:
        """Nobody wants the job any more, whether it has ended, runs or waits."""
        job.leave()
        with self._changed, suppress(ValueError):
            self._jobs.remove(job)

    def refuse(self) -> None:
        """Takes no more requests, and lets those go that have not begun; the running one goes on."""
        with self._changed:
            self._open = False
            for job in self._jobs:
                job.hand_over(_ending())
            self._jobs.clear()
            self._changed.notify()

    def cut(self) -> None:
        """Ends the running answer after its pass; its client is told at once."""
        if (running := self._running) is not None:
            running.leave()
            running.hand_over(_ending())

    def close(self) -> None:
        """Ends all answers, and the thread after the pass that is running."""
        self.refuse()
        self.cut()
        self._thread.join()

    def _next(self) -> Job | None:
        """The job whose turn it is, once there is one; None at the end."""
        with self._changed:
            self._running = None
            self._changed.wait_for(lambda: self._jobs or not self._open)
            self._running = self._jobs.popleft() if self._jobs else None
            return self._running

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if not job.wanted():
                continue
            last = job.run(self.session)
            self._running = None
            self._usual = _AGE * self._usual + (1 - _AGE) * job.seconds
            job.hand_over(self._counted(job, last))  # what is counted of an answer is there when its end is

    def _counted(self, job: Job, last: list[Message] | Exception) -> list[Message] | Exception:
        """``last``, or why the job could not be told of: that is its end alone, and not the thread's."""
        try:
            self._finished(job)
        except Exception as error:  # noqa: BLE001  it becomes the client's answer
            return of_server(error)
        return last


def _ending() -> ApiError:
    return ApiError("the server is shutting down", status=503, headers={"Retry-After": "10"})
