"""One request on a loop: token rounds, then text. Two layers, the second a thin user of the first.

Comes in: a native loop, prompt ids, a limit. Goes out: typed events. Knows nothing of files, nor of how models are
loaded: tests drive it with scripted targets and drafters.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dflash_gguf.errors import SessionError
from dflash_gguf.runner.scores import Scored, ScoreQueue
from dflash_gguf.runner.stats import RunStats, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dflash_gguf._core import Loop, Sampler
    from dflash_gguf.runner.vocabulary import Span, TextStream

FinishReason = Literal["stop", "length"]

_UNLIMITED: Final = 2**31 - 1

OPENING: Final = 16
"""Tokens at a prompt's end by which a chat template opens the answer: a later turn may write them otherwise."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text that has been accepted: whole UTF-8 characters. ``drafted``: the spans of it that come from accepted drafts.

    A character that tokens of both kinds share was not drafted. ``scores``: where they are asked for, the tokens that
    this is the first text of; at the end also those without any.
    """

    text: str
    drafted: tuple[Span, ...] = ()
    scores: tuple[Scored, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """What one target pass yielded: the tokens kept, and how many were drafted and accepted for it."""

    tokens: tuple[int, ...]
    draft_n: int
    draft_n_accepted: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event: ``stop`` at an end token, ``length`` at the token limit or the end of the context."""

    reason: FinishReason
    stats: RunStats


Event = Text | Round | Finished


