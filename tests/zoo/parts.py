"""What the families' rows are put together from: sizes, the common config, the common tensors.

Comes in: sizes and a seed. Goes out: a config of Qwen3's shape and float arrays under z-lab's names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tiny
from tiny import Dims

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.files import Content

Arrays = dict[str, np.ndarray]

BASE = replace(tiny.DRAFTER, hidden=256, ffn=512, heads=4, kv_heads=2, top_k=4, rope_base=1e6)
SPARK = replace(BASE, block=7)
TARGET_SEED = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One family: who publishes it so, the target that it fits, and how to make it.

    ``folder`` is the name of the published repository, which general.* keys follow; ``kind`` is what its tensors
    make it; ``options`` are the values that the config lacks and the user must give; ``refusal`` is a word that
    the error must hold where the family is one that cannot be converted.
    """

    name: str
    folder: str
    target: str
    build: Callable[[Dims, int], Content]
    dims: Dims = BASE
    kind: str = "dflash"
    options: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""


def qwen3_config(dims: Dims, label: str, **changes: Any) -> dict[str, Any]:
    """A ``config.json`` as transformers writes it for a Qwen3-shaped draft; None takes a key out of ``changes``."""
    config = {
        "architectures": [label],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "block_size": dims.block,
        "bos_token_id": 0,
        "dflash_config": {"mask_token_id": dims.mask, "target_layer_ids": list(dims.taps)},
        "dtype": "bfloat16",
        "eos_token_id": 1,
        "head_dim": dims.head_dim,
        "hidden_act": "silu",
        "hidden_size": dims.hidden,
        "initializer_range": 0.02,
        "intermediate_size": dims.ffn,
        "layer_types": ["full_attention"] * dims.layers,
        "max_position_embeddings": dims.context,
        "max_window_layers": dims.layers,
        "model_type": "qwen3",
        "num_attention_heads": dims.heads,
        "num_hidden_layers": dims.layers,
        "num_key_value_heads": dims.kv_heads,
        "num_target_layers": dims.target_layers,
        "rms_norm_eps": dims.eps,
        "rope_scaling": None,
        "rope_theta": dims.rope_base,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "transformers_version": "4.57.1",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": dims.vocab,
    }
    return config | changes


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    """``config`` less some keys."""
    return {key: value for key, value in config.items() if key not in keys}


def windowed(dims: Dims, *, full_last: bool, size: int = 64) -> dict[str, Any]:
    """Keys of a draft with sliding layers."""
    layers = ["sliding_attention"] * dims.layers
    if full_last:
        layers[-1] = "full_attention"
    return {"layer_types": layers, "sliding_window": size, "use_sliding_window": True}


def selector_keys(dims: Dims) -> dict[str, Any]:
    """What DFlash 2 adds to ``dflash_config``."""
    return {
        "conv_group_size": dims.group,
        "conv_kernel_size": dims.conv,
        "selector_rank": dims.rank,
        "selector_top_k": dims.top_k,
    }


def backbone(dims: Dims, seed: int, kind: str = "dflash") -> Arrays:
    """Float arrays of a draft under z-lab's names; ``kind`` adds DFlash 2's or DSpark's own."""
    return tiny.drafter_arrays(replace(dims, kind=kind), seed)


def confidence(dims: Dims, seed: int) -> Arrays:
    """DSpark's confidence head over a row and its Markov embedding."""
    rng = np.random.default_rng(seed + 100)
    weight = rng.standard_normal((1, dims.hidden + dims.rank)).astype(np.float32) / 16
    return {"confidence_head.proj.weight": weight, "confidence_head.proj.bias": np.full(1, 0.125, np.float32)}


def target_tables(dims: Dims) -> Arrays:
    """The embeddings and the head of the target that every row of these sizes fits, as drafts copy them."""
    sizes = replace(tiny.TARGET, hidden=dims.hidden, vocab=dims.vocab, layers=0)
    arrays = tiny.target_arrays("qwen3", sizes, TARGET_SEED)
    return {"embed_tokens.weight": arrays["token_embd.weight"], "lm_head.weight": arrays["output.weight"]}


def mask_row(dims: Dims, seed: int) -> np.ndarray:
    """A trained embedding of the mask token, unlike the target's."""
    return np.random.default_rng(seed + 200).standard_normal(dims.hidden).astype(np.float32)


def prefixed(arrays: Arrays, *starts: str) -> Arrays:
    """``model.`` before the names that begin with one of ``starts``, or before all."""
    return {f"model.{name}" if name.startswith(starts or "") else name: array for name, array in arrays.items()}
