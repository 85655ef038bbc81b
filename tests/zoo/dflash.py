"""DFlash v1 as its authors publish it: z-lab, SpecForge, ModelOpt, MiMo, Nemotron, MiniMax, Muse, speculators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from zoo.files import Content, Stored, floats
from zoo.parts import (
    BASE,
    Arrays,
    Dims,
    Row,
    backbone,
    mask_row,
    prefixed,
    qwen3_config,
    target_tables,
    windowed,
    without,
)
from zoo.small_floats import fp8_block_scaled, fp8_tensor_scaled, modelopt_files, nvfp4
from zoo.speculators import reduced_vocabulary, speculators_config
from zoo.torch_file import mask_embedding

LABEL = "DFlashDraftModel"


def _zlab_old(dims: Dims, seed: int) -> Content:
    config = qwen3_config(dims, LABEL, auto_map={"AutoModel": "dflash.DFlashDraftModel"})
    return Content(config, floats(backbone(dims, seed)))


def _zlab_new(dims: Dims, seed: int) -> Content:
    config = qwen3_config(dims, LABEL, **windowed(dims, full_last=True))
    nested = {"block_size": dims.block} | config["dflash_config"]
    return Content(without(config, "block_size") | {"dflash_config": nested}, floats(backbone(dims, seed)))


def _zlab_llama(dims: Dims, seed: int) -> Content:
    scaling = {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 512,
        "rope_type": "llama3",
    }
    return Content(qwen3_config(dims, LABEL, rope_scaling=scaling), floats(backbone(dims, seed)))


def _zlab_gemma(dims: Dims, seed: int) -> Content:
    content = _zlab_new(dims, seed)
    changes = {"final_logit_softcapping": 30.0, "tie_word_embeddings": True}
    return replace(content, config=content.config | changes)


def _minimax(dims: Dims, seed: int) -> Content:
    content = _zlab_new(dims, seed)
    table = {"embed_tokens.weight": target_tables(dims)["embed_tokens.weight"]}
    return replace(content, tensors=content.tensors | floats(table))


def _specforge(dims: Dims, seed: int) -> Content:
    config = qwen3_config(dims, LABEL, tie_word_embeddings=True, rms_norm_eps=1e-5)
    config["dflash_config"] |= {"attention_mode": "gqa", "num_anchors": 512}
    return Content(config, floats(backbone(dims, seed)))


def _modelopt_config(dims: Dims, label: str = LABEL, **changes: Any) -> dict[str, Any]:
    config = without(qwen3_config(dims, label), "dtype") | {"torch_dtype": "bfloat16"} | changes
    config["dflash_config"] |= {"causal": False}
    return config


def _modelopt(dims: Dims, seed: int) -> Content:
    config = _modelopt_config(dims, sliding_window=64)
    config["dflash_config"] |= {"swa_window_size": 64, "use_swa": True}
    return Content(config, floats(backbone(dims, seed)))


def _modelopt_fp8(dims: Dims, seed: int) -> Content:
    tensors = floats(backbone(dims, seed))
    for name in [name for name in tensors if "_proj." in name]:
        tensors |= fp8_tensor_scaled(name, tensors[name].values)
    config, files = modelopt_files(_modelopt_config(dims), "FP8")
    return Content(config, tensors, files)


def _block_fp8(dims: Dims, seed: int) -> Content:
    scheme = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
    tensors = floats(backbone(dims, seed))
    for name in [name for name in tensors if "_proj." in name]:
        tensors |= fp8_block_scaled(name, tensors[name].values)
    return Content(qwen3_config(dims, LABEL, quantization_config=scheme), tensors)


def _mimo(dims: Dims, seed: int) -> Content:
    arrays = backbone(dims, seed)
    sinks = np.random.default_rng(seed + 300).standard_normal((dims.layers, dims.heads)).astype(np.float32)
    arrays |= {f"layers.{i}.self_attn.attention_sink_bias": row for i, row in enumerate(sinks)}
    changes = {
        "attention_sink_bias": True,
        "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-5,
        "sliding_window": 64,
        "v_head_dim": dims.head_dim,
    }
    config = without(qwen3_config(dims, LABEL, **changes), "layer_types", "use_sliding_window", "max_window_layers")
    config["dflash_config"] |= {
        "attention_sink_bias": True,
        "attention_value_scale": 0.612,
        "backbone_rotary_base": 5000000,
        "block_size": dims.block,
        "swa_window_size": 64,
        "use_swa": True,
    }
    parts = tuple(f"dflash_draft_model-{i:05d}-of-00002.safetensors" for i in (1, 2))
    files = {"mask_embedding.pt": mask_embedding(dims.mask, mask_row(dims, seed))}
    return Content(config, floats(prefixed(arrays, "layers.", "norm.")), files, parts)


def nemotron_config(dims: Dims, label: str, **nested: Any) -> dict[str, Any]:
    """The keys that both Nemotron drafts share: embeddings of their own, no head."""
    config = qwen3_config(
        dims, label, draft_vocab_size=None, has_embed_tokens=True, has_lm_head=False, pard_token=dims.mask
    )
    config["eagle_aux_hidden_state_layer_ids"] = [tap + 1 for tap in dims.taps]
    config["dflash_config"] |= nested
    return config


def nemotron_tables(dims: Dims, seed: int) -> Arrays:
    """The target's embeddings but for one trained row, that of the mask."""
    table = target_tables(dims)["embed_tokens.weight"].copy()
    table[dims.mask] = mask_row(dims, seed)
    return {"embed_tokens.weight": table}


