"""Tiny drafters and texts for training, made on the spot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tiny
import torch

from dflash_gguf.train.bf16 import narrowed
from dflash_gguf.train.corpus import Corpus
from dflash_gguf.train.model import Blocks, Drafter
from dflash_gguf.train.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence


def shape_of(dims: tiny.Dims) -> Shape:
    """The shape of a drafter of `tiny`."""
    return Shape(
        kind=dims.kind,
        hidden=dims.hidden,
        ffn=dims.ffn,
        layers=dims.layers,
        heads=dims.heads,
        kv_heads=dims.kv_heads,
        head_dim=dims.head_dim,
        vocab=dims.vocab,
        eps=dims.eps,
        rope_base=dims.rope_base,
        context=dims.context,
        block=dims.block,
        taps=dims.taps,
        target_layers=dims.target_layers,
        mask_id=dims.mask,
        rank=dims.rank,
        top_k=dims.top_k,
        conv_kernel=dims.conv,
        conv_group=dims.group,
        input_scale=dims.input_scale,
    )


def drafter_of(dims: tiny.Dims, seed: int = 1) -> Drafter:
    """The drafter whose weights `tiny.drafter_arrays` makes."""
    drafter = Drafter(shape_of(dims))
    drafter.load(tiny.drafter_arrays(dims, seed))
    return drafter.double()


def blocks_of(features: np.ndarray, anchors: Sequence[int], tokens: Sequence[int]) -> Blocks:
    """Blocks of one text."""
    return Blocks(torch.tensor(features)[None], torch.tensor([list(anchors)]), torch.tensor([list(tokens)]))


def corpus_of(texts: Sequence[Sequence[int]], n_prompt: int, features: np.ndarray, taps: tuple[int, ...]) -> Corpus:
    """``features``: float32 [tokens of all texts, n_features]."""
    starts = np.cumsum([0, *map(len, texts)])
    return Corpus(
        ids=np.concatenate([np.array(text, np.int32) for text in texts]),
        starts=starts.astype(np.int64),
        n_prompts=np.full(len(texts), n_prompt, np.int32),
        features=narrowed(features.astype(np.float32)),
        taps=taps,
        order=np.arange(len(texts)),
    )


def dims_of(**overrides: Any) -> tiny.Dims:
    """`tiny.DRAFTER` with other sizes."""
    return replace(tiny.DRAFTER, **overrides)
