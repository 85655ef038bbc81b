"""Requests on two sessions in turn: the same prompt with the drafter and without, nothing reused of the one before.

Comes in: two open sessions and prompts. Goes out: one frozen record a request and a pair of them a prompt. Knows
nothing of files, terminals, nor of statistics over several prompts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import BenchError
from dflash_gguf.runner.bounds import SEEDS
from dflash_gguf.runner.session import Finished, Round, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dflash_gguf.bench.prompts import BenchPrompt
    from dflash_gguf.runner.session import Session
    from dflash_gguf.runner.stats import RunStats

WARM_UP: Final = 16
"""Tokens that each session writes before anything is measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One request. ``drafted_at[i]``, ``accepted_at[i]``: rounds in which the (i+1)-th drafted token was verified, and
    kept. ``first_token_ms`` is by the clock, from asking to the first token.
    """

    ids: tuple[int, ...]
    text: str
    stats: RunStats
    first_token_ms: float
    drafted_at: tuple[int, ...]
    accepted_at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """One turn of a prompt, both ways."""

    kind: str
    label: str
    prompt: int
    turn: int
    run: int
    plain: Measured
    drafted: Measured

    @property
    def same(self) -> bool:
        """Whether both wrote the same tokens."""
        return self.plain.ids == self.drafted.ids

    @property
    def ratio(self) -> float | None:
        """Tokens per second with the drafter over without; None when one of them wrote too little to tell."""
        plain, drafted = self.plain.stats.predicted_per_second, self.drafted.stats.predicted_per_second
        return drafted / plain if plain > 0 and drafted > 0 else None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for of each prompt; ``sampling`` are the keywords of ``Session.generate``, ``seed`` among them."""

    n_predict: int
    runs: int
    sampling: Mapping[str, Any]
    raw: bool = False

    def of_run(self, run: int) -> dict[str, Any]:
        """The keywords of one run: each has a seed of its own, the same with the drafter and without."""
        return {**self.sampling, "seed": (self.sampling["seed"] + run) % SEEDS}


def series(plain: Session, drafted: Session, prompts: Sequence[BenchPrompt], plan: Plan) -> Iterator[Pair]:
    """Every prompt in every run, both ways; which goes first changes from prompt to prompt and from run to run."""
    fits(plain, prompts, raw=plan.raw)
    warm_up = _ids(plain, prompts[0], (), raw=plan.raw)
    for session in (plain, drafted):
        measured(session, warm_up, min(WARM_UP, plan.n_predict), plan.of_run(0))
    for run in range(plan.runs):
        for number, prompt in enumerate(prompts):
            yield from _conversation(plain, drafted, prompt, number, run, plan)


def fits(session: Session, prompts: Sequence[BenchPrompt], *, raw: bool) -> None:
    """Raises BenchError naming the first prompt that the context does not hold, before anything is measured."""
    for prompt in prompts:
        n = len(_ids(session, prompt, (), raw=raw))
        if n >= session.n_ctx:
            raise BenchError(
                f"the prompt {prompt.label!r} has {n} tokens",
                expected=f"fewer than the context's {session.n_ctx}",
                remedy="ask for a larger one with `-c`",
            )


def _conversation(
    plain: Session, drafted: Session, prompt: BenchPrompt, number: int, run: int, plan: Plan
) -> Iterator[Pair]:
    """The turns one after the other. Both sessions are told the answers that the one without the drafter gave."""
    answers: tuple[str, ...] = ()
    sampling = plan.of_run(run)
    for turn in range(1 if plan.raw else len(prompt.turns)):
        ids = _ids(plain, prompt, answers, raw=plan.raw)
        if len(ids) >= plain.n_ctx:
            return
        order = [plain, drafted] if (number + turn + run) % 2 == 0 else [drafted, plain]
        found = {id(session): measured(session, ids, plan.n_predict, sampling) for session in order}
        pair = Pair(prompt.kind, prompt.label, number, turn, run, found[id(plain)], found[id(drafted)])
        yield pair
        answers = (*answers, pair.plain.text)


def conversation(prompt: BenchPrompt, answers: Sequence[str]) -> list[dict[str, str]]:
    """The messages up to the turn that follows ``answers``."""
    messages = [{"role": role, "content": content} for role, content in prompt.opening]
    for turn, answer in zip(prompt.turns, answers, strict=False):
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return [*messages, {"role": "user", "content": prompt.turns[len(answers)]}]


def _ids(session: Session, prompt: BenchPrompt, answers: Sequence[str], *, raw: bool) -> list[int]:
    return session.tokenize(prompt.turns[0], raw=True) if raw else session.tokenize(conversation(prompt, answers))


def measured(session: Session, ids: Sequence[int], n_predict: int, sampling: Mapping[str, Any]) -> Measured:
    """One request from start to end, with empty caches."""
    session.forget()
    rounds: list[Round] = []
    text, first_ms = "", 0.0
    started = time.perf_counter()
    for event in session.generate(ids, max_tokens=n_predict, **sampling):
        first_ms = first_ms or (time.perf_counter() - started) * 1e3
        match event:
            case Text(piece):
                text += piece
            case Round():
                rounds.append(event)
            case Finished(stats=stats):
                tokens = tuple(token for step in rounds for token in step.tokens)
                return Measured(tokens, text, stats, first_ms, *positions(rounds, stats))
    raise RuntimeError("a generation ended without its last event")


def positions(rounds: Sequence[Round], stats: RunStats) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How often each position was drafted, and kept.

    The last round is told from the totals: it may have brought an end token alone, and then was no event, or an end in
    its middle, and then kept fewer than it had right.
    """
    counts = [(step.draft_n, step.draft_n_accepted) for step in rounds]
    more = stats.draft_n - sum(n for n, _ in counts)
    kept = stats.draft_n_accepted - sum(accepted for _, accepted in counts)
    if more > 0:
        counts.append((more, kept))
    elif kept and counts:
        counts[-1] = (counts[-1][0], counts[-1][1] + kept)
    deepest = max((n for n, _ in counts), default=0)
    drafted = tuple(sum(n > i for n, _ in counts) for i in range(deepest))
    accepted = tuple(sum(k > i for _, k in counts) for i in range(deepest))
    return drafted, accepted
