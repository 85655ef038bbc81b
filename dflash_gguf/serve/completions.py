"""The routes that write an answer: chats and completions, whole and streamed.

Comes in: a request. Goes out: an answer that ends when the client leaves, the time is over or the text is done.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from dflash_gguf.responses import Heading
from dflash_gguf.runner.scores import Scored
from dflash_gguf.serve import requests, shapes
from dflash_gguf.serve.chat_prompt import chat_prompt
from dflash_gguf.serve.deltas import Delta
from dflash_gguf.serve.errors import ApiError
from dflash_gguf.serve.job import End, GoneError, Job, Message, Part
from dflash_gguf.serve.requests import Ask
from dflash_gguf.serve.response_format import schema_of
from dflash_gguf.serve.shapes import Chat, Completion, Form, Parser, PlainParser
from dflash_gguf.serve.writer import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.types import Receive, Scope, Send

    from dflash_gguf.runner.stats import RunStats
    from dflash_gguf.serve.fields import Fields
    from dflash_gguf.serve.service import Service

LONGEST_SILENCE: Final = 5.0
"""Seconds behind which a chunk without text says that there is an answer, while it is a call that is not whole yet."""
PING: Final = 15.0
"""Seconds of silence in a stream: clients and proxies give one up that says nothing for a minute."""
NO_REPEAT: Final = {"x-should-retry": "false"}
"""OpenAI's clients ask twice more behind any 5xx; an answer that took too long would take as long again."""
AT_ONCE: Final = 256
"""Parts of a whole answer that are read before others have their turn."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that is understood: what it asks for, its prompt, and how the answer is read and given.

    ``options``: keywords of `Session.generate`. ``warnings``: what the client is told beside the answer.
    """

    ask: Ask
    ids: list[int]
    form: Form
    parser: Parser
    options: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


class Answers(ABC):
    """An ASGI application: one route."""

    fields: Fields

    def __init__(self, service: Service) -> None:
        self._service = service

    @abstractmethod
    async def prepare(self, values: Mapping[str, Any], ask: Ask) -> Prepared:
        """Reads the prompt. Raises ApiError."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope, receive)
        writer = Writer(send)
        with suppress(GoneError, asyncio.CancelledError):  # cancelled: the server has ended, and nobody reads
            try:
                async with asyncio.timeout(self._service.settings.timeout):
                    await self._answer(request, writer)
            except TimeoutError:
                await writer.fail(_late(self._service.settings.timeout))
            except ApiError as error:
                await writer.fail(error)

    async def _answer(self, request: Request, writer: Writer) -> None:
        async with self._service.bodies.values(request, self.fields) as values:
            ask = Ask.of(values, self._service.settings.defaults)
        with self._service.engine.admitted():
            prepared = await self.prepare(values, ask)
            async with self._running(request, prepared) as job:
                await (_stream if ask.stream else _whole)(writer, prepared, job)

    @asynccontextmanager
    async def _running(self, request: Request, prepared: Prepared) -> AsyncIterator[Job]:
        """The job, for as long as the client waits for it."""
        ask = prepared.ask
        job = Job(
            prepared.ids,
            prepared.options,
            fields=ask.fields,
            streamed=ask.stream,
            counted=ask.timings_per_token,
            fresh=not ask.cache_prompt,
        )
        watch = asyncio.create_task(_watch(request, job))
        try:
            self._service.engine.submit(job)
            yield job
        finally:
            self._service.engine.withdraw(job)
            watch.cancel()


class ChatAnswers(Answers):
    """/v1/chat/completions."""

    fields = requests.CHAT

    async def prepare(self, values: Mapping[str, Any], ask: Ask) -> Prepared:
        """Renders the messages in the target's template."""
        service = self._service
        check = partial(service.check_length, param="messages")
        prompt = await service.aside(lambda: chat_prompt(service.session, values, check), "messages")
        form = Chat(Heading.new(service.settings.model), ask, service.spell)
        return Prepared(ask, prompt.ids, form, prompt.parser, {**ask.options, **prompt.options}, prompt.notes)


