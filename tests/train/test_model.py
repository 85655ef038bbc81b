"""The drafter in PyTorch against the NumPy reference, and against z-lab's own model, on random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
import tiny
import torch
import transformers
from dflash import model as published_models
from tiny_train import blocks_of, dims_of, drafter_of
from torch.nn import functional

from dflash_gguf.train.loss import Tables, proposals

OTHER: dict[str, Any] = {"eps": 1e-4, "rope_base": 500_000.0}
"""Values that no default could stand for."""
VARIANTS: dict[str, dict[str, Any]] = {
    "dflash2": {},
    "another base and eps": OTHER,
    "embeddings that are scaled": {"input_scale": 512**0.5},
    "one tap of the convolution": {"conv": 1},
    "three taps, deeper": {"conv": 3, "layers": 3, "block": 5},
    "dflash": {"kind": "dflash"},
    "dflash, one layer": {"kind": "dflash", "layers": 1, "block": 16},
}
LENGTH = 24
ANCHORS = (3, 9, 23)
"""Of which each must see the rows before it alone, and none the blocks of the others."""


def made(dims: tiny.Dims) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(5)
    features = draw.standard_normal((LENGTH, len(dims.taps) * dims.hidden))
    embedding = draw.standard_normal((dims.vocab, dims.hidden))
    return features, embedding, draw.standard_normal((dims.vocab, dims.hidden)) * 0.1


@pytest.mark.parametrize("name", VARIANTS)
def test_blocks_equal_the_reference_one_by_one(name: str) -> None:
    dims = dims_of(**VARIANTS[name])
    features, embedding, head = made(dims)
    tokens = [100 + anchor for anchor in ANCHORS]
    tables = Tables(torch.tensor(embedding), torch.tensor(head))
    drafter = drafter_of(dims)
    with torch.inference_mode():
        blocks = blocks_of(features, ANCHORS, tokens)
        hidden = drafter(blocks, tables.embeddings)
        proposed = proposals(drafter, hidden[:, :, 1:], blocks.tokens, tables)
    one = reference.Drafter(tiny.drafter_arrays(dims), tiny.drafter_config(dims), embedding, head)
    for i, (anchor, token) in enumerate(zip(ANCHORS, tokens, strict=True)):
        one.truncate(0)
        one.inject(features[:anchor])
        np.testing.assert_allclose(hidden[0, i].numpy(), one.hidden(token), atol=1e-6)
        wanted = one.propose(token) if dims.kind == "dflash2" else one.rows(token, dims.block - 1).argmax(1).tolist()
        # The walk's logits are float32.
        assert proposed[0, i].tolist() == wanted


def test_texts_of_different_lengths_do_not_meet() -> None:
    dims = dims_of()
    features, embedding, _ = made(dims)
    drafter, table = drafter_of(dims), torch.tensor(embedding)
    with torch.inference_mode():
        alone = [drafter(blocks_of(features[:n], [n - 1], [7]), table) for n in (6, LENGTH)]
        padded = np.zeros((2, LENGTH, features.shape[1]))
        padded[0, :5], padded[1] = features[:5], features
        both = blocks_of(features, [0], [7])
        both = type(both)(torch.tensor(padded), torch.tensor([[5], [LENGTH - 1]]), torch.tensor([[7], [7]]))
        together = drafter(both, table)
    for i in range(2):
        np.testing.assert_allclose(together[i].numpy(), alone[i][0].numpy(), atol=1e-9)


@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
def test_equals_the_published_model(kind: str) -> None:
    """PyPI's ``dflash``, whose codebooks are embeddings: the names of their tensors end in ``.weight`` there."""
    dims = dims_of(kind=kind, **OTHER)
    features, embedding, head = made(dims)
    drafter = drafter_of(dims)
    config = transformers.Qwen3Config(**drafter.shape.config())
    model = getattr(published_models, drafter.shape.config()["architectures"][0])(config).double().eval()
    state = {f"{n}.weight" if n.endswith("_codebook") else n: v for n, v in drafter.folded().items()}
    model.load_state_dict(state, strict=False)
    assert state.keys() == set(model.state_dict())
    anchor, token = 9, 123
    ids = torch.tensor([[token] + [dims.mask] * (dims.block - 1)])
    table = torch.tensor(embedding)
    with torch.inference_mode():
        theirs = model(
            position_ids=torch.arange(anchor + dims.block)[None],
            noise_embedding=functional.embedding(ids, table),
            target_hidden=torch.tensor(features[None, :anchor]),
        )
        blocks = blocks_of(features, [anchor], [token])
        ours = drafter(blocks, table)
        np.testing.assert_allclose(ours[0, 0].numpy(), theirs[0].numpy(), atol=1e-5)
        wide = torch.nn.Linear(dims.hidden, dims.vocab, bias=False).double()
        wide.weight.copy_(torch.tensor(head))
        mine = proposals(drafter, ours[:, :, 1:], blocks.tokens, Tables(table, torch.tensor(head)))[0, 0]
        if kind == "dflash2":
            path, _, _ = model.propose(theirs[:, 1:], torch.tensor([token]), wide, 0.0)
        else:
            path = model.compute_logits(theirs[:, 1:], wide).argmax(-1)
    assert mine.tolist() == path[0].tolist()


def test_scales_of_features_are_folded_into_the_first_matrix() -> None:
    dims = dims_of(layers=1)
    features, embedding, _ = made(dims)
    drafter, table = drafter_of(dims), torch.tensor(embedding)
    scales = torch.tensor(np.random.default_rng(3).uniform(0.1, 1000, drafter.shape.n_features))
    drafter.feature_rms.copy_(scales)
    published = drafter_of(dims)
    published.load({name: values.numpy() for name, values in drafter.folded().items()})
    with torch.inference_mode():
        blocks = blocks_of(features, [9], [7])
        np.testing.assert_allclose(drafter(blocks, table).numpy(), published(blocks, table).numpy(), atol=1e-9)
