"""Measurements for `bench` that need no model: pairs with the counts and times that a test wants."""

from __future__ import annotations

from dflash_gguf.bench.measure import Measured, Pair
from dflash_gguf.runner.stats import RunStats


def stats(
    n=101,
    ms=1000.0,
    *,
    drafter=None,
    draft_n=0,
    accepted=0,
    verify=100,
    rates=(),
    parts=(0.0, 0.0, 0.0, 0.0),
    prompt_ms=50.0,
):
    """Statistics of ``n`` tokens, the first of which is the prompt's own; ``parts``: draft, verify, accept, inject."""
    draft_ms, verify_ms, accept_ms, inject_ms = parts
    return RunStats(
        drafter=drafter,
        seed=1,
        cache_n=0,
        prompt_n=20,
        prompt_ms=prompt_ms,
        prompt_per_second=400.0,
        predicted_n=n,
        predicted_ms=ms,
        predicted_per_second=max(0, n - 1) / ms * 1e3,
        draft_calls=verify,
        draft_n=draft_n,
        draft_n_accepted=accepted,
        verify_calls=verify,
        injected_n=n,
        acceptance_length=1 + accepted / verify if verify else 1.0,
        accepted_per_position=rates,
        drafted_at=(),
        accepted_at=(),
        draft_ms=draft_ms,
        verify_ms=verify_ms,
        accept_ms=accept_ms,
        inject_ms=inject_ms,
    )


def measured(numbers, ids=(1, 2, 3), first_ms=60.0, drafted_at=(), accepted_at=(), text="x"):
    return Measured(tuple(ids), text, numbers, first_ms, tuple(drafted_at), tuple(accepted_at))


def pair(
    kind="code", prompt=0, run=0, *, plain_ms=1000.0, drafted_ms=500.0, same=True, turn=0, label="a prompt", n=101
):
    """100 tokens behind the first in the given milliseconds; with the drafter 50 rounds of two drafted, 50 accepted."""
    parts = (drafted_ms * 0.25, drafted_ms * 0.5, drafted_ms * 0.05, drafted_ms * 0.1)
    drafted = stats(n, drafted_ms, drafter="DFlash 2", draft_n=100, accepted=50, verify=50, parts=parts)
    return Pair(
        kind,
        label,
        prompt,
        turn,
        run,
        measured(stats(n, plain_ms)),
        measured(drafted, (1, 2, 3) if same else (1, 2, 4), 70.0, (50, 50), (40, 10)),
    )
