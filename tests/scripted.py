"""Targets and drafters in Python, for the seam of the loop. They keep their caches as lists and check every call."""

import numpy as np

from dflash_gguf import _core

N_VOCAB = 16
N_FEATURES = 3


def hashed(history: list[int]) -> int:
    """A next token that depends on the whole history."""
    value = 7
    for token in history:
        value = (value * 31 + token + 1) % 1_000_003
    return value % N_VOCAB


def continuation(prompt: list[int], n: int, choose=hashed) -> list[int]:
    """What the target alone writes after ``prompt``: ``n`` tokens."""
    history = list(prompt)
    for _ in range(n):
        history.append(choose(history))
    return history[len(prompt) :]


class Target:
    """Its next token is ``choose(history)``; the feature row of a position names the position and its token."""

    n_vocab = N_VOCAB
    n_features = N_FEATURES

    def __init__(self, n_ctx=256, n_batch=64, n_outputs=16, choose=hashed, *, recurrent=False):
        self.n_ctx, self.n_batch, self.n_outputs, self.choose = n_ctx, n_batch, n_outputs, choose
        self.recurrent = recurrent
        self.cache: list[int] = []
        self.last_pass: list[tuple[int, int]] = []
        self.passes: list[tuple[int, int]] = []
        self.n_trims = 0
        self.trimmed = True
        self.fail_after: int | None = None
        self.marks: list[int] = []
        self.least = 0

    def decode(self, tokens, pos, n_logits):
        if self.fail_after is not None and len(self.passes) >= self.fail_after:
            raise RuntimeError("scripted failure")
        assert pos == len(self.cache), (pos, len(self.cache))
        assert 0 < len(tokens) <= self.n_batch
        assert pos + len(tokens) <= self.n_ctx
        rows = []
        self.last_pass = []
        self.trimmed = False
        for i, token in enumerate(tokens):
            self.cache.append(token)
            self.last_pass.append((pos + i, token))
            row = np.zeros(self.n_vocab, np.float32)
            row[self.choose(self.cache)] = 1.0
            rows.append(row)
        self.passes.append((len(tokens), n_logits))
        return np.stack(rows[len(rows) - n_logits :]) if n_logits else np.zeros((0, self.n_vocab), np.float32)

    def features(self, first, n):
        return np.array([[p, t, 1] for p, t in self.last_pass[first : first + n]], np.float32)

    def trim(self, pos):
        """A recurrent state is wound back once a pass, and never over all of its rows."""
        assert pos <= len(self.cache)
        if self.recurrent and (self.trimmed or pos <= self.last_pass[0][0]):
            raise RuntimeError("a recurrent state cannot be wound back that far")
        self.trimmed = True
        self.n_trims += 1
        del self.cache[pos:]

    def rewind(self, pos):
        """To ``pos``, or from a recurrent state's end to the mark before it; to nothing below ``least``."""
        assert pos <= len(self.cache)
        if self.recurrent and pos < len(self.cache):
            self.marks = [mark for mark in self.marks if mark <= pos]
            pos = self.marks[-1] if self.marks else 0
        if pos < self.least:
            self.marks, pos = [], 0
        del self.cache[pos:]
        return len(self.cache)

    def mark(self, pos):
        assert pos == len(self.cache)
        assert self.recurrent
        self.marks.append(pos)


class Drafter:
    """Proposes what ``propose(history, n)`` says; its cache must hold the features of exactly the right positions."""

    n_features = N_FEATURES
    n_batch = 24
    n_ctx = 1 << 20

    def __init__(self, target, propose, n_max=7):
        self.target, self.propose, self.n_max = target, propose, n_max
        self.cache: list[tuple[int, int]] = []
        self.asked: list[int] = []
        self.least = 0

    def inject(self, features, pos):
        assert pos == len(self.cache)
        assert 0 < len(features) <= self.n_batch
        for i, (p, token, one) in enumerate(features.tolist()):
            assert (p, one) == (pos + i, 1)
            self.cache.append((int(p), int(token)))

    def draft(self, last, pos, n):
        assert pos == len(self.cache) == len(self.target.cache)
        assert [t for _, t in self.cache] == self.target.cache
        assert 1 <= n <= self.n_max
        self.asked.append(n)
        return self.propose([t for _, t in self.cache] + [last], n)

    def confidence(self, n):
        return [0.9] * n

    def rewind(self, pos):
        """To ``pos`` while the cache reaches back that far, or else to nothing."""
        del self.cache[pos if pos <= len(self.cache) and pos >= self.least else 0 :]
        return len(self.cache)


def loop_of(target, drafter, n_max=7, **options):
    """A native loop on both."""
    wrapped = _core.ScriptedDrafter(drafter) if drafter is not None else None
    return _core.Loop(_core.ScriptedTarget(target), wrapped, n_max, **options)


def perfect(choose=hashed):
    """A proposal that is always right."""
    return lambda history, n: continuation(history, n, choose)


def wrong(choose=hashed):
    """A proposal whose first token is always wrong."""
    return lambda history, n: [(choose(history) + 1) % N_VOCAB] * n


def agreeing(counts, choose=hashed):
    """Right for counts[0] tokens, then wrong; the next round counts[1], and so on, around."""
    calls = iter(range(10**9))

    def propose(history, n):
        right = min(n, counts[next(calls) % len(counts)])
        ids = continuation(history, n, choose)
        return ids[:right] + [(t + 1) % N_VOCAB for t in ids[right:]]

    return propose


def agreeing_with(ids, counts):
    """propose(pos, n) for a text that is known: right for counts[0] tokens behind position pos, then wrong."""
    calls = iter(range(10**9))

    def propose(pos, n):
        right = min(n, counts[next(calls) % len(counts)])
        after = (ids[pos + 1 :] + [6] * n)[:n]
        return after[:right] + [(t + 1) % 500 for t in after[right:]]

    return propose
