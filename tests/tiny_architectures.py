"""A tiny target of every architecture that takes a drafter: the keys and tensors that its loader asks for, and no more.

Comes in: an architecture, and changes. Goes out: a file that libllama loads and runs. Knows nothing of quantization.
Source: llama.cpp src/models, a file for each architecture (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from tiny_vocab import tokenizer_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

HIDDEN, FFN, EXPERT, HEAD, VOCAB, LAYERS = 64, 64, 32, 16, 320, 4
Rows = dict[str, tuple[int, ...]]
ALL, EVEN, ODD = (0, 1, 2, 3), (0, 2), (1, 3)

WHOLE: Rows = {
    "token_embd.weight": (HIDDEN, VOCAB),
    "output_norm.weight": (HIDDEN,),
    "output.weight": (HIDDEN, VOCAB),
}

# ---------------------------------------------------------------- parts of a layer, shapes in ggml's order

NORM: Rows = {"attn_norm.weight": (HIDDEN,)}
FFN_NORM: Rows = {"ffn_norm.weight": (HIDDEN,)}
POST_NORM: Rows = {"post_attention_norm.weight": (HIDDEN,)}
FFN_POST_NORM: Rows = {"post_ffw_norm.weight": (HIDDEN,)}
ATTENTION: Rows = {
    "attn_q.weight": (HIDDEN, 64),
    "attn_k.weight": (HIDDEN, 32),
    "attn_v.weight": (HIDDEN, 32),
    "attn_output.weight": (64, HIDDEN),
}
GATED: Rows = ATTENTION | {"attn_q.weight": (HIDDEN, 128)}
HEAD_NORMS: Rows = {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
MLP: Rows = {"ffn_gate.weight": (HIDDEN, FFN), "ffn_up.weight": (HIDDEN, FFN), "ffn_down.weight": (FFN, HIDDEN)}
ROUTER: Rows = {"ffn_gate_inp.weight": (HIDDEN, 4)}
ROUTER_BIAS: Rows = {"exp_probs_b.bias": (4,)}


def experts(width: int, *, gated: bool = True) -> Rows:
    rows: Rows = {"ffn_up_exps.weight": (HIDDEN, width, 4), "ffn_down_exps.weight": (width, HIDDEN, 4)}
    return ROUTER | rows | ({"ffn_gate_exps.weight": (HIDDEN, width, 4)} if gated else {})


SHARED: Rows = {
    "ffn_gate_shexp.weight": (HIDDEN, EXPERT),
    "ffn_up_shexp.weight": (HIDDEN, EXPERT),
    "ffn_down_shexp.weight": (EXPERT, HIDDEN),
}
SHARED_GATE: Rows = {"ffn_gate_inp_shexp.weight": (HIDDEN,)}
OSS: Rows = {
    "attn_sinks.weight": (4,),
    "attn_output.bias": (HIDDEN,),
    "ffn_gate_inp.bias": (4,),
    "ffn_gate_exps.bias": (EXPERT, 4),
    "ffn_up_exps.bias": (EXPERT, 4),
    "ffn_down_exps.bias": (HIDDEN, 4),
}
DELTA: Rows = {
    "attn_qkv.weight": (HIDDEN, 128),
    "attn_gate.weight": (HIDDEN, 64),
    "ssm_conv1d.weight": (4, 128),
    "ssm_dt.bias": (4,),
    "ssm_a": (4,),
    "ssm_norm.weight": (HEAD,),
    "ssm_out.weight": (64, HIDDEN),
}
DELTA_GATES: Rows = {"ssm_alpha.weight": (HIDDEN, 4), "ssm_beta.weight": (HIDDEN, 4)}
DELTA_GATE: Rows = {"ssm_ba.weight": (HIDDEN, 8)}
MAMBA: Rows = {
    "ssm_in.weight": (HIDDEN, 196),
    "ssm_conv1d.weight": (4, 128),
    "ssm_conv1d.bias": (128,),
    "ssm_dt.bias": (4,),
    "ssm_a": (1, 4),
    "ssm_d": (1, 4),
    "ssm_norm.weight": (32, 2),
    "ssm_out.weight": (64, HIDDEN),
}
UNGATED_MLP: Rows = {"ffn_up.weight": (HIDDEN, FFN), "ffn_down.weight": (FFN, HIDDEN)}
UNGATED_SHARED: Rows = {name: shape for name, shape in SHARED.items() if "gate" not in name}
LIGHTNING: Rows = {
    "attn_norm_2.weight": (64,),
    "attn_qkv.weight": (HIDDEN, 192),
    "attn_gate.weight": (HIDDEN, 64),
    "attn_output.weight": (64, HIDDEN),
}
CONVOLUTION: Rows = {
    "shortconv.conv.weight": (3, HIDDEN),
    "shortconv.in_proj.weight": (HIDDEN, 3 * HIDDEN),
    "shortconv.out_proj.weight": (HIDDEN, HIDDEN),
}
KIMI_DELTA: Rows = {
    **{f"ssm_conv1d_{name}.weight": (4, 1, 64) for name in "qkv"},
    **{f"attn_{name}.weight": (HIDDEN, 64) for name in "qkv"},
    "ssm_f_a.weight": (HIDDEN, 64),
    "ssm_g_a.weight": (HIDDEN, 64),
    "ssm_beta.weight": (HIDDEN, 4),
    "ssm_a": (1, 4),
    "ssm_dt.bias": (64,),
    "ssm_norm.weight": (HEAD,),
    "attn_output.weight": (64, HIDDEN),
}
LATENT: Rows = {
    "attn_q.weight": (HIDDEN, 96),
    "attn_kv_a_mqa.weight": (HIDDEN, 40),
    "attn_kv_a_norm.weight": (32,),
    "attn_k_b.weight": (16, 32, 4),
    "attn_v_b.weight": (32, 16, 4),
    "attn_gate.weight": (HIDDEN, 4),
    "attn_output.weight": (64, HIDDEN),
}
STREAMS: Rows = {
    **{f"hc_{part}_fn.weight": (4 * HIDDEN, 24) for part in ("attn", "ffn")},
    **{f"hc_{part}_base.weight": (24,) for part in ("attn", "ffn")},
    **{f"hc_{part}_scale.weight": (3,) for part in ("attn", "ffn")},
}
LOW_RANK: Rows = {
    "attn_sinks.weight": (4,),
    "attn_q_a.weight": (HIDDEN, 32),
    "attn_q_a_norm.weight": (32,),
    "attn_q_b.weight": (32, 64),
    "attn_kv.weight": (HIDDEN, HEAD),
    "attn_kv_a_norm.weight": (HEAD,),
    "attn_output_a.weight": (32, 64),
    "attn_output_b.weight": (64, HIDDEN),
}


def compressor(ratio: int) -> Rows:
    width = HEAD * (2 if ratio == 4 else 1)
    return {
        "attn_compressor_kv.weight": (HIDDEN, width),
        "attn_compressor_gate.weight": (HIDDEN, width),
        "attn_compressor_ape.weight": (width, ratio),
        "attn_compressor_norm.weight": (HEAD,),
    }


INDEXER: Rows = {
    "indexer.proj.weight": (HIDDEN, 4),
    "indexer.attn_q_b.weight": (32, 256),
    "indexer_compressor_kv.weight": (HIDDEN, 128),
    "indexer_compressor_gate.weight": (HIDDEN, 128),
    "indexer_compressor_ape.weight": (128, 4),
    "indexer_compressor_norm.weight": (64,),
}
HASHED: Rows = {"ffn_gate_tid2eid.weight": (2, VOCAB)}

# ---------------------------------------------------------------- architectures

EXPERT_KEYS: dict[str, Any] = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": EXPERT}
STATE_KEYS: dict[str, Any] = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 64,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
}
WINDOWS: dict[str, Any] = {
    "attention.sliding_window": 64,
    "attention.sliding_window_pattern": [True, False, True, False],
}
TURNED: dict[str, Any] = {"rope.dimension_count": HEAD, "full_attention_interval": 2}
SECTIONS: dict[str, Any] = {"rope.dimension_sections": [3, 3, 2, 0]}
SHARED_KEYS: dict[str, Any] = {"expert_shared_feed_forward_length": EXPERT}
MAMBA_KEYS = STATE_KEYS | {"attention.head_count_kv": [0, 2, 0, 0], "attention.layer_norm_epsilon": 1e-6}
CONVOLUTION_KEYS: dict[str, Any] = {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 2, 0, 2]}

DENSE = [(ALL, NORM | ATTENTION | FFN_NORM | MLP)]
NORMED = [(ALL, NORM | ATTENTION | HEAD_NORMS | FFN_NORM | MLP)]
CONVOLVED = [(EVEN, NORM | CONVOLUTION), (ODD, NORM | ATTENTION | HEAD_NORMS)]
DELTA_LAYERS = [(EVEN, NORM | DELTA | POST_NORM), (ODD, NORM | GATED | HEAD_NORMS | POST_NORM)]

ARCHITECTURES: dict[str, tuple[dict[str, Any], list[tuple[tuple[int, ...], Rows]]]] = {
    "llama": ({}, DENSE),
    "llama-embed": ({}, DENSE),
    "qwen3": ({}, NORMED),
    "qwen3moe": (EXPERT_KEYS, [(ALL, NORM | ATTENTION | HEAD_NORMS | FFN_NORM | experts(EXPERT))]),
    "qwen3next": (
        EXPERT_KEYS | STATE_KEYS | TURNED | SHARED_KEYS,
        [*DELTA_LAYERS, (EVEN, DELTA_GATE), (ALL, experts(EXPERT) | SHARED_GATE | SHARED)],
    ),
    "qwen35": (STATE_KEYS | TURNED | SECTIONS, [*DELTA_LAYERS, (EVEN, DELTA_GATES), (ALL, MLP)]),
    "qwen35moe": (
        EXPERT_KEYS | STATE_KEYS | TURNED | SECTIONS | SHARED_KEYS,
        [*DELTA_LAYERS, (EVEN, DELTA_GATES), (ALL, experts(EXPERT) | SHARED_GATE | SHARED)],
    ),
    "gpt-oss": (
        EXPERT_KEYS | {"attention.sliding_window": 64},
        [(ALL, NORM | ATTENTION | POST_NORM | experts(EXPERT) | OSS)],
    ),
    "gemma4": (
        WINDOWS
        | {
            "attention.shared_kv_layers": 0,
            "attention.key_length_swa": HEAD,
            "attention.value_length_swa": HEAD,
            "embedding_length_per_layer_input": 0,
            "final_logit_softcapping": 30.0,
        },
        [(ALL, NORM | ATTENTION | HEAD_NORMS | POST_NORM | FFN_NORM | MLP | FFN_POST_NORM)],
    ),
    "minimax-01": (
        EXPERT_KEYS | {"full_attention_interval": 2, "rope.dimension_count": 8, "residual_scale": 1.0},
        [(EVEN, NORM | LIGHTNING), (ODD, NORM | ATTENTION), (ALL, FFN_NORM | experts(FFN))],
    ),
    "minimax-m2": (
        EXPERT_KEYS | {"expert_gating_func": 2, "rope.dimension_count": 8},
        [
            (ALL, NORM | ATTENTION | {"attn_q_norm.weight": (64,), "attn_k_norm.weight": (32,)}),
            (ALL, FFN_NORM | experts(FFN) | ROUTER_BIAS),
        ],
    ),
    "mimo2": (
        EXPERT_KEYS | WINDOWS,
        [(ALL, NORM | ATTENTION | FFN_NORM), ((0,), MLP), ((1, 2, 3), experts(EXPERT) | ROUTER_BIAS)],
    ),
    "nemotron_h": (
        MAMBA_KEYS | {"feed_forward_length": [0, 0, FFN, 0]},
        [(ALL, NORM), ((0, 3), MAMBA), ((1,), ATTENTION), ((2,), UNGATED_MLP)],
    ),
    "nemotron_h_moe": (
        MAMBA_KEYS | EXPERT_KEYS | SHARED_KEYS | {"feed_forward_length": [0, 0, 0, FFN], "expert_weights_scale": 1.0},
        [
            (ALL, NORM),
            (EVEN, MAMBA),
            ((1,), ATTENTION),
            ((3,), experts(EXPERT, gated=False) | ROUTER_BIAS | UNGATED_SHARED),
        ],
    ),
    "deepseek4": (
        EXPERT_KEYS
        | {
            "attention.head_count_kv": 1,
            "rope.dimension_count": 8,
            "attention.sliding_window": 64,
            "expert_gating_func": 4,
            "attention.q_lora_rank": 32,
            "attention.output_group_count": 2,
            "attention.output_lora_rank": 32,
            "attention.compress_ratios": [0, 4, 128, 0],
            "attention.compress_rope_freq_base": 1e4,
            "attention.indexer.key_length": 64,
            "attention.indexer.head_count": 4,
            "attention.indexer.top_k": 8,
            "hyper_connection.count": 4,
            "hyper_connection.sinkhorn_iterations": 2,
            "hyper_connection.epsilon": 1e-6,
            "expert_shared_count": 1,
            "expert_weights_scale": 1.0,
            "expert_weights_norm": True,
            "swiglu_clamp_exp": 7.0,
            "hash_layer_count": 4,
            "embedding_length_out": 4 * HIDDEN,
        },
        [
            (ALL, NORM | LOW_RANK | STREAMS | FFN_NORM | experts(EXPERT) | SHARED | HASHED),
            ((1,), compressor(4) | INDEXER),
            ((2,), compressor(128)),
        ],
    ),
    "lfm2": (CONVOLUTION_KEYS, [*CONVOLVED, (ALL, FFN_NORM | MLP)]),
    "lfm2moe": (
        CONVOLUTION_KEYS | EXPERT_KEYS | {"leading_dense_block_count": 2, "expert_gating_func": 2},
        [*CONVOLVED, (ALL, FFN_NORM), ((0, 1), MLP), ((2, 3), experts(EXPERT) | ROUTER_BIAS)],
    ),
    "hunyuan_vl": (SECTIONS, NORMED),
    "hunyuan-dense": ({}, NORMED),
    "bailingmoe3": (
        EXPERT_KEYS
        | {
            "attention.head_count_kv": [0, 1, 0, 1],
            "attention.key_length": 40,
            "attention.key_length_mla": 24,
            "attention.value_length_mla": 16,
            "attention.kv_lora_rank": 32,
            "rope.dimension_count": 8,
            "kda.head_dim": 16,
            "kda.gate_lower_bound": -5.0,
            "ssm.conv_kernel": 4,
            "expert_gating_func": 2,
            "expert_shared_count": 1,
            "leading_dense_block_count": 1,
        },
        [
            (EVEN, NORM | KIMI_DELTA | FFN_NORM),
            (ODD, NORM | LATENT | FFN_NORM),
            ((0,), MLP),
            ((1, 2, 3), experts(EXPERT) | ROUTER_BIAS | SHARED),
        ],
    ),
    "nanbeige": ({"num_loops": 2}, DENSE),
    "muse-glimmer": (
        WINDOWS | {"logit_scale": 1.0, "final_logit_softcapping": 30.0},
        [
            (
                ALL,
                NORM | ATTENTION | HEAD_NORMS | POST_NORM | {"attn_gate.weight": (HIDDEN, 64)},
            ),
            (ALL, FFN_NORM | MLP | FFN_POST_NORM),
        ],
    ),
}
"""Architecture -> its own keys, without the prefix, and which layers have which rows."""

OWN_WHOLE: dict[str, Rows] = {
    "gemma4": {"rope_freqs.weight": (HEAD // 2,)},
    "deepseek4": {
        "output_hc_fn.weight": (4 * HIDDEN, 4),
        "output_hc_base.weight": (4,),
        "output_hc_scale.weight": (1,),
    },
}
OTHER_NAMES = {"lfm2": {"output_norm.weight": "token_embd_norm.weight"}}
OTHER_NAMES["lfm2moe"] = OTHER_NAMES["lfm2"]


def rows_of(arch: str) -> Rows:
    """Name -> shape of every tensor of a file."""
    names = OTHER_NAMES.get(arch, {})
    rows = {names.get(name, name): shape for name, shape in (WHOLE | OWN_WHOLE.get(arch, {})).items()}
    for layers, part in ARCHITECTURES[arch][1]:
        rows |= {f"blk.{layer}.{name}": shape for layer in layers for name, shape in part.items()}
    return rows


def keys_of(arch: str) -> dict[str, Any]:
    """Every key of a file, tokenizer included."""
    keys = {
        "context_length": 512,
        "embedding_length": HIDDEN,
        "block_count": LAYERS,
        "feed_forward_length": FFN,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e4,
    } | ARCHITECTURES[arch][0]
    return {f"{arch}.{key}": value for key, value in keys.items()} | tokenizer_keys(VOCAB)


def write(
    path: Path,
    arch: str,
    *,
    extra_keys: Mapping[str, Any] | None = None,
    drop_keys: Iterable[str] = (),
    drop_tensors: Iterable[str] = (),
    types: Mapping[str, str] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """Write one file; keys in the changes are whole names, ``types`` and ``shapes`` replace those of single tensors."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in (keys_of(arch) | dict(extra_keys or {})).items():
        if key not in set(drop_keys):
            _add(writer, key, value)
    rng = np.random.default_rng(5)
    for name, own in (rows_of(arch) | dict(shapes or {})).items():
        if name in set(drop_tensors):
            continue
        kind = gguf.GGMLQuantizationType[(types or {}).get(name, "I32" if "tid2eid" in name else "F32")]
        if kind is not gguf.GGMLQuantizationType.F32:
            n_bytes = gguf.quants.quant_shape_to_byte_shape(own[::-1], kind)
            writer.add_tensor(name, np.zeros(n_bytes, np.uint8), raw_dtype=kind)
            continue
        array = rng.standard_normal(own[::-1]).astype(np.float32) * 0.05
        writer.add_tensor(name, 1 + array if "norm" in name else -abs(array) - 0.1 if "ssm_a" in name else array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, tuple):
        writer.add_key_value(key, *value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        kinds = {bool: "bool", int: "uint32", float: "float32", str: "string"}
        getattr(writer, f"add_{kinds[value.__class__]}")(key, value)
