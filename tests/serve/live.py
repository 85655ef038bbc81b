"""A server in a process of its own, as a user starts it.

Comes in: files and words of the command line. Goes out: its address, requests to it, and what the process holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0
"""Seconds for anything that should take a moment."""
ONE_THREAD = ("-t", "1")
"""The other core is the client's."""


@dataclass(frozen=True, slots=True)
class Live:
    """A server that listens. ``model`` is its name of the model."""

    process: subprocess.Popen[str]
    url: str
    model: str
    client: httpx.Client = field(repr=False)

    @property
    def v1(self) -> str:
        """What OpenAI's clients call its address."""
        return f"{self.url}/v1"

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rsplit(":", 1)[1])

    def chat(self, content: str, **fields: Any) -> dict[str, Any]:
        """A whole answer, by a plain request."""
        body = {"messages": [{"role": "user", "content": content}], **fields}
        answer = self.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def text(self, content: str, **fields: Any) -> str:
        """What it says."""
        return self.chat(content, **fields)["choices"][0]["message"]["content"]

    def resident(self) -> int:
        """Bytes of memory that the process holds."""
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, check=True)
        return int(shown.stdout) * 1024

    def open_files(self) -> int:
        """Descriptors, sockets among them."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@contextmanager
def serving(*words: object) -> Iterator[Live]:
    """``dflash-gguf serve`` with ``words``, until the block ends. It has to end well, and to say nothing on stderr."""
    command = [sys.executable, "-m", "dflash_gguf", "serve", "--port", "0", "--json", *ONE_THREAD, *map(str, words)]
    surroundings = {name: value for name, value in os.environ.items() if name != "LLAMA_API_KEY"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=surroundings) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            ready = json.loads(line)
            with httpx.Client(base_url=ready["url"], timeout=PATIENCE, trust_env=False) as client:
                yield Live(process, ready["url"], ready["model"], client)
        finally:
            process.terminate()
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode in {0, 143}, said
        assert "Traceback" not in said, said
