"""A server in a thread of this process, over a real session or a scripted one."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from dflash_gguf.runner.generation import Finished, Round, Text
from dflash_gguf.runner.stats import RunStats
from dflash_gguf.serve.run import listening_socket, server_of, url_of
from dflash_gguf.serve.settings import ServerSettings

N_CTX = 64


@contextmanager
def serving(session, **settings):
    """A client of a server over ``session``, and the server."""
    ready = threading.Event()
    with listening_socket("127.0.0.1", 0) as bound:
        server = server_of(session, ServerSettings("tiny", **settings), ready.set)
        url = url_of(bound)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            assert ready.wait(30)
            with httpx.Client(base_url=url, timeout=60) as client:
                yield Served(client, server, thread)
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class Served:
    """``client`` keeps its connection."""

    client: httpx.Client
    server: Any
    thread: threading.Thread

    def chat(self, text: str, **fields):
        """The answer to one message, whole; its status must be 200."""
        return self.posted("/v1/chat/completions", messages=[{"role": "user", "content": text}], **fields)

    def completion(self, prompt, **fields):
        return self.posted("/v1/completions", prompt=prompt, **fields)

    def posted(self, path, **body):
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path="/v1/completions", status=400, **body):
        """The error of a request that is refused."""
        answer = self.client.post(path, content=json.dumps(body))
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json()["error"]

    def events(self, path, **body):
        """The chunks of a stream, which must end as it should."""
        with self.client.stream("POST", path, json=body | {"stream": True}) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"] == "text/event-stream"
            *events, last, end = answer.read().decode().split("\n\n")
        assert (last, end) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def metrics(self):
        """Name with labels -> value."""
        lines = self.client.get("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def stats(n=0, prompt_n=1, cache_n=0):
    """Statistics of ``n`` tokens."""
    times = dict.fromkeys(("prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second"), 1.0)
    parts = dict.fromkeys(("draft_ms", "verify_ms", "accept_ms", "inject_ms"), 0.0)
    counts = dict.fromkeys(("draft_calls", "draft_n", "draft_n_accepted", "verify_calls", "injected_n"), 0)
    return RunStats(
        drafter=None,
        seed=1,
        cache_n=cache_n,
        prompt_n=prompt_n,
        predicted_n=n,
        acceptance_length=1.0,
        accepted_per_position=(),
        drafted_at=(),
        accepted_at=(),
        **times,
        **parts,
        **counts,
    )


class ScriptedSession:
    """Writes a letter for each pass that a test lets it make; prompts are ids. ``passes``: what it has done."""

    n_ctx = N_CTX
    n_vocab = 1000
    drafter = None

    def __init__(self):
        self._gate = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.n_begun = 0
        self.passes: list[tuple[int, int]] = []
        self.prompts: list[list[int]] = []
        self.stats = None
        self.ended = threading.Semaphore(0)
        self.fail_at: dict[int, Exception] = {}

    @property
    def progress(self):
        return self.stats

    def let(self, n):
        """Lets so many passes go on."""
        self._gate.release(n)

    def checked_ids(self, ids):
        return list(ids)

    def generate(self, ids, *, wanted, max_tokens, **_):
        return self._events(list(ids), wanted, N_CTX if max_tokens < 0 else max_tokens)

    def _events(self, ids, wanted, limit):
        self.prompts.append(ids)
        self.stats = stats()
        self.begun.release()
        try:
            for n in range(limit):
                if not wanted():
                    return
                self.n_begun += 1
                assert self._gate.acquire(timeout=30)
                if n in self.fail_at:
                    raise self.fail_at.pop(n)
                self.passes.append((ids[0], n))
                self.stats = stats(n + 1)
                yield Round((n,), 0, 0)
                yield Text(chr(ord("a") + n % 26))
            yield Finished("length", self.stats)
        finally:
            self.ended.release()
