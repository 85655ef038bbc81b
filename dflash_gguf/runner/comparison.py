"""A prompt with and without the drafter, side by side.

Comes in: two sessions on one target, and a prompt's ids. Goes out: one frozen record. Knows nothing of terminals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_gguf.runner.session import Finished, Round

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.runner.session import Session
    from dflash_gguf.runner.stats import RunStats


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two texts part: the first token that differs, what each has there, and the target's own logits of both.

    ``margin`` is the distance of the target's two best logits at that place: where it is as small as the differences by
    which a backend rounds passes of different widths, either token is right.
    """

    index: int
    plain_id: int
    drafted_id: int
    plain_logit: float
    drafted_logit: float
    margin: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt both ways, of ``n_tokens`` without the drafter; ``parting`` is None when the tokens are the same."""

    plain: RunStats
    drafted: RunStats
    n_tokens: int
    parting: Parting | None

    @property
    def ratio(self) -> float:
        """Tokens per second with the drafter over without; 0 when there was nothing to measure."""
        plain = self.plain.predicted_per_second
        return self.drafted.predicted_per_second / plain if plain else 0.0


def compare(
    plain: Session, drafted: Session, ids: Sequence[int], n_predict: int, *, drafted_first: bool = False
) -> Comparison:
    """Runs a prompt on both sessions, in the order asked for, so that warm-up favours neither over a series."""
    order = [drafted, plain] if drafted_first else [plain, drafted]
    results = {id(session): _run(session, ids, n_predict) for session in order}
    plain_ids, plain_stats = results[id(plain)]
    drafted_ids, drafted_stats = results[id(drafted)]
    return Comparison(plain_stats, drafted_stats, len(plain_ids), _parting(plain, ids, plain_ids, drafted_ids))


def _run(session: Session, ids: Sequence[int], n_predict: int) -> tuple[list[int], RunStats]:
    """The tokens, an end token included, and what they cost."""
    tokens: list[int] = []
    for event in session.generate(ids, max_tokens=n_predict):
        match event:
            case Round(step):
                tokens.extend(step)
            case Finished("stop", stats):
                return [*tokens, session.newest_token], stats
            case Finished(_, stats):
                return tokens, stats
    raise RuntimeError("a generation ended without its last event")


def _parting(session: Session, prompt: Sequence[int], plain: list[int], drafted: list[int]) -> Parting | None:
    for i, (ours, theirs) in enumerate(zip(plain, drafted, strict=False)):
        if ours != theirs:
            _run(session, prompt, i + 1)
            logits = session.newest_logits()
            second, best = sorted(logits.tolist())[-2:]
            return Parting(i, ours, theirs, float(logits[ours]), float(logits[theirs]), best - second)
    return None
