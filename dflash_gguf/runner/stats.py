"""What a generation cost and what its drafts were worth, in llama.cpp's names.

Comes in: the native core's counts and the clock. Goes out: one frozen record. Knows nothing of models.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dflash_gguf._core import Stats


@dataclass(frozen=True, slots=True)
class RunStats:
    """Statistics of one request. Times are in milliseconds.

    ``acceptance_length`` is 1 + accepted / verification passes: the tokens that a target pass yields on average.
    ``accepted_per_position[i]`` is accepted / proposed for the (i+1)-th drafted token, ``accepted_at[i]`` and
    ``drafted_at[i]`` are the two counts; so many drafts as ``drafted_at[0]`` were verified. ``predicted_n`` counts the
    tokens given to the caller; the first of them comes from the prompt's own pass. Of the prompt's tokens ``cache_n``
    were in the caches already, ``prompt_n`` were read. ``seed`` is the key of
    the choices; None: there was none.
    """

    drafter: str | None
    seed: int | None
    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
    draft_calls: int
    draft_n: int
    draft_n_accepted: int
    verify_calls: int
    injected_n: int
    acceptance_length: float
    accepted_per_position: tuple[float, ...]
    drafted_at: tuple[int, ...]
    accepted_at: tuple[int, ...]
    draft_ms: float
    verify_ms: float
    accept_ms: float
    inject_ms: float

    def as_dict(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return asdict(self)


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def summarize(
    core: Stats, drafter: str | None, n_predicted: int, seconds: float, n_reused: int = 0, seed: int | None = None
) -> RunStats:
    """``n_predicted`` tokens in ``seconds`` after the prompt, with the native core's counts."""
    per_position = (accepted / n for n, accepted in zip(core.drafted_at, core.accepted_at, strict=True) if n)
    return RunStats(
        drafter=drafter,
        seed=seed,
        cache_n=n_reused,
        prompt_n=core.n_prompt,
        prompt_ms=core.t_prefill * 1e3,
        prompt_per_second=_rate(core.n_prompt, core.t_prefill),
        predicted_n=n_predicted,
        predicted_ms=seconds * 1e3,
        predicted_per_second=_rate(max(0, n_predicted - 1), seconds),
        draft_calls=core.n_drafts,
        draft_n=core.draft_n,
        draft_n_accepted=core.draft_n_accepted,
        verify_calls=core.n_verify,
        injected_n=core.n_injected,
        acceptance_length=1.0 + (core.draft_n_accepted / core.n_verify if core.n_verify else 0.0),
        accepted_per_position=tuple(per_position),
        drafted_at=tuple(core.drafted_at),
        accepted_at=tuple(core.accepted_at),
        draft_ms=core.t_draft * 1e3,
        verify_ms=core.t_verify * 1e3,
        accept_ms=core.t_accept * 1e3,
        inject_ms=core.t_inject * 1e3,
    )
