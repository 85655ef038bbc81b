"""The loss against NumPy's: weights of positions, the selector's part, what counts for nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_train import dims_of, drafter_of

from dflash_gguf.train.batches import NOTHING
from dflash_gguf.train.loss import Tables, block_loss, gamma_of

FIRST = [[41, 7], [300, 41]]
GOLD = [[[5, 9, 200, 41], [9, 9, 300, 7]], [[200, 5, NOTHING, NOTHING], [41, NOTHING, NOTHING, NOTHING]]]
"""Of two texts, two blocks each; the second text ends."""
SUBSET = [2, 5, 7, 9, 41, 77, 100, 200, 300, 411]


@pytest.mark.parametrize(("block", "gamma"), [(8, 4), (10, 5), (16, 7), (9, 4.5), (13, 6), (4, 2), (20, 7)])
def test_how_fast_weights_fall(block: int, gamma: float) -> None:
    assert gamma_of(block) == gamma


def log_softmax(rows: np.ndarray) -> np.ndarray:
    return rows - rows.max() - np.log(np.exp(rows - rows.max()).sum())


@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
def test_the_loss_of_blocks(kind: str) -> None:
    dims = dims_of(kind=kind, layers=1, top_k=3)
    drafter = drafter_of(dims)
    draw = np.random.default_rng(4)
    head = draw.standard_normal((dims.vocab, dims.hidden)) * 0.3
    hidden = draw.standard_normal((2, 2, 4, dims.hidden))
    total = weights = 0.0
    hits = 0
    for place in np.ndindex(2, 2, 4):
        text, block, k = place
        gold = GOLD[text][block][k]
        if gold == NOTHING:
            continue
        logits = head[SUBSET] @ hidden[place]
        loss = -log_softmax(logits)[SUBSET.index(gold)]
        best = [SUBSET[i] for i in np.argsort(-logits)[:3]]
        if kind == "dflash2" and gold in best:
            before = FIRST[text][block] if k == 0 else GOLD[text][block][k - 1]
            book = {name: values.detach().numpy() for name, values in drafter.candidate_selector.named_parameters()}
            gated = book["predecessor_codebook"][before] * (book["hidden_projection.weight"] @ hidden[place])
            scores = np.sort(logits)[::-1][:3] + book["successor_codebook"][best] @ gated
            loss -= log_softmax(scores)[best.index(gold)]
            hits += 1
        total, weights = total + loss * np.exp(-k / 2.5), weights + np.exp(-k / 2.5)
    assert hits in ((0,) if kind == "dflash" else range(2, 10))  # some, not all
    table = torch.tensor(head)
    given = [torch.tensor(values) for values in (hidden, FIRST, GOLD)]
    found = block_loss(drafter, *given, Tables(table, table), torch.tensor(SUBSET), 2.5)
    assert found.item() == pytest.approx(total / weights, rel=1e-5)
