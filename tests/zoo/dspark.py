"""DSpark as its authors publish it: DeepSpec, SpecForge, ModelOpt, LFM2, Ling, Nemotron, speculators, Gemma 4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from zoo.dflash import nemotron_config, nemotron_tables
from zoo.files import Content, floats
from zoo.parts import (
    BASE,
    SPARK,
    Arrays,
    Dims,
    Row,
    backbone,
    confidence,
    prefixed,
    qwen3_config,
    target_tables,
    windowed,
    without,
)
from zoo.small_floats import modelopt_files, nvfp4
from zoo.speculators import reduced_vocabulary, speculators_config

LABEL = "Qwen3DSparkModel"


def markov_keys(dims: Dims) -> dict[str, Any]:
    """The keys of a vanilla Markov head with a confidence head."""
    return {
        "confidence_head_with_markov": True,
        "enable_confidence_head": True,
        "markov_head_type": "vanilla",
        "markov_rank": dims.rank,
    }


def spark(dims: Dims, seed: int) -> Arrays:
    """The backbone with both of DSpark's heads."""
    return backbone(dims, seed, "dspark") | confidence(dims, seed)


def deepspec_config(dims: Dims, label: str = LABEL, **changes: Any) -> dict[str, Any]:
    """DeepSpec's flat config, a copy of the target's."""
    flat = {
        "confidence_head_alpha": 1.0,
        "mask_token_id": dims.mask,
        "num_anchors": 512,
        "target_layer_ids": list(dims.taps),
    }
    return without(qwen3_config(dims, label), "dflash_config") | flat | markov_keys(dims) | changes


def _deepspec(dims: Dims, seed: int) -> Content:
    return Content(deepspec_config(dims), floats(spark(dims, seed) | target_tables(dims)))


def _deepspec_v1(dims: Dims, seed: int) -> Content:
    config = deepspec_config(dims, enable_confidence_head=False, markov_rank=0)
    return Content(config, floats(backbone(dims, seed) | target_tables(dims)))


def _inherited(dims: Dims, seed: int) -> Content:
    rope = {
        "mrope_interleaved": True,
        "mrope_section": [3, 3, 2],
        "partial_rotary_factor": 0.25,
        "rope_theta": dims.rope_base,
        "rope_type": "default",
    }
    config = without(deepspec_config(dims), "rope_scaling", "rope_theta")
    config |= {"partial_rotary_factor": 0.25, "rope_parameters": rope}
    return Content(config, floats(prefixed(spark(dims, seed))))


def _inherited_experts(dims: Dims, seed: int) -> Content:
    content = _inherited(dims, seed)
    experts = {
        "moe_intermediate_size": 128,
        "norm_topk_prob": True,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": 128,
    }
    return replace(content, config=content.config | experts)


def _nested(dims: Dims, label: str, **changes: Any) -> dict[str, Any]:
    config = qwen3_config(dims, label, **changes)
    config["dflash_config"] |= {"attention_mode": "gqa", "projector_type": "dspark"} | markov_keys(dims)
    return config


def _specforge(dims: Dims, seed: int) -> Content:
    return Content(_nested(dims, "DSparkDraftModel"), floats(spark(dims, seed)))


def _radixark(dims: Dims, seed: int) -> Content:
    rope = {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 512,
        "rope_theta": dims.rope_base,
        "rope_type": "yarn",
    }
    config = without(_nested(dims, "DSparkDraftModel"), "rope_scaling", "rope_theta")
    return Content(config | {"max_position_embeddings": 16384, "rope_parameters": rope}, floats(spark(dims, seed)))


def _modelopt(dims: Dims, seed: int) -> Content:
    config = without(qwen3_config(dims, "DFlashDraftModel"), "dtype") | {"torch_dtype": "bfloat16"}
    config["dflash_config"] |= {
        "causal": False,
        "markov_head_type": "vanilla",
        "markov_rank": dims.rank,
        "projector_type": "dspark",
        "use_confidence_head": True,
    }
    names = {"markov_head.": "", "confidence_head.proj.": "confidence_proj."}
    arrays = spark(dims, seed)
    for old, new in names.items():
        arrays = {name.replace(old, new): array for name, array in arrays.items()}
    return Content(config, floats(arrays))


def _lfm2(dims: Dims, seed: int) -> Content:
    changes = {"rms_norm_eps": 1e-5, "rope_is_neox_style": False}
    config = without(_nested(dims, "Lfm2DSparkDraftModel", **changes), "num_target_layers")
    config["dflash_config"]["num_target_layers"] = dims.target_layers
    return Content(config, floats(spark(dims, seed)))


def _ling(dims: Dims, seed: int) -> Content:
    return Content(deepspec_config(dims, "LingDSparkModel"), floats(spark(dims, seed) | target_tables(dims)))


