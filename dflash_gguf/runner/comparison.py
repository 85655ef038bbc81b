"""A prompt with and without the drafter, side by side.

Comes in: two sessions on one target, and a prompt's ids. Goes out: one frozen record. Knows nothing of terminals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.runner.generation import common_prefix
from dflash_gguf.runner.session import Finished, Round

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.runner.sampling import SamplingOptions
    from dflash_gguf.runner.session import Session
    from dflash_gguf.runner.stats import RunStats


NO_TOKEN: Final = -1
"""What an answer has behind its end."""

BEST: Final[SamplingOptions] = {"temperature": 0.0}
"""The best token at each place."""


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
    """One prompt both ways; ``parting`` is None when the tokens are the same."""

    plain: RunStats
    drafted: RunStats
    parting: Parting | None

    @property
    def ratio(self) -> float:
        """Tokens per second with the drafter over without; 0 when there was nothing to measure."""
        plain = self.plain.predicted_per_second
        return self.drafted.predicted_per_second / plain if plain else 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens of one request, an end token included, and what they cost."""

    ids: tuple[int, ...]
    stats: RunStats


def answer(session: Session, prompt: Sequence[int], n_predict: int, sampling: SamplingOptions = BEST) -> Answer:
    """Runs one request to its end."""
    tokens: list[int] = []
    for event in session.generate(prompt, max_tokens=n_predict, **sampling):
        match event:
            case Round(step):
                tokens.extend(step)
            case Finished("stop", stats):
                return Answer((*tokens, session.newest_token), stats)
            case Finished(_, stats):
                return Answer(tuple(tokens), stats)
    raise RuntimeError("a generation ended without its last event")


def place_of_parting(plain: Sequence[int], drafted: Sequence[int]) -> int | None:
    """Index of the first token that differs, or that only one of the two has."""
    same = common_prefix(plain, drafted)
    return None if same == len(plain) == len(drafted) else same


def parting(session: Session, prompt: Sequence[int], plain: Sequence[int], drafted: Sequence[int]) -> Parting | None:
    """Where two answers part, by the logits of ``session``, which is one without a drafter.

    They are those behind what both have written: an answer that is written again may part from itself sooner, where
    another part of its prompt is kept and passes round in other widths.
    """
    index = place_of_parting(plain, drafted)
    if index is None:
        return None
    answer(session, [*prompt, *plain[:index]], 1, BEST)
    logits = session.newest_logits()
    second, best = sorted(logits.tolist())[-2:]
    ours, theirs = (ids[index] if index < len(ids) else NO_TOKEN for ids in (plain, drafted))
    values = [float(logits[token]) if token != NO_TOKEN else float("nan") for token in (ours, theirs)]
    return Parting(index, ours, theirs, values[0], values[1], best - second)


def compare(
    plain: Session,
    drafted: Session,
    ids: Sequence[int],
    n_predict: int,
    *,
    drafted_first: bool = False,
    sampling: SamplingOptions = BEST,
) -> Comparison:
    """Runs a prompt on both sessions, in the order asked for, so that warm-up favours neither over a series."""
    order = [drafted, plain] if drafted_first else [plain, drafted]
    answers = {id(session): answer(session, ids, n_predict, sampling) for session in order}
    ours, theirs = answers[id(plain)], answers[id(drafted)]
    return Comparison(ours.stats, theirs.stats, parting(plain, ids, ours.ids, theirs.ids))
