"""Command lines and Python calls, each in a process of its own, from one that has imported everything once.

Comes in: a line of JSON on stdin for each. Goes out: a line of JSON: how the process ended, and what it wrote. The
server itself never touches libllama, whose threads would not survive a fork. Run as a script, or through `ForkServer`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

SECONDS = 20
ADDRESS_SPACE = 3 << 30
"""Bytes that a process may map beyond what the server has: enough for any tiny pair, and for no absurd allocation."""


@dataclass(frozen=True, slots=True)
class Ended:
    """``returncode`` as `subprocess` counts: below 0 for a signal. A process that hangs ends by SIGALRM."""

    returncode: int
    out: str
    err: str


class ForkServer:
    """State: the server's process. Closed by ``with``."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def command(self, *words: object) -> Ended:
        """``python -m dflash_gguf`` with ``words``."""
        return self._ask({"words": [str(word) for word in words]})

    def draft(self, target: Path, draft: Path | None) -> Ended:
        """A session, which tokenizes a text and writes a few tokens; a refusal ends with 1."""
        return self._ask({"target": str(target), "draft": draft and str(draft)})

    def _ask(self, request: dict[str, Any]) -> Ended:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


def _serve() -> None:
    import resource

    import llama_cpp  # noqa: F401

    gc.freeze()  # or a child's first collection would copy every page
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize"))
    limit = int(own.split()[1]) * 1024 + ADDRESS_SPACE
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for line in sys.stdin:
            for file in (out, err):
                file.seek(0)
                file.truncate()
            child = os.fork()
            if child == 0:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                os._exit(_child(json.loads(line), out, err))
            _, status = os.waitpid(child, 0)
            ended = {"returncode": os.waitstatus_to_exitcode(status), "out": _text(out), "err": _text(err)}
            sys.stdout.write(json.dumps(ended) + "\n")
            sys.stdout.flush()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _child(request: dict[str, Any], out: IO[bytes], err: IO[bytes]) -> int:
    null = os.open(os.devnull, os.O_RDONLY)
    for source, number in ((null, 0), (out.fileno(), 1), (err.fileno(), 2)):
        os.dup2(source, number)
    signal.alarm(SECONDS)
    try:
        return _command(request["words"]) if "words" in request else _draft(request["target"], request["draft"])
    except BaseException:  # noqa: BLE001  whatever it is, the test has to see it
        import traceback

        os.write(2, traceback.format_exc().encode())
        return 99


def _command(words: list[str]) -> int:
    from dflash_gguf.cli import main

    sys.argv = ["dflash-gguf", *words]
    try:
        main()
    except SystemExit as error:
        sys.stdout.flush()
        sys.stderr.flush()
        return error.code if isinstance(error.code, int) else 98
    return 97


def _draft(target: str, draft: str | None) -> int:
    from dflash_gguf.errors import DflashError
    from dflash_gguf.runner.session import Session

    try:
        with Session(target, draft, n_ctx=256, n_ubatch=64, n_threads=1) as session:
            ids = session.tokenize("Hello w\u00f6rld, 123 <|im_end|>\n\t it's <0x41> \U0001f600", raw=True)
            n_vocab = 256
            list(session.generate([token % n_vocab for token in ids[:40]] or [8], max_tokens=5))
            list(session.generate(list(range(8, 80)), max_tokens=3))
    except DflashError as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    _serve()
