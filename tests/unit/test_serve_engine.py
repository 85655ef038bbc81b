"""The queue in front of the session: what it holds, and what becomes of it at the end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import contextmanager

import pytest
from served import ScriptedSession

from dflash_gguf.serve.engine import Engine
from dflash_gguf.serve.errors import ApiError
from dflash_gguf.serve.job import Job


def job(*ids):
    return Job(list(ids), {"max_tokens": 1}, fields=(), streamed=False)


@contextmanager
def started(session):
    """An engine that waits for its first job's first pass."""
    engine = Engine(session, 4, lambda _: None)
    engine.start()
    try:
        engine.submit(job(1))
        assert session.begun.acquire(timeout=30)
        yield engine
    finally:
        session.let(9)
        engine.close()


def test_nothing_is_kept_of_a_job_that_leaves_while_it_waits():
    session = ScriptedSession()

    async def leave():
        with started(session) as engine:
            waits, stays = job(2), job(3)
            engine.submit(waits)
            engine.submit(stays)
            engine.withdraw(waits)
            gone = weakref.ref(waits)
            del waits
            gc.collect()
            assert gone() is None
            session.let(2)
            assert len(await stays.messages()) == 2
        assert session.prompts == [[1], [3]]

    asyncio.run(leave())


def test_a_job_that_comes_after_the_end_has_begun_is_refused():
    session = ScriptedSession()

    async def end():
        with started(session) as engine:
            waits = job(2)
            engine.submit(waits)
            engine.refuse()
            with pytest.raises(ApiError, match="shutting down") as told:
                await waits.messages()
            assert told.value.status == 503
            with pytest.raises(ApiError, match="shutting down"):
                engine.submit(job(3))
        assert not engine.alive
        assert session.prompts == [[1]]

    asyncio.run(end())


def test_what_fails_while_an_answer_is_told_of_ends_that_answer_alone():
    session, told = ScriptedSession(), []

    def tell(job):
        told.append(job.ids)
        if job.ids == [1]:
            raise RuntimeError("secret")

    async def ask():
        engine = Engine(session, 4, tell)
        engine.start()
        try:
            session.let(2)
            first, second = job(1), job(2)
            engine.submit(first)
            engine.submit(second)
            with pytest.raises(ApiError, match="the server failed: RuntimeError") as failed:
                await first.messages()
            assert failed.value.status == 500
            assert len(await second.messages()) == 2
            assert engine.alive
        finally:
            engine.close()

    asyncio.run(ask())
    assert told == [[1], [2]]
