"""Decoding with depth control, beside plain decoding and llama-server at every fixed depth, in one run.

    python benchmarks/decode.py --llama-server PATH [--temperature 0] [--runs 3] [--depths 1,2,3,4,5,6,7] [--out FILE]

The peer must be built from the same llama.cpp as the installed llama-cpp-python (its source distribution holds it),
with the same backend and, on a CPU, for the same instruction set. The pair is the demonstration one, its target widened
to BF16. All are loaded at once and asked the same prompts in turn, each run in another order.

Prompts are the built-in ones, as many more, and some that are made to defeat a drafter: what is easy to foresee and
what is not take turns. ``shuffled`` is a drafter with the values of each of its tensors in random order: everything
that it proposes is wrong. Speeds are tokens behind the first one over their seconds, of a prompt by the median over its
runs; all kinds together as if each had written the same number of tokens. Plain is the faster of llama-server without a
drafter and ours without one, which captures no features.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from peers import N_CTX, Server

from dflash_gguf.convert.api import convert
from dflash_gguf.demo.pair import checkpoint_folder, target_file, widen
from dflash_gguf.log import log_to
from dflash_gguf.runner.prompts import PROMPTS
from dflash_gguf.runner.session import Finished, Session
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from collections.abc import Callable

Sampled = tuple[float, int]
"""Temperature and seed."""

DEFEATING = (
    "Count from 1 to 12, and after each number write a short sentence about something else.",
    "Write the alphabet, a letter a line, each followed by a random word and a random number.",
    "Write a Python list of 12 numbers that follow no pattern, and behind each a comment on the weather.",
    "Alternate between a line of the multiplication table of 9 and a line of a poem about the sea.",
)
MORE = (
    ("structured", "Count down from 90 to 50."),
    ("structured", "Write the letters of the alphabet, one per line."),
    ("structured", "List the even numbers from 2 to 60."),
    ("structured", "List the squares of the numbers from 1 to 20."),
    ("code", "Write an HTML table of 4 planets and their moons."),
    ("code", "Write a Python function that reverses a string."),
    ("code", "Write a JavaScript function that sums an array."),
    ("prose", "Tell a short story about a lost key."),
    ("prose", "Explain why the sea is salty."),
)
ASKED = (
    *((prompt.kind, prompt.text) for prompt in PROMPTS),
    *MORE,
    *(("defeating", text) for text in DEFEATING),
)
WIDTHS = {"BF16": 2, "F16": 2, "F32": 4}
KINDS = tuple(dict.fromkeys(kind for kind, _ in ASKED))


@dataclass(frozen=True, slots=True)
class Answer:
    """Tokens behind the first one, with an end token, their seconds, the milliseconds to the first, and drafts."""

    tokens: int
    seconds: float
    first_ms: float
    prompt: int
    drafted: int = 0
    accepted: int = 0
    parts: dict[str, float] = field(default_factory=dict)


def asked_of_server(server: Server, ids: list[int], n_predict: int, sampled: Sampled) -> Answer:
    found = server.ask(ids, n_predict, *sampled)
    drafts = int(found.get("draft_n", 0)), int(found.get("draft_n_accepted", 0))
    tokens = int(found["predicted_n"]) - 1
    return Answer(tokens, found["predicted_ms"] / 1e3, found["prompt_ms"], hash(tuple(ids)), *drafts)


def asked_of_session(session: Session, ids: list[int], n_predict: int, sampled: Sampled) -> Answer:
    """Nothing is reused of the request before, as with the server; all events and texts are made in the time."""
    session.forget()
    begun, first = time.perf_counter(), 0.0
    for event in session.generate(ids, max_tokens=n_predict, temperature=sampled[0], seed=sampled[1]):
        first = first or time.perf_counter()
        if isinstance(event, Finished):
            stats = event.stats
            parts = {name: getattr(stats, f"{name}_ms") / 1e3 for name in ("draft", "verify", "accept", "inject")}
            seconds = time.perf_counter() - first
            drafts = stats.draft_n, stats.draft_n_accepted
            first_ms = 1e3 * (first - begun)
            tokens = stats.predicted_n - (0 if event.reason == "stop" else 1)
            return Answer(tokens, seconds, first_ms, hash(tuple(ids)), *drafts, parts)
    raise RuntimeError("a generation ended without its last event")


def shuffled_drafter(folder: Path, target: Path) -> Path:
    """The demonstration drafter with the values of each tensor in random order."""
    source, copy = checkpoint_folder(), folder / "shuffled"
    copy.mkdir()
    generator = np.random.default_rng(0)
    for path in source.glob("*.json"):
        (copy / path.name).write_bytes(path.read_bytes())
    shuffled = bytearray((source / "model.safetensors").read_bytes())
    header = 8 + int.from_bytes(shuffled[:8], "little")
    for tensor in json.loads(shuffled[8:header]).values():
        if "dtype" in tensor:
            begin, end = (header + offset for offset in tensor["data_offsets"])
            generator.shuffle(np.frombuffer(memoryview(shuffled)[begin:end], f"u{WIDTHS[tensor['dtype']]}"))
    (copy / "model.safetensors").write_bytes(shuffled)
    return convert(copy, target, "Q4_K_M", folder / "shuffled.gguf").path


def systems(
    stack: ExitStack, folder: Path, arguments: argparse.Namespace
) -> tuple[dict[str, Callable[[list[int], int, Sampled], Answer]], Session]:
    """Who is asked, by name; and one session, for its tokenizer."""
    threads = physical_cores()
    target = widen(target_file(), folder / "target.gguf", threads)
    draft = convert(checkpoint_folder(), target, "Q4_K_M", folder / "draft.gguf").path
    options = {"n_ctx": N_CTX, "n_threads": threads, "flash_attention": "on"}
    files = {"ours plain": None, "ours auto": draft, "ours shuffled": shuffled_drafter(folder, target)}
    sessions = {name: stack.enter_context(Session(target, file, **options)) for name, file in files.items()}
    servers = {"server plain": Server(arguments.llama_server, target, threads)}
    for depth in arguments.depths:
        servers[f"server {depth}"] = Server(arguments.llama_server, target, threads, draft, depth)
    for server in servers.values():
        stack.enter_context(closing(server))
    ours = {name: partial(asked_of_session, session) for name, session in sessions.items()}
    theirs = {name: partial(asked_of_server, server) for name, server in servers.items()}
    return ours | theirs, sessions["ours plain"]


def measure(arguments: argparse.Namespace) -> dict[str, dict[str, list[Answer]]]:
    """Answers by system and kind."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(log_to(logging.getLogger("llama.cpp")))
        asked, tokenizer = systems(stack, Path(folder), arguments)
        found = {name: {kind: [] for kind in KINDS} for name in asked}
        order = random.Random(0)  # noqa: S311
        for run in range(-1, arguments.runs):
            for kind, text in ASKED[:1] if run < 0 else ASKED:
                ids = tokenizer.tokenize(text)
                for name in order.sample([*asked], len(asked)):
                    answer = asked[name](ids, arguments.n_predict, (arguments.temperature, max(0, run)))
                    if run >= 0:
                        found[name][kind].append(answer)
            print(f"run {run + 1} of {arguments.runs}", flush=True)
        return found


