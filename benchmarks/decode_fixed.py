"""Decoding against llama.cpp's own tools, at temperature 0 and a fixed depth: ratios of tokens per second in one run.

    python benchmarks/decode_fixed.py --llama-server PATH [--llama-speculative-simple PATH] [--depths 1,3,7] [--runs 3]

The peers must be built from the same llama.cpp as the installed llama-cpp-python (its source distribution holds it),
with the same backend and, on a CPU, for the same instruction set. The pair is the demonstration one, its target widened
to BF16. Ours and the peers take turns, prompt by prompt; the medians are compared.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from peers import N_CTX, Server

from dflash_gguf.convert.api import convert
from dflash_gguf.demo.pair import checkpoint_folder, target_file, widen
from dflash_gguf.runner.prompts import PROMPTS
from dflash_gguf.runner.session import Finished, Session
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from dflash_gguf.runner.stats import RunStats


def simple(program: str, target: Path, draft: Path, text: str, depth: int, n_predict: int, threads: int) -> float:
    """Tokens per second of one run of llama-speculative-simple."""
    words = [program, "-m", target, "-md", draft, "--spec-type", "draft-dflash", "--spec-draft-n-max", depth]
    words += ["-c", N_CTX, "-t", threads, "-td", threads, "-fa", "on", "--temp", 0, "-n", n_predict, "-p", text]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    found = re.search(r"decoded\s+\d+ tokens in\s+[\d.]+ seconds, speed:\s+([\d.]+) t/s", done.stderr + done.stdout)
    if found is None:
        raise SystemExit(f"{program} told no speed")
    return float(found[1])


@dataclass(frozen=True, slots=True)
class Run:
    """One request of ours: statistics, and the seconds from its first token to its last, events and texts included."""

    stats: RunStats
    seconds: float

    @property
    def speed(self) -> float:
        return (self.stats.predicted_n - 1) / self.seconds


def ours(session: Session, ids: list[int], n_predict: int) -> Run:
    """Nothing is reused of the request before, as with the peers."""
    session.forget()
    started = 0.0
    for event in session.generate(ids, max_tokens=n_predict, temperature=0):
        started = started or time.perf_counter()
        if isinstance(event, Finished):
            return Run(event.stats, time.perf_counter() - started)
    raise RuntimeError("a generation ended without its last event")


def measure(arguments: argparse.Namespace, target: Path, draft: Path) -> None:
    threads = physical_cores()
    for depth in arguments.depths:
        server = Server(arguments.llama_server, target, threads, draft, depth)
        try:
            with Session(
                target,
                draft,
                n_ctx=N_CTX,
                n_threads=threads,
                flash_attention="on",
                spec_draft_n_max=depth,
                depth="fixed",
            ) as session:
                report(depth, rows(arguments, session, server, (target, draft), depth))
        finally:
            server.close()


def rows(
    arguments: argparse.Namespace, session: Session, server: Server, files: tuple[Path, Path], depth: int
) -> list[tuple[Run, dict[str, float], float]]:
    """Ours, llama-server's timings, llama-speculative-simple's speed (0: not asked), for each prompt of each run."""
    prompts = [prompt for prompt in PROMPTS if prompt.kind in arguments.kinds]
    found = []
    for run in range(-1, arguments.runs):
        for prompt in prompts[:1] if run < 0 else prompts:
            ids = session.tokenize(prompt.text)
            if run % 2 == 0:
                mine, theirs = ours(session, ids, arguments.n_predict), server.ask(ids, arguments.n_predict)
            else:
                theirs, mine = server.ask(ids, arguments.n_predict), ours(session, ids, arguments.n_predict)
            other = 0.0
            if arguments.llama_speculative_simple and run >= 0:
                text = b"".join(session.vocabulary.piece(token, special=True) for token in ids).decode()
                program = arguments.llama_speculative_simple
                other = simple(program, *files, text, depth, arguments.n_predict, physical_cores())
            if run >= 0:
                found.append((mine, theirs, other))
    return found


def report(depth: int, found: list[tuple[Run, dict[str, float], float]]) -> None:
    ratio = median(mine.speed / theirs["predicted_per_second"] for mine, theirs, _ in found)
    line = f"depth {depth}: {ratio:.3f} of llama-server"
    if found[0][2]:
        other_ratio = median(mine.speed / other for mine, _, other in found)
        line += f", {other_ratio:.3f} of llama-speculative-simple"
    total = sum(mine.seconds for mine, _, _ in found)
    parts = {
        name: sum(getattr(mine.stats, f"{name}_ms") for mine, _, _ in found) / 1e3 / total
        for name in ("draft", "verify", "inject")
    }
    shares = ", ".join(f"{name} {share:.1%}" for name, share in parts.items())
    rounds = sum(mine.stats.verify_calls for mine, _, _ in found)
    mine_n, theirs_n = (
        (sum(mine.stats.draft_n_accepted for mine, _, _ in found), sum(mine.stats.draft_n for mine, _, _ in found)),
        (sum(t.get("draft_n_accepted", 0) for _, t, _ in found), sum(t.get("draft_n", 0) for _, t, _ in found)),
    )
    print(
        f"{line}; a round takes {1e3 * total / rounds:.1f} ms: {shares}, ours {1 - sum(parts.values()):.1%}; "
        f"accepted {mine_n[0]} of {mine_n[1]}, llama-server {theirs_n[0]:.0f} of {theirs_n[1]:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--llama-speculative-simple")
    parser.add_argument(
        "--depths", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 3, 4, 5, 6, 7]
    )
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