def _nemotron(dims: Dims, seed: int) -> Content:
    config = nemotron_config(
        dims, LABEL, attention_sink_bias=False, causal=False, sample_from_anchor=False, use_swa=False
    )
    config = without(config, "block_size", "rope_theta", "rope_scaling") | {
        "max_position_embeddings": 65536,
        "rope_parameters": {
            "factor": 128.0,
            "original_max_position_embeddings": 512,
            "rope_theta": dims.rope_base,
            "rope_type": "yarn",
        },
    }
    tensors = floats(backbone(dims, seed) | nemotron_tables(dims, seed))
    for name in [name for name in tensors if ".mlp." in name]:
        tensors |= nvfp4(name, tensors[name].values, input_scale=0.03125)
    config, files = modelopt_files(config, "NVFP4")
    return Content(config, tensors, files)


def _muse(dims: Dims, seed: int) -> Content:
    names = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    config = {
        "architectures": ["MuseGlimmerAssistantModel"],
        "attention_bias": False,
        "block_size": dims.block,
        "dtype": "bfloat16",
        "head_dim": dims.head_dim,
        "hidden_act": "silu",
        "hidden_size": dims.hidden,
        "intermediate_size": dims.ffn,
        "layer_types": ["sliding_attention"] * dims.layers,
        "mask_token_id": dims.mask,
        "max_position_embeddings": dims.context,
        "model_type": "muse_glimmer_assistant",
        "num_attention_heads": dims.heads,
        "num_hidden_layers": dims.layers,
        "num_key_value_heads": dims.kv_heads,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": dims.rope_base, "rope_type": "default"},
        "sliding_window": 64,
        "target_layer_ids": list(dims.taps),
        "transformers_version": "5.13.0",
    }
    arrays = {names.get(name, name): array for name, array in backbone(dims, seed).items()}
    return Content(config, floats(arrays))


def _speculators(dims: Dims, seed: int) -> Content:
    config = speculators_config(dims, "dflash", "DFlashSpeculator", sample_from_anchor=False)
    return Content(config, floats(backbone(dims, seed)) | reduced_vocabulary(dims, seed))


def _speculators_full(dims: Dims, seed: int) -> Content:
    config = speculators_config(dims, "dflash", LABEL, draft_vocab_size=dims.vocab)
    tables: dict[str, Stored] = floats(target_tables(dims))
    return Content(config, floats(backbone(dims, seed)) | tables)


_QWEN35 = replace(BASE, rope_base=1e7)
_LAST = replace(BASE, taps=(0, 1, 3), rope_base=1e4)

ROWS = (
    Row("zlab-v1-old", "Qwen3-4B-DFlash-b16", "qwen3", _zlab_old),
    Row("zlab-v1-new", "Qwen3.6-35B-A3B-DFlash", "qwen35", _zlab_new, _QWEN35),
    Row("zlab-v1-llama3", "LLaMA3.1-8B-Instruct-DFlash-UltraChat", "llama", _zlab_llama, replace(BASE, rope_base=5e5)),
    Row("zlab-v1-gemma4", "gemma-4-31B-it-DFlash", "gemma4", _zlab_gemma, replace(BASE, mask=4)),
    Row("minimax-v1", "MiniMax-M2.5-DFlash", "minimax-m2", _minimax),
    Row("specforge-v1", "LFM2.5-1.2B-Instruct-DFlash", "lfm2", _specforge),
    Row("modelopt-v1", "Qwen3-8B-DFlash-modelopt", "qwen3", _modelopt),
    Row("modelopt-v1-fp8", "Qwen3-8B-DFlash-FP8", "qwen3", _modelopt_fp8),
    Row("block-fp8-v1", "Qwen3-8B-DFlash-b16-FP8", "qwen3", _block_fp8),
    Row("mimo-v1", "MiMo-V2.5-Pro-FP4-DFlash", "mimo2", _mimo, _LAST),
    Row(
        "nemotron-v1",
        "NVIDIA-Nemotron-3.5-Lightning-DFlash-NVFP4",
        "nemotron_h",
        _nemotron,
        _LAST,
        options={"block_size": 8},
    ),
    Row("muse-assistant", "Muse-Glimmer-30B-assistant", "muse-glimmer", _muse, replace(BASE, rope_base=5e5)),
    Row("speculators-v1", "Qwen3-8B-speculator.dflash", "qwen3", _speculators),
    Row("speculators-v1-full", "Qwen3-8B-speculator.dflash-full", "qwen3", _speculators_full),
)
