"""What a drafter is trained to do: to name the tokens behind an anchor, the first ones above all.

Comes in: a drafter, blocks of texts, the target's head. Goes out: one number to lower. Knows nothing of optimizers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch.nn import functional

from dflash_gguf.train.batches import NOTHING
from dflash_gguf.train.model import Blocks

if TYPE_CHECKING:
    from torch import Tensor

    from dflash_gguf.train.batches import Batch
    from dflash_gguf.train.model import Drafter, Selector

GAMMAS: Final = {8: 4.0, 10: 5.0, 16: 7.0}
"""Block -> how many positions the weight takes to fall to 1/e; between them it is interpolated."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The target's, which stay as they are: ``embeddings`` and ``head`` [vocab, hidden]."""

    embeddings: Tensor
    head: Tensor

    def to(self, device: str) -> Tables:
        """Both on ``device``, one tensor where they are one."""
        embeddings = self.embeddings.to(device)
        return Tables(embeddings, embeddings if self.head is self.embeddings else self.head.to(device))


def gamma_of(block: int) -> float:
    """Below the shortest known block in proportion to it."""
    lengths, gammas = list(GAMMAS), list(GAMMAS.values())
    if block < lengths[0]:
        return gammas[0] * block / lengths[0]
    return float(np.interp(block, lengths, gammas))


def on_device(batch: Batch, device: str) -> tuple[Blocks, Tensor]:
    """The blocks, and what follows each anchor: int64 [texts, anchors, block - 1], `NOTHING` behind a text's end."""
    features = torch.from_numpy(batch.features.view(np.int16)).view(torch.bfloat16).to(device).float()
    tokens = torch.from_numpy(batch.tokens).to(device)
    anchors = torch.from_numpy(batch.anchors).to(device)
    return Blocks(features, anchors, tokens[..., 0]), tokens[..., 1:]


def block_loss(
    drafter: Drafter, hidden: Tensor, first: Tensor, gold: Tensor, tables: Tables, subset: Tensor, gamma: float
) -> Tensor:
    """The mean over all positions, each weighted by exp(-(k - 1) / gamma).

    ``hidden``: [..., block - 1, hidden]; ``first``: int64 [...], the anchors' ids; ``gold``: int64 [..., block - 1],
    `NOTHING` where there is none. ``subset``: rising ids, all of ``gold`` among them: the vocabulary of this loss.
    """
    there = gold != NOTHING
    ids = gold.clamp_min(0)
    logits = _logits(hidden, tables.head[subset])
    right = torch.searchsorted(subset, ids)
    losses = functional.cross_entropy(logits.flatten(0, -2), right.flatten(), reduction="none").view(gold.shape)
    if (selector := drafter.candidate_selector) is not None:
        losses = losses + _selector_loss(selector, hidden, first, ids, logits, subset)
    weight = torch.exp(-torch.arange(gold.shape[-1], device=gold.device) / gamma) * there
    return (losses * weight).sum() / weight.sum()


def _logits(hidden: Tensor, head: Tensor) -> Tensor:
    """Float32 [..., rows of the head]. As one product: of a part of a tensor, PyTorch would copy the head for each."""
    flat = hidden.reshape(-1, hidden.shape[-1]).to(head.dtype)
    return (flat @ head.T).float().view(*hidden.shape[:-1], -1)


def _selector_loss(
    selector: Selector, hidden: Tensor, first: Tensor, gold: Tensor, logits: Tensor, subset: Tensor
) -> Tensor:
    """Which of the best candidates is right, told the right token before it; nothing where none of them is."""
    unary, places = logits.detach().topk(min(selector.top_k, len(subset)), -1)
    candidates = subset[places]
    before = torch.cat([first[..., None], gold[..., :-1]], -1)
    scores = unary + selector(hidden, before, candidates)
    hit = candidates == gold[..., None]
    losses = functional.cross_entropy(scores.flatten(0, -2), hit.float().argmax(-1).flatten(), reduction="none")
    return losses.view(gold.shape) * hit.any(-1)


def proposals(drafter: Drafter, hidden: Tensor, first: Tensor, tables: Tables) -> Tensor:
    """The greedy walk: int64 [..., block - 1]. ``hidden``: [..., block - 1, hidden]; ``first``: int64 [...]."""
    logits = _logits(hidden, tables.head)
    if (selector := drafter.candidate_selector) is None:
        return logits.argmax(-1)
    unary, candidates = logits.topk(selector.top_k, -1)
    before, path = first, []
    for place in range(hidden.shape[-2]):
        row = candidates[..., place, :]
        scores = unary[..., place, :] + selector(hidden[..., place, :], before, row)
        before = row.gather(-1, scores.argmax(-1, keepdim=True))[..., 0]
        path.append(before)
    return torch.stack(path, -1)
