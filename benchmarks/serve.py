"""Answers through the server, beside the runner's own, in one run.

    python benchmarks/serve.py [--runs 5] [--n-predict 96] [--target-type BF16|as-is] [--spec-draft-n-max 3]

The pair is the demonstration one. The server is a process of its own; server and runner have one model thread each,
and are asked the same prompts in turn, each run in another order, with drafts and without, streamed. The depth is
fixed, so that both do the same passes. Whichever model thread runs has the first core, the server's other threads and
the client have the second one (Linux). Nothing is kept of the prompt before. Times are the client's: throughput is all
tokens of an answer over the time from the request to its end, the first token is that of the first piece of text.
Figures are medians over runs, of ratios and differences of what was asked one after the other.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from dflash_gguf.bench.server import ask, server_at
from dflash_gguf.convert.api import convert
from dflash_gguf.demo.pair import checkpoint_folder, target_file, widen
from dflash_gguf.log import log_to
from dflash_gguf.runner.prompts import PROMPTS
from dflash_gguf.runner.session import Finished, Session, Text
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dflash_gguf.bench.server import Server

N_CTX = 2048


@dataclass(frozen=True, slots=True)
class Answer:
    """Times in milliseconds from the request."""

    text: str
    tokens: int
    first_ms: float
    total_ms: float

    @property
    def rate(self) -> float:
        return self.tokens / self.total_ms


def of_server(server: Server, text: str, n_predict: int, *, speculative: bool) -> Answer:
    options = {"temperature": 0, "speculative": speculative}
    reply = ask(server, [{"role": "user", "content": text}], n_predict, options)
    return Answer(reply.text, reply.n_tokens, reply.first_ms or 0.0, reply.total_ms)


def of_runner(session: Session, text: str, n_predict: int, *, speculative: bool) -> Answer:
    session.forget()
    begun, first, said = time.perf_counter(), 0.0, ""
    for event in session.generate(text, max_tokens=n_predict, temperature=0, speculative=speculative):
        if isinstance(event, Text):
            first = first or time.perf_counter()
            said += event.text
        if isinstance(event, Finished):
            ended = time.perf_counter()
            return Answer(said, event.stats.predicted_n, 1e3 * (first - begun), 1e3 * (ended - begun))
    raise RuntimeError("a generation ended without its last event")


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Keeps this thread there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def ticks(process: int) -> dict[int, int]:
    """Thread -> what it has computed since it began."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return {int(task.name): int((task / "stat").read_text().rpartition(")")[2].split()[11]) for task in tasks}


def pin(process: int, before: dict[int, int]) -> None:
    """The thread that has computed most since, which is the model's, to the first core, all others to the second."""
    after = ticks(process)
    busiest = max(after, key=lambda thread: after[thread] - before.get(thread, 0))
    for thread in after:
        os.sched_setaffinity(thread, {0 if thread == busiest else 1})


@contextmanager
def serving(target: Path, draft: Path, n_max: int) -> Iterator[tuple[Server, int]]:
    words = ["serve", "-m", target, "-md", draft, "-c", N_CTX, "-t", 1, "-fa", "on", "--port", 0, "--json"]
    words += ["--depth", "fixed", "--spec-draft-n-max", n_max]
    command = [sys.executable, "-m", "dflash_gguf", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else b""
            yield server_at(json.loads(line)["url"]), process.pid
        finally:
            process.terminate()


def measure(arguments: argparse.Namespace) -> dict[bool, list[tuple[Answer, Answer]]]:
    """Pairs of answers, the server's first, with drafts and without."""
    found: dict[bool, list[tuple[Answer, Answer]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(log_to(logging.getLogger("llama.cpp")))
        target = target_file()
        if arguments.target_type == "BF16":
            target = widen(target, Path(folder) / "target.gguf", physical_cores())
        draft = convert(checkpoint_folder(), target, "Q4_K_M", Path(folder) / "draft.gguf").path
        n_max = arguments.spec_draft_n_max
        server, process = stack.enter_context(serving(target, draft, n_max))
        options = {"n_ctx": N_CTX, "n_threads": 1, "flash_attention": "on"}
        session = stack.enter_context(Session(target, draft, depth="fixed", spec_draft_n_max=n_max, **options))
        loaded = ticks(process)
        order = random.Random(0)  # noqa: S311
        for run in range(-1, arguments.runs):
            for prompt in PROMPTS[:1] if run < 0 else PROMPTS:
                for speculative in (True, False):
                    pair = asked(server, session, prompt.text, arguments.n_predict, speculative, order.random() < 0.5)
                    if run >= 0:
                        found[speculative].append(pair)
            if run < 0:
                pin(process, loaded)
            print(f"run {run + 1} of {arguments.runs}", flush=True)
    return found


def asked(
    server: Server, session: Session, text: str, n: int, speculative: bool, server_first: bool
) -> tuple[Answer, Answer]:
    def through() -> Answer:
        with on_core(1):
            return of_server(server, text, n, speculative=speculative)

    def own() -> Answer:
        with on_core(0):
            return of_runner(session, text, n, speculative=speculative)

    if server_first:
        return in_turn(through, own)
    ours, theirs = in_turn(own, through)
    return theirs, ours


def in_turn(first: Callable[[], Answer], second: Callable[[], Answer]) -> tuple[Answer, Answer]:
    return first(), second()


def report(found: dict[bool, list[tuple[Answer, Answer]]]) -> None:
    print("| | tokens/s, server / runner | first token, server - runner, ms | runner, tokens/s | texts |")
    print("|---|---|---|---|---|")
    for speculative, pairs in found.items():
        rate = median(server.rate / runner.rate for server, runner in pairs)
        first = median(server.first_ms - runner.first_ms for server, runner in pairs)
        own = median(1e3 * runner.rate for _, runner in pairs)
        same = sum(server.text == runner.text for server, runner in pairs)
        name = "with drafts" if speculative else "without"
        print(f"| {name} | {rate:.3f} | {first:.1f} | {own:.1f} | {same} of {len(pairs)} the same |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--n-predict", type=int, default=96)
    parser.add_argument("--target-type", choices=("BF16", "as-is"), default="BF16")
    parser.add_argument("--spec-draft-n-max", type=int, default=3)
    report(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
