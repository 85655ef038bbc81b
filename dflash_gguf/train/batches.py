"""Which blocks are learnt from at each step: a function of the seed and the step alone.

Comes in: a corpus. Goes out: texts, padded, with anchors along each answer. So a run that is taken up again sees what
an unbroken one sees, and nothing of the drawing has to be kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dflash_gguf.errors import TrainError
from dflash_gguf.train.features import NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dflash_gguf.train.corpus import Corpus, Example

FEWEST: Final = 2
"""Tokens of an answer that hold an anchor and what follows it."""
SPAN: Final = 48
"""Places of an answer that are measured along."""
DAMAGED: Final = f"the file was damaged: remove `{NAME}` of the cache, and they are read anew"
EXPONENT: Final = 0x7F80
"""Bits of a BF16 that are all set where it is no number."""
NOTHING: Final = -1
"""Stands in ``gold`` where the text has ended."""

_ORDER, _ANCHORS, _TOKENS = range(3)
"""What a generator is for, beside the seed."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts and blocks of them.

    ``features``: uint16 (BF16) [texts, length, n_features], zeros behind a text's last anchor; ``anchors``: int64
    [texts, n_anchors], positions; ``tokens``: int64 [texts, n_anchors, block], the ids from each anchor on, `NOTHING`
    where the text has ended.
    """

    features: NDArray[np.uint16]
    anchors: NDArray[np.int64]
    tokens: NDArray[np.int64]


def usable(corpus: Corpus) -> list[int]:
    """The examples that have an anchor."""
    lengths = np.diff(corpus.starts)[corpus.order] - corpus.n_prompts[corpus.order]
    return [int(i) for i in np.flatnonzero(lengths >= FEWEST)]


def chosen(n: int, seed: int, step: int, n_texts: int) -> list[int]:
    """Of ``n`` examples those of a step: each comes up once before any comes up again."""
    places = range(step * n_texts, (step + 1) * n_texts)
    orders = {place // n: np.random.default_rng((seed, _ORDER, place // n)).permutation(n) for place in places}
    return [int(orders[place // n][place % n]) for place in places]


def drawn(examples: Sequence[Example], block: int, n_anchors: int, seed: int, step: int) -> Batch:
    """``n_anchors`` blocks of each example, drawn evenly along its answer."""
    generator = np.random.default_rng((seed, _ANCHORS, step))
    anchors = [np.sort(generator.integers(e.n_prompt, len(e.ids) - 1, n_anchors)) for e in examples]
    return batch_of(examples, anchors, block)


def batch_of(examples: Sequence[Example], anchors: Sequence[NDArray[np.int64]], block: int) -> Batch:
    """The blocks at ``anchors``, as many in each example."""
    length = max(int(rows[-1]) for rows in anchors)
    features = np.zeros((len(examples), length, examples[0].features.shape[1]), np.uint16)
    tokens = np.empty((len(examples), len(anchors[0]), block), np.int64)
    for i, (example, rows) in enumerate(zip(examples, anchors, strict=True)):
        seen = int(rows[-1])
        features[i, :seen] = example.features[:seen]
        padded = np.concatenate([example.ids, np.full(block, NOTHING)])
        tokens[i] = padded[rows[:, None] + np.arange(block)]
    return Batch(features, np.stack(anchors), tokens)


def check_finite(batch: Batch, where: str) -> None:
    """Raises TrainError when a feature is no number: the file was damaged."""
    if ((batch.features & EXPONENT) == EXPONENT).any():
        raise TrainError(f"the features of {where} hold numbers that are none", remedy=DAMAGED)


def middle(example: Example) -> NDArray[np.int64]:
    """The `SPAN` anchors in the middle of an answer, one behind another, or all that there are."""
    first, end = example.n_prompt, len(example.ids) - 1
    start = first + max(0, end - first - SPAN) // 2
    return np.arange(start, min(end, start + SPAN))


def walked(named: NDArray[np.int64]) -> list[int]:
    """The places that drafting along a text comes to. ``named``: how many drafted tokens are right at each place."""
    places, place = [], 0
    while place < len(named):
        places.append(place)
        place += int(named[place]) + 1
    return places


def vocabulary_subset(
    batch: Batch, frequent: NDArray[np.int64], n_random: int, n_vocab: int, seed: int, step: int
) -> NDArray[np.int64]:
    """The tokens that the loss of a step compares with, rising: frequent ones, those of the batch, and random ones."""
    rare = np.random.default_rng((seed, _TOKENS, step)).integers(0, n_vocab, n_random)
    gold = batch.tokens[batch.tokens != NOTHING]
    return np.unique(np.concatenate([frequent, gold, rare]))


def frequent_tokens(corpus: Corpus, n: int) -> NDArray[np.int64]:
    """The ``n`` most frequent tokens of the answers, or all that there are."""
    answers = [example.ids[example.n_prompt :] for example in corpus]
    ids, counts = np.unique(np.concatenate(answers), return_counts=True)
    return ids[np.argsort(-counts, kind="stable")][:n].astype(np.int64)