class Generation:
    """One request: its tokens so far, and the seconds spent on them, the consumer's own time left out.

    ``cached`` are the ids that both caches hold, carried from request to request: what a prompt shares with them is not
    read again. ``text`` spells the answer, and ends it at a stop string. ``sampler`` chooses its tokens, by ``seed``;
    without one the best are taken. ``piece``: prompt tokens of one pass at the most. ``logprobs``: how many likely
    tokens to name at each place of the text; None: no scores. ``speculative``: whether anything is drafted. ``wanted``
    is asked between passes, those of the prompt too; once it says no, nothing more is done, and no event follows.
    """

    def __init__(
        self,
        loop: Loop,
        is_end: Callable[[int], bool],
        max_tokens: int = -1,
        drafter: str | None = None,
        *,
        cached: list[int] | None = None,
        text: TextStream | None = None,
        sampler: Sampler | None = None,
        seed: int | None = None,
        piece: int | None = None,
        logprobs: int | None = None,
        speculative: bool = True,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        self._loop = loop
        self._is_end = is_end
        self._limit = max_tokens if max_tokens >= 0 else _UNLIMITED
        self._drafter = drafter if speculative else None
        self._speculative = speculative
        self._wanted = wanted or (lambda: True)
        self._cached = [] if cached is None else cached
        self._text = text
        self._sampler = sampler
        self._seed = seed
        self._piece = loop.n_batch if piece is None else min(piece, loop.n_batch)
        self._n_best = -1 if logprobs is None or text is None else logprobs
        self._scores = ScoreQueue()
        self._n_reused = 0
        self._seconds = 0.0
        self._n = 0
        self._reason: FinishReason | None = None

    def rounds(self, ids: Sequence[int]) -> Iterator[Round]:
        """Reads the prompt and yields what each target pass adds, until an end token, a stop string or a limit.

        Raises what `check` raises. A round that is left behind half done is dropped by the next request.
        """
        self.check(ids)
        try:
            first = self._prefill(ids)
            if first is None:
                return
            if emitted := self._emit(self._decide([first])):
                yield Round(emitted, 0, 0)
            while self._reason is None:
                if not self._wanted():
                    return
                step = self._step()
                if step is not None:
                    yield step
        except Exception:
            # A pass failed: what the caches hold is not known. An interrupt or a consumer that leaves is no such thing.
            self._cached.clear()
            raise

    def events(self, ids: Sequence[int]) -> Iterator[Event]:
        """The rounds, each followed by the text that it completes, and Finished at the end."""
        for step in self.rounds(ids):
            yield step
            if self._text:
                yield from self._said(self._text.take())
        if self._reason is None:
            return
        if self._text:
            yield from self._said(self._text.end(), ended=not self._text.stopped)
        yield Finished(self._reason, self.summary())

    def summary(self) -> RunStats:
        """Statistics of what has been done so far."""
        return summarize(self._loop.stats, self._drafter, self._n, self._seconds, self._n_reused, self._seed)

    def check(self, ids: Sequence[int]) -> None:
        """Raises SessionError for an empty prompt, one that does not fit the context, or an id of no token."""
        if not ids:
            raise SessionError("the prompt is empty", remedy="give at least one token")
        n_vocab, n_ctx = self._loop.n_vocab, self._loop.n_ctx
        if min(ids) < 0 or max(ids) >= n_vocab:
            wrong = next(token for token in ids if not 0 <= token < n_vocab)
            raise SessionError("a prompt id", value=wrong, expected=f"0 to {n_vocab - 1}")
        if len(ids) > n_ctx:
            raise SessionError(
                f"the prompt of {len(ids)} tokens does not fit the context",
                expected=f"at most {n_ctx} tokens",
                remedy="ask for a larger context (`-c`, `n_ctx`) or shorten the prompt",
            )

    def _prefill(self, ids: Sequence[int]) -> int | None:
        """The first token of the answer; None: it is not wanted any more."""
        # The last token is read again for its logits. `cached` never says more than the caches hold, whenever an
        # interrupt comes.
        keep = min(common_prefix(self._cached, ids), len(ids) - 1)
        del self._cached[keep:]
        self._n_reused = self._loop.begin(keep, self._speculative)
        del self._cached[self._n_reused :]
        self._loop.choose_by(self._sampler)
        self._loop.report(self._n_best)
        first, marks = -1, self._marks(len(ids))
        if self._n_reused in marks:
            self._loop.mark()
        for start, end in pieces(self._n_reused, len(ids), self._piece, marks):
            if not self._wanted():
                return None
            piece = list(ids[start:end])
            first = self._loop.prefill(piece, end == len(ids))
            self._cached += piece
            if end in marks:
                self._loop.mark()
        return first

    def _marks(self, n: int) -> set[int]:
        """Where another prompt may part from one of ``n`` tokens, for a state that can go back only to such places."""
        return {n - 1, n - 1 - OPENING} if self._loop.recurrent else set()

    def _step(self) -> Round | None:
        if self._loop.n_past >= self._loop.n_ctx:
            self._reason = "length"
            return None
        started = time.perf_counter()
        newest = self._loop.last
        tokens = self._loop.round(self._limit - self._n - 1)
        n_drafted = self._loop.n_drafted
        kept = self._decide(tokens)
        self._loop.commit(len(kept))
        self._cached += [newest, *kept[:-1]]
        emitted = self._emit(kept)
        self._seconds += time.perf_counter() - started
        return Round(emitted, n_drafted, len(tokens) - 1) if emitted else None

    def _decide(self, tokens: Sequence[int]) -> Sequence[int]:
        """What to commit of a round's tokens: up to the limit, an end token, which stays the newest one, or the token
        that completes a stop string.
        """
        wanted = tokens[: self._limit - self._n]
        scores = self._loop.scores if self._n_best >= 0 else []
        for i, token in enumerate(wanted):
            if self._is_end(token):
                self._reason = "stop"
                return wanted[: i + 1]
            if scores and self._text:
                self._scores.add(Scored(token, scores[i][0], tuple(scores[i][1]), self._text.length))
            if self._text and self._text.add(token, drafted=i < len(tokens) - 1):  # the last is the target's own
                self._reason = "stop"
                return wanted[: i + 1]
        return wanted

    def _emit(self, kept: Sequence[int]) -> tuple[int, ...]:
        """The tokens of ``_decide`` that belong to the answer: an end token does not."""
        if kept and self._is_end(kept[-1]):
            kept = kept[:-1]
        self._n += len(kept)
        if self._reason is None and self._n >= self._limit:
            self._reason = "length"
        return tuple(kept)

    def _said(self, taken: tuple[str, tuple[Span, ...]], *, ended: bool = False) -> Iterator[Text]:
        text, drafted = taken
        scores = self._scores.take(len(text), ended=ended)
        if text or scores:
            yield Text(text, drafted, scores)


def pieces(start: int, end: int, size: int, cuts: Collection[int]) -> Iterator[tuple[int, int]]:
    """``start`` to ``end`` in pieces of at most ``size``, cut at ``cuts`` too."""
    while start < end:
        stop = min([start + size, end, *(cut for cut in cuts if start < cut)])
        yield start, stop
        start = stop


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two sequences begin with in common."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))
