"""Decoding against llama.cpp's own tools, at temperature 0 and a fixed depth: ratios of tokens per second in one run.

    python benchmarks/decode.py --llama-server PATH [--llama-speculative-simple PATH] [--depths 1,3,5,7] [--runs 3]

The peers must be built from the same llama.cpp as the installed llama-cpp-python (its source distribution holds it),
with the same backend and, on a CPU, for the same instruction set. The pair is the demonstration one, its target widened
to BF16. Ours and the peers take turns, prompt by prompt; the medians are compared.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from dflash_gguf.convert.api import convert
from dflash_gguf.demo.pair import checkpoint_folder, target_file, widen
from dflash_gguf.runner.prompts import PROMPTS, Prompt
from dflash_gguf.runner.session import Finished, Session
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from dflash_gguf.runner.stats import RunStats

N_CTX = 2048


class Server:
    """llama-server on the pair, until ``close()``."""

    def __init__(self, program: str, target: Path, draft: Path, threads: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        words = [program, "-m", target, "-md", draft, "--spec-type", "draft-dflash", "--spec-draft-n-max", 7]
        words += ["-c", N_CTX, "-t", threads, "-td", threads, "-np", 1, "-fa", "on", "--port", self.port, "--no-webui"]
        self.process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if self.process.poll() is not None:
                raise SystemExit(f"{program} ended with {self.process.returncode}")
            try:
                self._get("/health")
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise SystemExit(f"{program} did not become ready within a minute")

    def ask(self, ids: list[int], depth: int, n_predict: int) -> dict[str, float]:
        """llama-server's own timings of one completion."""
        body = {
            "prompt": ids,
            "n_predict": n_predict,
            "temperature": 0,
            "cache_prompt": False,
            "speculative.n_max": depth,
        }
        return json.loads(self._get("/completion", json.dumps(body).encode()))["timings"]

    def _get(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310
            return answer.read()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def simple(program: str, target: Path, draft: Path, text: str, depth: int, n_predict: int, threads: int) -> float:
    """Tokens per second of one run of llama-speculative-simple."""
    words = [program, "-m", target, "-md", draft, "--spec-type", "draft-dflash", "--spec-draft-n-max", depth]
    words += ["-c", N_CTX, "-t", threads, "-td", threads, "-fa", "on", "--temp", 0, "-n", n_predict, "-p", text]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    found = re.search(r"decoded\s+\d+ tokens in\s+[\d.]+ seconds, speed:\s+([\d.]+) t/s", done.stderr + done.stdout)
    if found is None:
        raise SystemExit(f"{program} told no speed")
    return float(found[1])


def ours(session: Session, ids: list[int], n_predict: int) -> RunStats:
    """One request of ours; nothing is reused of the one before, as with the peers."""
    session._cached.clear()  # noqa: SLF001
    *_, last = session.generate(ids, max_tokens=n_predict)
    if not isinstance(last, Finished):
        raise TypeError(last)
    return last.stats


def rendered(session: Session, prompt: Prompt) -> list[int]:
    return session.tokenize(prompt.text)


def measure(arguments: argparse.Namespace, target: Path, draft: Path) -> None:
    threads = physical_cores()
    server = Server(arguments.llama_server, target, draft, threads)
    try:
        for depth in arguments.depths:
            with Session(
                target, draft, n_ctx=N_CTX, n_threads=threads, flash_attention="on", spec_draft_n_max=depth
            ) as session:
                at_depth(arguments, session, server, (target, draft), depth)
    finally:
        server.close()


def at_depth(
    arguments: argparse.Namespace, session: Session, server: Server, files: tuple[Path, Path], depth: int
) -> None:
    prompts = [prompt for prompt in PROMPTS if prompt.kind in arguments.kinds]
    ids = {prompt: rendered(session, prompt) for prompt in prompts}
    ours(session, ids[prompts[0]], 16)
    server.ask(ids[prompts[0]], depth, 16)
    rows: list[tuple[RunStats, float, float]] = []
    for run in range(arguments.runs):
        for prompt in prompts:
            mine, theirs = None, 0.0
            for turn in (0, 1) if run % 2 == 0 else (1, 0):
                if turn == 0:
                    mine = ours(session, ids[prompt], arguments.n_predict)
                else:
                    theirs = server.ask(ids[prompt], depth, arguments.n_predict)["predicted_per_second"]
            other = 0.0
            if arguments.llama_speculative_simple:
                pieces = b"".join(session.vocabulary.piece(token, special=True) for token in ids[prompt]).decode()
                program = arguments.llama_speculative_simple
                other = simple(program, *files, pieces, depth, arguments.n_predict, physical_cores())
            if mine is None:
                raise TypeError(mine)
            rows.append((mine, theirs, other))
    report(depth, rows)


def report(depth: int, rows: list[tuple[RunStats, float, float]]) -> None:
    ratio = median(mine.predicted_per_second / theirs for mine, theirs, _ in rows)
    line = f"depth {depth}: {ratio:.3f} of llama-server"
    if rows[0][2]:
        line += (
            f", {median(mine.predicted_per_second / other for mine, _, other in rows):.3f} of llama-speculative-simple"
        )
    total = sum(mine.predicted_ms for mine, _, _ in rows)
    parts = {
        name: sum(getattr(mine, f"{name}_ms") for mine, _, _ in rows) / total
        for name in ("draft", "verify", "inject", "accept")
    }
    rest = 1 - sum(parts.values())
    shares = ", ".join(f"{name} {share:.1%}" for name, share in parts.items())
    rounds = sum(mine.verify_calls for mine, _, _ in rows)
    length = 1 + sum(mine.draft_n_accepted for mine, _, _ in rows) / rounds
    print(f"{line}; a round takes {total / rounds:.1f} ms: {shares}, the rest {rest:.1%}; {length:.2f} tokens a pass")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--llama-speculative-simple")
    parser.add_argument("--depths", type=lambda text: [int(part) for part in text.split(",")], default=[1, 3, 5, 7])
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["structured", "code", "prose"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--n-predict", type=int, default=96)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target, draft = Path(folder) / "target.gguf", Path(folder) / "draft.gguf"
        widen(target_file(), target, physical_cores())
        convert(checkpoint_folder(), target, "Q4_K_M", draft)
        measure(arguments, target, draft)


if __name__ == "__main__":
    main()
