"""Many requests to a server, several at once, and what they add up to.

Comes in: a `Server` and prompts. Goes out: frozen records, one a kind of prompt and one of all. Knows nothing of HTTP.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from statistics import median
from threading import Thread
from typing import TYPE_CHECKING, Any

from dflash_gguf.bench.measure import conversation
from dflash_gguf.bench.server import ask
from dflash_gguf.bench.summary import ALL
from dflash_gguf.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dflash_gguf.bench.measure import Plan
    from dflash_gguf.bench.prompts import BenchPrompt
    from dflash_gguf.bench.server import Reply, Server


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its reply, or the sentence that says why there is none."""

    kind: str
    label: str
    turn: int
    run: int
    reply: Reply | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Middle:
    """A median, the lowest and the highest."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ServerDrafts:
    """What the server says of its drafts: llama.cpp's ``draft_n``, SGLang's ``spec_verify_ct``; None: it says nothing.

    ``acceptance_length`` are tokens a verification pass. llama.cpp does not give the number of passes: all tokens but
    the prompt's own and the accepted ones came of one each. Nor does it say anything where nothing was drafted
    (tools/server/server-common.cpp): where one reply names ``draft_n``, it was 0 in those that do not.
    """

    draft_n: int | None
    draft_n_accepted: int | None
    verify_calls: int | None
    acceptance_length: float | None


@dataclass(frozen=True, slots=True)
class KindLoad:
    """The requests of one kind. ``first_token`` in milliseconds, ``per_second`` behind it, both by this side's clock;
    ``server_per_second`` is the server's own ``predicted_per_second``.
    """

    kind: str
    n: int
    n_failed: int
    n_tokens: int
    first_token: Middle | None
    per_second: Middle | None
    server_per_second: Middle | None
    drafts: ServerDrafts


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """``tokens_per_second`` is of all requests together, from the first one's start to the last one's end."""

    kinds: tuple[KindLoad, ...]
    all: KindLoad
    seconds: float
    tokens_per_second: float
    counted: bool

    @property
    def rows(self) -> tuple[KindLoad, ...]:
        """The kinds and, when there are several, the record of all."""
        return (*self.kinds, self.all) if len(self.kinds) > 1 else self.kinds


def load(
    server: Server,
    prompts: Sequence[BenchPrompt],
    plan: Plan,
    concurrency: int,
    told: Callable[[Asked], None],
) -> tuple[list[Asked], float]:
    """All prompts in all runs, ``concurrency`` conversations at a time: the requests, and the seconds they all took."""
    jobs: SimpleQueue[tuple[int, BenchPrompt, int]] = SimpleQueue()
    done: SimpleQueue[tuple[int, list[Asked] | Exception]] = SimpleQueue()
    todo = [(prompt, run) for run in range(plan.runs) for prompt in prompts]
    for place, (prompt, run) in enumerate(todo):
        jobs.put((place, prompt, run))
    started = time.perf_counter()
    for _ in range(min(concurrency, len(todo))):
        # An interrupt ends the process without waiting for a server that may be slow: hence daemons.
        Thread(target=_work, args=(server, plan, jobs, done), daemon=True).start()
    found: dict[int, list[Asked]] = {}
    for _ in todo:
        place, result = done.get()
        if isinstance(result, Exception):
            raise result
        found[place] = result
        for asked in result:
            told(asked)
    seconds = time.perf_counter() - started
    return [asked for place in sorted(found) for asked in found[place]], seconds


def _work(
    server: Server,
    plan: Plan,
    jobs: SimpleQueue[tuple[int, BenchPrompt, int]],
    done: SimpleQueue[tuple[int, list[Asked] | Exception]],
) -> None:
    """Takes conversations until none is left."""
    while True:
        try:
            place, prompt, run = jobs.get_nowait()
        except Empty:
            return
        try:
            done.put((place, _talk(server, prompt, run, plan)))
        except Exception as error:  # noqa: BLE001  raised again by the thread that waits
            done.put((place, error))


def _talk(server: Server, prompt: BenchPrompt, run: int, plan: Plan) -> list[Asked]:
    """The turns of one prompt, each with the server's own answers before it; the first failure ends them."""
    found: list[Asked] = []
    answers: list[str] = []
    for turn in range(len(prompt.turns)):
        try:
            reply = ask(server, conversation(prompt, answers), plan.n_predict, plan.of_run(run))
        except BenchError as error:
            return [*found, Asked(prompt.kind, prompt.label, turn, run, None, str(error))]
        found.append(Asked(prompt.kind, prompt.label, turn, run, reply))
        answers.append(reply.text)
    return found


