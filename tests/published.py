"""Configs of published drafters, as far as another engine depends on them, and the targets that they are for.

The numbers are those of the repositories' config.json; of modal-labs/Qwen3.5-397B-A17B-DFlash only the launch line is
public, with its block of 8.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def _config(
    label: str, layers: int, hidden: int, vocab: int, targets: int, nested: dict[str, Any], **more: Any
) -> dict:
    return {
        "architectures": [label],
        "model_type": "qwen3",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "vocab_size": vocab,
        "num_target_layers": targets,
        "layer_types": ["full_attention"] * layers,
        "use_sliding_window": False,
        "sliding_window": None,
        "dflash_config": nested,
        **more,
    }


def _windowed(layers: int, window: int, full_last: int = 0) -> dict[str, Any]:
    kinds = ["sliding_attention"] * (layers - full_last) + ["full_attention"] * full_last
    return {"layer_types": kinds, "use_sliding_window": True, "sliding_window": window}


_SELECTOR = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 256, "selector_top_k": 16}

CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen3.8-27B-DFlash2": _config(
        "DFlash2DraftModel",
        5,
        5120,
        248320,
        64,
        {"block_size": 8, "mask_token_id": 248070, "target_layer_ids": [5, 19, 33, 47, 61], **_SELECTOR},
        is_causal=False,
        **_windowed(5, 2048),
    ),
    "Muse-Glimmer-30B-DFlash2": _config(
        "DFlash2DraftModel",
        5,
        6656,
        202048,
        52,
        {
            "block_size": 16,
            "mask_token_id": 201818,
            "target_layer_ids": [1, 13, 25, 37, 49],
            "output_multiplier": 0.19611613513818404,
            "final_logit_softcapping": 20.0,
            **_SELECTOR,
        },
        is_causal=False,
        **_windowed(5, 2048),
    ),
    "Qwen3-4B-DFlash-b16": _config(
        "DFlashDraftModel",
        5,
        2560,
        151936,
        36,
        {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
        block_size=16,
    ),
    "Qwen3.6-27B-DFlash": _config(
        "DFlashDraftModel",
        5,
        5120,
        248320,
        64,
        {"block_size": 16, "mask_token_id": 248070, "target_layer_ids": [1, 16, 31, 46, 61]},
        **_windowed(5, 2048, full_last=1),
    ),
    "Qwen3.5-397B-A17B-DFlash": _config(
        "DFlashDraftModel",
        6,
        4096,
        248320,
        60,
        {"block_size": 8, "mask_token_id": 248070, "target_layer_ids": [1, 11, 22, 33, 44, 57]},
        **_windowed(6, 4096, full_last=1),
    ),
    "dspark_qwen3_4b_block7": _config(
        "Qwen3DSparkModel",
        5,
        2560,
        151936,
        36,
        {},
        block_size=7,
        mask_token_id=151669,
        target_layer_ids=[1, 9, 17, 25, 33],
        markov_rank=256,
        markov_head_type="vanilla",
    ),
    "dflash_qwen3_4b_block7": _config(
        "Qwen3DSparkModel",
        5,
        2560,
        151936,
        36,
        {},
        block_size=7,
        mask_token_id=151669,
        target_layer_ids=[1, 9, 17, 25, 33],
        markov_rank=0,
    ),
}

TARGETS = {
    "Qwen3.8-27B-DFlash2": "Qwen/Qwen3.8-27B",
    "Muse-Glimmer-30B-DFlash2": "meta-models/Muse-Glimmer-30B",
    "Qwen3-4B-DFlash-b16": "Qwen/Qwen3-4B",
    "Qwen3.6-27B-DFlash": "Qwen/Qwen3.6-27B",
    "Qwen3.5-397B-A17B-DFlash": "Qwen/Qwen3.5-397B-A17B",
    "dspark_qwen3_4b_block7": "Qwen/Qwen3-4B",
    "dflash_qwen3_4b_block7": "Qwen/Qwen3-4B",
}


def write_config(parent: Path, name: str, **changes: Any) -> Path:
    """The folder of a published drafter, without its weights."""
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[name] | changes), encoding="utf-8")
    return folder