def speed(answers: list[Answer]) -> float:
    """Tokens a second over the prompts of a kind, each by the median of its runs."""
    prompts: dict[int, list[Answer]] = {answer.prompt: [] for answer in answers}
    for answer in answers:
        prompts[answer.prompt].append(answer)
    tokens = [median(answer.tokens for answer in runs) for runs in prompts.values()]
    costs = [median(answer.seconds / answer.tokens for answer in runs) for runs in prompts.values()]
    return sum(tokens) / sum(n * cost for n, cost in zip(tokens, costs, strict=True))


def together(by_kind: dict[str, list[Answer]]) -> float:
    """Tokens a second over the built-in kinds, the same number of each."""
    rates = [speed(answers) for kind, answers in by_kind.items() if kind != "defeating"]
    return len(rates) / sum(1 / rate for rate in rates)


def report(found: dict[str, dict[str, list[Answer]]]) -> dict[str, object]:
    """Prints a table of tokens per second, and what the issue of speed is about, as ratios."""
    print(f"| | {' | '.join(KINDS)} | together |\n|---|{'---|' * (len(KINDS) + 1)}")
    for name, by_kind in found.items():
        rates = " | ".join(f"{speed(by_kind[kind]):.1f}" for kind in KINDS)
        print(f"| {name} | {rates} | {together(by_kind):.1f} |")
    drafting = [name for name in found if name.startswith("server ") and name != "server plain"]
    plain = {kind: max(speed(found[name][kind]) for name in ("server plain", "ours plain")) for kind in KINDS}
    best = {kind: max(speed(found[name][kind]) for name in drafting) for kind in KINDS}
    auto = {kind: speed(found["ours auto"][kind]) for kind in KINDS}
    single = max(drafting, key=lambda name: together(found[name]))
    ratios = {
        "auto / plain": {kind: auto[kind] / plain[kind] for kind in KINDS},
        "auto / server's best depth of the kind": {kind: auto[kind] / best[kind] for kind in KINDS},
        "shuffled drafter / plain": {kind: speed(found["ours shuffled"][kind]) / plain[kind] for kind in KINDS},
        f"auto / {single}, together": together(found["ours auto"]) / together(found[single]),
        "first token, auto / server with a drafter": median_first(found, "ours auto") / median_first(found, single),
        "first token, plain / server plain": median_first(found, "ours plain") / median_first(found, "server plain"),
        "where auto's time goes": shares(found["ours auto"]),
    }
    for what, value in ratios.items():
        values = value.items() if isinstance(value, dict) else [("", value)]
        print(f"{what}: {', '.join(f'{name} {number:.3f}'.strip() for name, number in values)}")
    return ratios


def median_first(found: dict[str, dict[str, list[Answer]]], name: str) -> float:
    return median(answer.first_ms for answers in found[name].values() for answer in answers)


def shares(by_kind: dict[str, list[Answer]]) -> dict[str, float]:
    answers = [answer for several in by_kind.values() for answer in several]
    total = sum(answer.seconds for answer in answers)
    parts = {name: sum(answer.parts[name] for answer in answers) / total for name in answers[0].parts}
    return parts | {"other": 1 - sum(parts.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-server", required=True)
    parser.add_argument(
        "--depths", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 3, 4, 5, 6, 7]
    )
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--n-predict", type=int, default=128)
    parser.add_argument("--out", type=Path, help="write the ratios as JSON")
    arguments = parser.parse_args()
    ratios = report(measure(arguments))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(ratios, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