def _nemotron(dims: Dims, seed: int) -> Content:
    nested = {"attention_sink_bias": True, "causal": True, "sample_from_anchor": False}
    config = nemotron_config(dims, LABEL, **nested, swa_window_size=64, use_swa=True)
    config = without(config, "rope_scaling") | {
        "dspark_bonus_anchor": True,
        "dspark_fixup_head_type": "markov",
        "dspark_markov_rank": dims.rank,
        "layer_types": ["sliding_attention"] * dims.layers,
        "markov_head_type": "vanilla",
        "markov_rank": dims.rank,
        "rope_parameters": None,
        "sample_from_anchor": False,
        "sliding_window": 64,
    }
    sinks = np.random.default_rng(seed + 300).standard_normal((dims.layers, dims.heads)).astype(np.float32)
    arrays = backbone(dims, seed, "dspark") | nemotron_tables(dims, seed)
    arrays |= {f"layers.{i}.self_attn.sinks": row for i, row in enumerate(sinks)}
    tensors = floats(arrays)
    for name in [n for n in tensors if ".mlp." in n or n in ("fc.weight", "markov_head.markov_w2.weight")]:
        tensors |= nvfp4(name, tensors[name].values)
    config, files = modelopt_files(config, "W4A16_NVFP4")
    return Content(config, tensors, files)


def _speculators(dims: Dims, seed: int) -> Content:
    config = speculators_config(dims, "dspark", "DSparkSpeculator", **markov_keys(dims))
    extra = reduced_vocabulary(dims, seed)
    arrays = spark(dims, seed)
    rows = extra["lm_head.weight"].shape[0]
    arrays["markov_head.markov_w2.weight"] = arrays["markov_head.markov_w2.weight"][:rows]
    return Content(config, floats(arrays) | extra)


def _speculators_full(dims: Dims, seed: int) -> Content:
    config = speculators_config(dims, "dspark", "DSparkSpeculator", **markov_keys(dims), draft_vocab_size=dims.vocab)
    config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] = dims.block
    config["transformer_layer_config"] |= windowed(dims, full_last=False)
    config["sample_from_anchor"] = True
    return Content(config, floats(spark(dims, seed)))


def _gemma4(dims: Dims, seed: int) -> Content:
    table = target_tables(dims)["embed_tokens.weight"]
    arrays = spark(dims, seed) | {"embed_tokens.weight": table, "lm_head.weight": table}
    rng = np.random.default_rng(seed + 500)
    for i in range(dims.layers):
        del arrays[f"layers.{i}.self_attn.v_proj.weight"]
        for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
            arrays[f"layers.{i}.{name}.weight"] = 1 + rng.standard_normal(dims.hidden).astype(np.float32) / 10
        arrays[f"layers.{i}.layer_scalar"] = np.full(1, 0.75 + i / 8, np.float32)
    arrays = {name.replace("confidence_head.proj.", "confidence_proj."): array for name, array in arrays.items()}
    config = deepspec_config(dims, "Gemma4DSparkModel") | {
        "attention_k_eq_v": True,
        "enable_moe_block": False,
        "final_logit_softcapping": None,
        "global_head_dim": dims.head_dim,
        "head_dim": dims.head_dim // 2,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 0,
        "model_type": "gemma4_text",
        "num_global_key_value_heads": dims.kv_heads,
        "num_key_value_heads": dims.kv_heads * 2,
        "num_kv_shared_layers": 0,
        "rope_parameters": {
            "full_attention": {
                "partial_rotary_factor": 0.25,
                "rope_theta": dims.rope_base,
                "rope_type": "proportional",
            },
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "sliding_window": 1024,
    }
    names = ("hidden_act", "max_window_layers", "rope_scaling", "rope_theta", "use_sliding_window")
    return Content(without(config, *names), floats(arrays))


_NOISE = replace(BASE, block=15, rope_base=1e7)
_NEMOTRON = replace(BASE, taps=(0, 1, 3), rope_base=1e4, rank=64)

ROWS = (
    Row("deepspec", "dspark_qwen3_4b_block7", "qwen3", _deepspec, SPARK, "dspark"),
    Row("deepspec-v1", "dflash_qwen3_4b_block7", "qwen3", _deepspec_v1, SPARK, "dflash"),
    Row("deepspec-inherited", "Qwen3.6-27B-DSpark", "qwen35", _inherited, _NOISE, "dspark"),
    Row("deepspec-experts", "Qwen3.6-35B-A3B-DSpark", "qwen35moe", _inherited_experts, _NOISE, "dspark"),
    Row("specforge-dspark", "dspark-qwen3-8b", "qwen3", _specforge, SPARK, "dspark"),
    Row("radixark", "Qwen3.8-27B-DSpark", "qwen35", _radixark, replace(BASE, rope_base=1e7), "dspark"),
    Row("modelopt-dspark", "Qwen3-8B-DSpark-modelopt", "qwen3", _modelopt, BASE, "dspark"),
    Row("lfm2-dspark", "LFM2.5-1.2B-Instruct-DSpark", "lfm2", _lfm2, replace(BASE, block=9), "dspark"),
    Row("ling-dspark", "Ling-3.0-flash-DSpark", "bailingmoe3", _ling, SPARK, "dspark"),
    Row(
        "nemotron-dspark",
        "NVIDIA-Nemotron-3.5-Lightning-DSpark-NVFP4",
        "nemotron_h",
        _nemotron,
        _NEMOTRON,
        "dspark",
    ),
    Row("speculators-dspark", "Qwen3-8B-speculator.dspark", "qwen3", _speculators, SPARK, "dspark"),
    Row("speculators-dspark-full", "Muse-Glimmer-30B-DSpark", "muse-glimmer", _speculators_full, _NOISE, "dspark"),
    Row("gemma4-dspark", "dspark_gemma4_12b_block7", "gemma4", _gemma4, replace(SPARK, mask=4), "dspark"),
)
