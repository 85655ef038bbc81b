"""The speculators library's own layout: a nested layer config, shifted taps, a vocabulary cut short."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.files import Stored, floats, whole
from zoo.parts import Dims, qwen3_config, target_tables, without

DRAFT_VOCAB = 96


def speculators_config(dims: Dims, algorithm: str, label: str, **changes: Any) -> dict[str, Any]:
    """A ``config.json`` as ``SpeculatorModelConfig.save_pretrained`` writes it."""
    outer = ("architectures", "block_size", "dflash_config", "num_target_layers", "dtype", "transformers_version")
    layer = without(qwen3_config(dims, label), *outer, "layer_types", "use_cache", "rope_scaling")
    verifier = {"architectures": ["Qwen3ForCausalLM"], "name_or_path": "Qwen/Qwen3-8B"}
    proposal = {"accept_tolerance": 0.0, "proposal_type": "greedy", "speculative_tokens": dims.block - 1}
    return {
        "architectures": [label],
        "auto_map": {"": f"config.{label}Config"},
        "aux_hidden_state_layer_ids": [tap + 1 for tap in dims.taps],
        "block_size": dims.block,
        "draft_vocab_size": DRAFT_VOCAB,
        "dtype": "bfloat16",
        "has_no_defaults_at_init": False,
        "mask_token_id": dims.mask,
        "sliding_window_non_causal": False,
        "speculators_config": {
            "algorithm": algorithm,
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": verifier,
        },
        "speculators_model_type": algorithm,
        "speculators_version": "0.5.0",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": layer,
        "transformers_version": "4.57.1",
    } | changes


def reduced_vocabulary(dims: Dims, seed: int) -> dict[str, Stored]:
    """Full embeddings, a head of the draft's own vocabulary, and the tables between the two."""
    tables = target_tables(dims)
    kept = np.sort(np.random.default_rng(seed + 400).choice(dims.vocab, DRAFT_VOCAB, replace=False))
    in_draft = np.zeros(dims.vocab, bool)
    in_draft[kept] = True
    tables["lm_head.weight"] = tables["lm_head.weight"][kept]
    offsets = (kept - np.arange(DRAFT_VOCAB)).astype(np.int64)
    return floats(tables) | {"d2t": whole(offsets), "t2d": whole(in_draft)}