def summarize(found: Sequence[Asked], seconds: float) -> LoadSummary:
    """Raises BenchError with the first failure's words when no request succeeded."""
    replies = [asked.reply for asked in found if asked.reply is not None]
    if not replies:
        raise BenchError(f"no request succeeded: {found[0].error}" if found else "there was no request")
    by_kind: dict[str, list[Asked]] = defaultdict(list)
    for asked in found:
        by_kind[asked.kind].append(asked)
    drafts = any(_number(reply.timings, "draft_n") is not None for reply in replies)
    return LoadSummary(
        tuple(_kind(kind, some, drafts=drafts) for kind, some in by_kind.items()),
        _kind(ALL, found, drafts=drafts),
        seconds,
        sum(reply.n_tokens for reply in replies) / seconds,
        all(reply.counted for reply in replies),
    )


def _kind(kind: str, found: Sequence[Asked], *, drafts: bool) -> KindLoad:
    """``drafts``: whether the server names ``draft_n`` in any of its replies."""
    replies = [asked.reply for asked in found if asked.reply is not None]
    return KindLoad(
        kind,
        len(found),
        len(found) - len(replies),
        sum(reply.n_tokens for reply in replies),
        _middle(reply.first_ms for reply in replies),
        _middle(reply.per_second for reply in replies),
        _middle(_number(reply.timings, "predicted_per_second") for reply in replies),
        _drafts(replies, named=drafts),
    )


def _drafts(replies: Sequence[Reply], *, named: bool) -> ServerDrafts:
    with_meta = [reply.meta_info for reply in replies if _number(reply.meta_info, "spec_verify_ct")]
    if with_meta:
        verified = _sum(with_meta, "spec_verify_ct")
        written = _sum(with_meta, "completion_tokens")
        lengths = [one for one in (_number(meta, "spec_accept_length") for meta in with_meta) if one is not None]
        length = written / verified if written else (sum(lengths) / len(lengths) if lengths else None)
        return ServerDrafts(*_drafted(replies), int(verified), length)
    timed = [reply.timings for reply in replies if _number(reply.timings, "predicted_n")]
    if not named or not timed:
        return ServerDrafts(None, None, None, None)
    n, accepted = int(_sum(timed, "draft_n")), int(_sum(timed, "draft_n_accepted"))
    passes = _sum(timed, "predicted_n") - len(timed) - accepted
    return ServerDrafts(n, accepted, None, 1 + accepted / passes if passes > 0 else None)


def _drafted(replies: Sequence[Reply]) -> tuple[int | None, int | None]:
    """Tokens drafted and accepted, by servers that say both what SGLang says and what llama.cpp does."""
    timed = [reply.timings for reply in replies if _number(reply.timings, "draft_n") is not None]
    return (int(_sum(timed, "draft_n")), int(_sum(timed, "draft_n_accepted"))) if timed else (None, None)


def _number(place: Mapping[str, Any], name: str) -> float | None:
    value = place.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _sum(places: Iterable[Mapping[str, Any]], name: str) -> float:
    return sum(_number(place, name) or 0.0 for place in places)


def _middle(values: Iterable[float | None]) -> Middle | None:
    found = [value for value in values if value is not None]
    return Middle(median(found), min(found), max(found)) if found else None
