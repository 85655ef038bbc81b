"""DeepSeek-V4's DSpark: two stages ``mtp.N`` inside the target's own folder, FP8 matrices, MXFP4 experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from zoo.files import Content, Stored, floats
from zoo.parts import BASE, Dims, Row
from zoo.small_floats import fp8_power_scaled, mxfp4

STREAMS, EXPERTS, EXPERT_WIDTH = 4, 4, 128
GROUPS, RANK, QUERY_RANK = 2, 128, 128
MIXES = (2 + STREAMS) * STREAMS


def deepseek4_config(dims: Dims) -> dict[str, Any]:
    """The target's ``config.json`` with the draft's keys in it."""
    return {
        "architectures": ["DeepseekV4ForCausalLM"],
        "bos_token_id": 0,
        "compress_ratios": [0] * dims.target_layers,
        "compress_rope_theta": 160000,
        "dspark_block_size": 5,
        "dspark_markov_rank": dims.rank,
        "dspark_noise_token_id": dims.mask,
        "dspark_target_layer_ids": list(dims.taps),
        "eos_token_id": 1,
        "expert_dtype": "fp4",
        "hc_eps": 1e-06,
        "hc_mult": STREAMS,
        "hc_sinkhorn_iters": 20,
        "head_dim": dims.head_dim,
        "hidden_act": "silu",
        "hidden_size": dims.hidden,
        "index_head_dim": 64,
        "index_n_heads": 4,
        "index_topk": 16,
        "max_position_embeddings": 65536,
        "model_type": "deepseek_v4",
        "moe_intermediate_size": EXPERT_WIDTH,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": dims.heads,
        "num_experts_per_tok": 2,
        "num_hash_layers": 1,
        "num_hidden_layers": dims.target_layers,
        "num_key_value_heads": 1,
        "num_nextn_predict_layers": dims.layers,
        "o_groups": GROUPS,
        "o_lora_rank": RANK,
        "q_lora_rank": QUERY_RANK,
        "qk_rope_head_dim": dims.head_dim // 2,
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "scale_fmt": "ue8m0",
            "weight_block_size": [128, 128],
        },
        "rms_norm_eps": 1e-06,
        "rope_scaling": {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 16,
            "original_max_position_embeddings": 4096,
            "type": "yarn",
        },
        "rope_theta": 10000,
        "routed_scaling_factor": 1.5,
        "scoring_func": "sqrtsoftplus",
        "sliding_window": 64,
        "swiglu_limit": 10.0,
        "tie_word_embeddings": False,
        "topk_method": "noaux_tc",
        "torch_dtype": "bfloat16",
        "transformers_version": "4.57.1",
        "vocab_size": dims.vocab,
    }


def _build(dims: Dims, seed: int) -> Content:
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)

    def norm(size: int) -> np.ndarray:
        return np.float32(1) + rng.standard_normal(size).astype(np.float32) / 10

    tensors: dict[str, Stored] = floats({"embed.weight": draw(dims.vocab, dims.hidden)})
    for i in range(dims.layers):
        tensors |= {f"mtp.{i}.{name}": tensor for name, tensor in _stage(dims, draw, norm).items()}
    tensors |= fp8_power_scaled("mtp.0.main_proj.weight", draw(dims.hidden, len(dims.taps) * dims.hidden))
    tensors |= floats({"mtp.0.main_norm.weight": norm(dims.hidden)})
    wide = STREAMS * dims.hidden
    last = {
        "norm.weight": norm(dims.hidden),
        "markov_head.markov_w1.weight": draw(dims.vocab, dims.rank),
        "markov_head.markov_w2.weight": draw(dims.vocab, dims.rank),
        "confidence_head.proj.weight": draw(1, dims.hidden + dims.rank),
    }
    mixing = {"hc_head_fn": draw(STREAMS, wide), "hc_head_base": draw(STREAMS), "hc_head_scale": draw(1)}
    stored = floats(last) | floats(mixing, "F32")
    tensors |= {f"mtp.{dims.layers - 1}.{name}": tensor for name, tensor in stored.items()}
    return Content(deepseek4_config(dims), tensors)


def _stage(dims: Dims, draw: Any, norm: Any) -> dict[str, Stored]:
    hidden, heads, head = dims.hidden, dims.heads, dims.head_dim
    matrices = {
        "attn.wq_a": draw(QUERY_RANK, hidden),
        "attn.wq_b": draw(heads * head, QUERY_RANK),
        "attn.wkv": draw(head, hidden),
        "attn.wo_a": draw(GROUPS * RANK, heads * head // GROUPS),
        "attn.wo_b": draw(hidden, GROUPS * RANK),
        "ffn.shared_experts.w1": draw(EXPERT_WIDTH, hidden),
        "ffn.shared_experts.w2": draw(hidden, EXPERT_WIDTH),
        "ffn.shared_experts.w3": draw(EXPERT_WIDTH, hidden),
    }
    norms = {
        "attn.kv_norm": head,
        "attn.q_norm": QUERY_RANK,
        "attn_norm": hidden,
        "ffn_norm": hidden,
    }
    full = {"attn.attn_sink": draw(heads), "ffn.gate.bias": draw(EXPERTS), "ffn.gate.bias_vl": draw(EXPERTS)}
    for part in ("attn", "ffn"):
        full[f"hc_{part}_fn"] = draw(MIXES, STREAMS * hidden)
        full[f"hc_{part}_base"] = draw(MIXES)
        full[f"hc_{part}_scale"] = draw(3)
    tensors = floats({f"{name}.weight": norm(size) for name, size in norms.items()})
    tensors |= floats({"ffn.gate.weight": draw(EXPERTS, hidden)}) | floats(full, "F32")
    for name, array in matrices.items():
        tensors |= fp8_power_scaled(f"{name}.weight", array)
    for i in range(EXPERTS):
        for name, shape in (
            ("w1", (EXPERT_WIDTH, hidden)),
            ("w2", (hidden, EXPERT_WIDTH)),
            ("w3", (EXPERT_WIDTH, hidden)),
        ):
            tensors |= mxfp4(f"ffn.experts.{i}.{name}.weight", draw(*shape))
    return tensors


_SIZES = replace(BASE, block=5, rope_base=1e4)

ROWS = (Row("deepseek4", "DeepSeek-V4-Flash-DSpark", "deepseek4", _build, _SIZES, "dspark"),)
