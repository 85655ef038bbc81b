"""What the routes share: the session's engine, the counts, the settings, and a thread that reads prompts.

Comes in: an open session. Goes out: jobs that are ready to be run. Prompts are rendered and tokenized beside a running
answer, so that a request that cannot be answered is told at once.
"""

from __future__ import annotations

import asyncio
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dflash_gguf.errors import DflashError
from dflash_gguf.serve.bodies import Bodies
from dflash_gguf.serve.engine import Engine
from dflash_gguf.serve.errors import ApiError, of_request
from dflash_gguf.serve.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dflash_gguf.runner.session import Session
    from dflash_gguf.serve.job import Job
    from dflash_gguf.serve.settings import ServerSettings

_T = TypeVar("_T")

LONGEST_READING: Final = 60.0
"""Seconds behind which a prompt that is still rendered or tokenized is taken to hang; the longest ones take a few."""


class Service:
    """Opened and closed by the application's lifespan."""

    def __init__(self, session: Session, settings: ServerSettings, tell: Callable[[Job], None] | None = None) -> None:
        self._tell = tell
        self.session = session
        self.settings = settings
        self.created = int(time.time())
        self.bodies = Bodies(settings)
        self.engine = Engine(session, settings.queue, self._finished)
        self.metrics = Metrics(self.engine, settings.model)
        self._spelt: dict[int, bytes] = {}
        self._reader = ThreadPoolExecutor(1, "prompts")
        self._reading_since = math.inf

    def start(self) -> None:
        """Begins to take requests."""
        self.engine.start()

    def close(self) -> None:
        """Ends both threads; the session stays open."""
        self.engine.close()
        self._reader.shutdown()

    def check_health(self) -> None:
        """Raises ApiError when no requests are taken, or a prompt holds up all those behind it."""
        if not self.engine.alive:
            raise ApiError("the server is shutting down", status=503)
        if time.monotonic() - self._reading_since > LONGEST_READING:
            raise ApiError(f"a prompt has been prepared for more than {LONGEST_READING:g} seconds", status=503)

    def _finished(self, job: Job) -> None:
        self.metrics.finished(job)
        if self._tell is not None:
            self._tell(job)

    async def aside(self, call: Callable[[], _T], param: str | None = None) -> _T:
        """What ``call`` returns, in the thread that reads prompts; what it refuses is the field ``param``'s fault."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, self._timed, call)
        except DflashError as error:
            raise of_request(error, param) from error

    def _timed(self, call: Callable[[], _T]) -> _T:
        self._reading_since = time.monotonic()
        try:
            return call()
        finally:
            self._reading_since = math.inf

    def check_length(self, ids: Sequence[int], param: str) -> None:
        """Raises ApiError for a prompt that does not fit the context, or is empty."""
        n_ctx = self.session.n_ctx
        if len(ids) > n_ctx:
            raise ApiError(
                f"the prompt has {len(ids)} tokens, {len(ids) - n_ctx} more than the context of {n_ctx} holds",
                param=param,
                code="context_length_exceeded",
                more={"n_prompt_tokens": len(ids), "n_ctx": n_ctx},
                remedy="shorten it, or start the server with a larger context (`-c`)",
            )
        if not ids:
            raise ApiError("the prompt is empty", param=param, expected="at least one token")

    def spell(self, token: int) -> bytes:
        """The bytes of a token, control tokens spelt out; asked of libllama once."""
        if token not in self._spelt:
            self._spelt[token] = self.session.vocabulary.piece(token, special=True)
        return self._spelt[token]

    def text_of(self, ids: Iterable[int]) -> str:
        """The text of tokens, control tokens spelt out; bytes that are no whole character are replaced."""
        return b"".join(map(self.spell, ids)).decode("utf-8", "replace")

    def model(self) -> dict[str, Any]:
        """The entry of /v1/models; ``meta`` as llama-server has it, with the drafter's kind."""
        session = self.session
        return {
            "id": self.settings.model,
            "object": "model",
            "created": self.created,
            "owned_by": "dflash-gguf",
            "meta": {"n_vocab": session.n_vocab, "n_ctx": session.n_ctx, "drafter": session.drafter},
        }