class CompletionAnswers(Answers):
    """/v1/completions."""

    fields = requests.COMPLETION

    async def prepare(self, values: Mapping[str, Any], ask: Ask) -> Prepared:
        """Takes the prompt as it is."""
        service, session, prompt = self._service, self._service.session, values["prompt"]
        if isinstance(prompt, list) and isinstance(prompt[0], str):
            (prompt,) = prompt
        read = session.checked_ids if isinstance(prompt, list) else partial(session.tokenize, raw=True)
        ids = await service.aside(lambda: read(prompt), "prompt")
        service.check_length(ids, "prompt")
        echo = ""
        if values.get("echo"):
            echo = prompt if isinstance(prompt, str) else service.text_of(ids)
        schema = await service.aside(lambda: schema_of(values))
        options = ask.options if schema is None else ask.options | {"json_schema": schema, "grammar": None}
        form = Completion(Heading.new(service.settings.model), ask, service.spell, echo)
        return Prepared(ask, ids, form, PlainParser(), options)


async def _watch(request: Request, job: Job) -> None:
    """Waits for the client to leave."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    job.gone()


async def _whole(writer: Writer, prepared: Prepared, job: Job) -> None:
    parser, deltas, scores = prepared.parser, list[Delta](), list[Scored]()
    for number, message in enumerate(await job.messages()):
        if number % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        match message:
            case Part(text):
                deltas += parser.feed(text.text, text.drafted)
                scores += text.scores
            case End(finished):
                deltas += parser.end()
                stats, reason = finished.stats, parser.reason(finished.reason)
                body = prepared.form.whole(deltas, reason, scores)
                body["usage"] = shapes.usage(len(prepared.ids), stats)
                body |= shapes.account(prepared.ask, body["id"], len(prepared.ids), stats, reason)
                body |= _told(prepared)
                await writer.whole(body)


async def _stream(writer: Writer, prepared: Prepared, job: Job) -> None:
    messages = await _awaited(writer, job)
    if (opening := prepared.form.opening()) is not None:
        await writer.event(opening)
    scores = list[Scored]()  # of text that is held back
    while True:
        for message in messages:
            if isinstance(message, End):
                await _send(writer, prepared, prepared.parser.end(), scores)
                await _close(writer, prepared, message, scores)
                return
            text = message.text
            scores += text.scores
            deltas = prepared.parser.feed(text.text, text.drafted)
            if not deltas and (message.stats is not None or writer.silence >= LONGEST_SILENCE):
                deltas = [Delta()]
            await _send(writer, prepared, deltas, scores, message.stats)
        messages = await _awaited(writer, job)


async def _awaited(writer: Writer, job: Job) -> list[Message]:
    """The next messages; while the queue, a long prompt or a slow pass lets the client wait, it hears that much."""
    while True:
        try:
            async with asyncio.timeout(PING):
                return await job.messages()
        except TimeoutError:
            await writer.ping()


async def _send(
    writer: Writer, prepared: Prepared, deltas: list[Delta], scores: list[Scored], stats: RunStats | None = None
) -> None:
    """A chunk for each delta; the first takes the scores."""
    timings = {} if stats is None else {"timings": stats.as_dict()}
    for delta in deltas:
        chunk = prepared.form.chunk(delta, scores)
        scores.clear()
        await writer.event(chunk | timings)


async def _close(writer: Writer, prepared: Prepared, end: End, scores: list[Scored]) -> None:
    """The chunks that end a stream."""
    ask, form, n_prompt = prepared.ask, prepared.form, len(prepared.ids)
    stats, reason = end.finished.stats, prepared.parser.reason(end.finished.reason)
    last = form.closing(reason, scores)
    await writer.event(last | shapes.account(ask, last["id"], n_prompt, stats, reason) | _told(prepared))
    if ask.include_usage:
        await writer.event(form.bare() | {"usage": shapes.usage(n_prompt, stats)})
    await writer.done()


def _told(prepared: Prepared) -> dict[str, Any]:
    return {"warnings": list(prepared.warnings)} if prepared.warnings else {}


def _late(seconds: float) -> ApiError:
    return ApiError(
        f"the answer was not done within {seconds:g} seconds",
        status=504,
        code="timeout",
        headers=NO_REPEAT,
        remedy="ask for fewer tokens, or start the server with a longer --timeout",
    )
