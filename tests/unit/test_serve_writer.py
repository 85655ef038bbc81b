"""What becomes of an answer whose client does not read."""

from __future__ import annotations

import asyncio

import pytest

from dflash_gguf.serve import writer as writers
from dflash_gguf.serve.errors import ApiError
from dflash_gguf.serve.job import GoneError
from dflash_gguf.serve.writer import Writer


class Client:
    """Takes so many messages, and no more."""

    def __init__(self, takes: int) -> None:
        self._takes = takes
        self.taken: list[dict] = []

    async def __call__(self, message: dict) -> None:
        if len(self.taken) == self._takes:
            await asyncio.Event().wait()
        self.taken.append(message)


def test_a_client_that_reads_no_more_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "STALL", 0.02)
    client = Client(2)

    async def answer() -> None:
        writer = Writer(client)
        await writer.event({"text": "read"})
        with pytest.raises(GoneError):
            await writer.event({"text": "not read"})

    asyncio.run(answer())
    assert [message["type"] for message in client.taken] == ["http.response.start", "http.response.body"]


def test_the_requests_own_time_ends_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is told, or at least that was tried."""
    monkeypatch.setattr(writers, "_LAST_WORDS", 0.02)
    client = Client(2)

    async def answer() -> None:
        writer = Writer(client)
        try:
            async with asyncio.timeout(0.02):
                await writer.event({"text": "read"})
                await writer.event({"text": "not read"})
        except TimeoutError:
            await writer.fail(ApiError("late", status=504))

    asyncio.run(answer())
    assert len(client.taken) == 2
