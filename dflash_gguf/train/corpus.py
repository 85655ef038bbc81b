"""What a drafter is trained on: the target's answers, and the inputs of its tapped layers along each.

Comes in: token ids and rows of features. Goes out: examples, and two parts of them. Knows nothing of PyTorch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt and the answer to it: ``ids`` int32 [n], of which the first ``n_prompt`` are the prompt.

    ``features``: BF16 as uint16 [n, n_taps * n_embd], a view of a file; row i belongs to ``ids[i]``, and holds the taps
    in the drafter's order, as the loop injects them.
    """

    ids: NDArray[np.int32]
    n_prompt: int
    features: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Examples behind one another; ``len()`` and ``[i]`` go by ``order``, which a `split` makes shorter.

    ``ids`` int32 [tokens]; ``starts`` int64 [examples + 1], where each begins; ``n_prompts`` int32 [examples];
    ``features`` BF16 as uint16 [tokens, n_taps * n_embd]; ``taps``: layers whose outputs these are, numbered from 0 as
    in ``target_layer_ids``; ``order`` int64 [len]: which of the examples this corpus has.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    n_prompts: NDArray[np.int32]
    features: NDArray[np.uint16]
    taps: tuple[int, ...]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> Example:
        place = int(self.order[i])
        span = slice(int(self.starts[place]), int(self.starts[place + 1]))
        return Example(self.ids[span], int(self.n_prompts[place]), self.features[span])

    def __iter__(self) -> Iterator[Example]:
        return map(self.__getitem__, range(len(self)))

    @property
    def n_features(self) -> int:
        """Width of a row of features: taps times the target's embedding length."""
        return int(self.features.shape[1])

    def split(self, held_out: int, seed: int) -> tuple[Corpus, Corpus]:
        """All but ``held_out`` examples drawn by ``seed``, and those; both in the order of this corpus."""
        held = sorted(random.Random(seed).sample(range(len(self)), held_out))  # noqa: S311 - not a secret
        kept = np.delete(self.order, held)
        return replace(self, order=kept), replace(self, order=self.order[held])


def widened(rows: NDArray[np.uint16]) -> NDArray[np.float32]:
    """BF16 as uint16 to float32, of the same shape; exact."""
    return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrowed(rows: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Finite float32 to the nearest BF16, ties to even, as uint16 of the same shape."""
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + even + np.uint32(0x7FFF)) >> np.uint32(16)).astype(np.uint16)
