"""Tiny targets of other architectures: LFM2, whose convolutions keep a recurrent state, and an encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tiny import _Draw
from tiny_files import write_gguf
from tiny_vocab import CHAT_TEMPLATE, SPECIALS, tokenizer_keys

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN, FFN, VOCAB = 512, 1024, 512


def write_lfm2(path: Path, seed: int = 3) -> Path:
    """Four layers, short convolutions and attention in turn; the hidden size is the one of `tiny`."""
    draw = _Draw(seed)
    arrays = {
        "token_embd.weight": draw.normal(1.0, VOCAB, HIDDEN),
        "token_embd_norm.weight": draw.norm(HIDDEN),
        "output.weight": draw.matrix(VOCAB, HIDDEN, 3.0),
    }
    arrays["output.weight"][: len(SPECIALS)] = 0.0
    kv_heads = [0, 4, 0, 4]
    for i, heads in enumerate(kv_heads):
        layer = _attention(draw) if heads else _convolution(draw)
        arrays |= {f"blk.{i}.{name}": array for name, array in (layer | _feed_forward(draw)).items()}
    keys: dict[str, Any] = {
        "general.name": "tiny lfm2",
        "lfm2.context_length": 2048,
        "lfm2.embedding_length": HIDDEN,
        "lfm2.block_count": len(kv_heads),
        "lfm2.feed_forward_length": FFN,
        "lfm2.attention.head_count": 8,
        "lfm2.attention.head_count_kv": kv_heads,
        "lfm2.attention.layer_norm_rms_epsilon": 1e-6,
        "lfm2.rope.freq_base": 10000.0,
        "lfm2.shortconv.l_cache": 3,
        "lfm2.vocab_size": VOCAB,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
    return write_gguf(path, "lfm2", keys | tokenizer_keys(VOCAB), arrays, type="Q8_0")


def _feed_forward(draw: _Draw) -> dict[str, np.ndarray]:
    return {
        "attn_norm.weight": draw.norm(HIDDEN),
        "ffn_norm.weight": draw.norm(HIDDEN),
        "ffn_gate.weight": draw.matrix(FFN, HIDDEN),
        "ffn_up.weight": draw.matrix(FFN, HIDDEN),
        "ffn_down.weight": draw.matrix(HIDDEN, FFN),
    }


def _attention(draw: _Draw) -> dict[str, np.ndarray]:
    return {
        "attn_q.weight": draw.matrix(512, HIDDEN),
        "attn_k.weight": draw.matrix(256, HIDDEN),
        "attn_v.weight": draw.matrix(256, HIDDEN),
        "attn_output.weight": draw.matrix(HIDDEN, 512),
        "attn_q_norm.weight": draw.norm(64),
        "attn_k_norm.weight": draw.norm(64),
    }


def _convolution(draw: _Draw) -> dict[str, np.ndarray]:
    return {
        "shortconv.conv.weight": draw.normal(0.5, HIDDEN, 3),
        "shortconv.in_proj.weight": draw.matrix(3 * HIDDEN, HIDDEN),
        "shortconv.out_proj.weight": draw.matrix(HIDDEN, HIDDEN),
    }


def write_qwen35(path: Path, seed: int = 11) -> Path:
    """Four layers of Qwen3.5: three gated delta nets and one of attention, positions in sections."""
    draw = _Draw(seed)
    arrays = _ends(draw)
    for i in range(4):
        layer = _delta_net(draw) if i < 3 else _gated_attention(draw)
        layer |= {"attn_norm.weight": draw.norm(HIDDEN), "post_attention_norm.weight": draw.norm(HIDDEN)}
        layer |= {name: array for name, array in _feed_forward(draw).items() if "norm" not in name}
        arrays |= {f"blk.{i}.{name}": array for name, array in layer.items()}
    keys = _keys("qwen35", 4) | {
        "qwen35.attention.key_length": 64,
        "qwen35.attention.value_length": 64,
        "qwen35.rope.dimension_count": 32,
        "qwen35.rope.dimension_sections": [6, 5, 5, 0],
        "qwen35.full_attention_interval": 4,
        "qwen35.ssm.conv_kernel": 4,
        "qwen35.ssm.state_size": 64,
        "qwen35.ssm.group_count": 2,
        "qwen35.ssm.time_step_rank": 4,
        "qwen35.ssm.inner_size": 256,
    }
    return write_gguf(path, "qwen35", keys | tokenizer_keys(VOCAB), arrays, type="Q8_0")


def write_qwen3next(path: Path, seed: int = 17) -> Path:
    """Four layers of Qwen3-Next, whose recurrent states libllama cannot wind back: as Qwen3.5's, with experts."""
    draw = _Draw(seed)
    arrays, experts, width = _ends(draw), 4, 128
    for i in range(4):
        layer = _delta_net(draw) if i < 3 else _gated_attention(draw)
        if i < 3:
            del layer["ssm_beta.weight"], layer["ssm_alpha.weight"]
            layer["ssm_ba.weight"] = draw.matrix(8, HIDDEN)
        layer |= {
            "attn_norm.weight": draw.norm(HIDDEN),
            "post_attention_norm.weight": draw.norm(HIDDEN),
            "ffn_gate_inp.weight": draw.matrix(experts, HIDDEN),
            "ffn_gate_exps.weight": draw.normal(HIDDEN**-0.5, experts, width, HIDDEN),
            "ffn_up_exps.weight": draw.normal(HIDDEN**-0.5, experts, width, HIDDEN),
            "ffn_down_exps.weight": draw.normal(width**-0.5, experts, HIDDEN, width),
            "ffn_gate_inp_shexp.weight": draw.normal(HIDDEN**-0.5, HIDDEN),
            "ffn_gate_shexp.weight": draw.matrix(width, HIDDEN),
            "ffn_up_shexp.weight": draw.matrix(width, HIDDEN),
            "ffn_down_shexp.weight": draw.matrix(HIDDEN, width),
        }
        arrays |= {f"blk.{i}.{name}": array for name, array in layer.items()}
    keys = _keys("qwen3next", 4) | {
        "qwen3next.attention.key_length": 64,
        "qwen3next.attention.value_length": 64,
        "qwen3next.rope.dimension_count": 32,
        "qwen3next.full_attention_interval": 4,
        "qwen3next.ssm.conv_kernel": 4,
        "qwen3next.ssm.state_size": 64,
        "qwen3next.ssm.group_count": 2,
        "qwen3next.ssm.time_step_rank": 4,
        "qwen3next.ssm.inner_size": 256,
        "qwen3next.expert_count": experts,
        "qwen3next.expert_used_count": 2,
        "qwen3next.expert_feed_forward_length": width,
        "qwen3next.expert_shared_feed_forward_length": width,
    }
    return write_gguf(path, "qwen3next", keys | tokenizer_keys(VOCAB), arrays, type="Q8_0")


def write_gpt_oss(path: Path, window: int = 32, seed: int = 13, type: str = "Q8_0") -> Path:  # noqa: A002
    """Four layers of gpt-oss: experts, sinks, and a window in every second layer."""
    draw = _Draw(seed)
    arrays, experts, width = _ends(draw), 4, 128
    for i in range(4):
        layer = {
            "attn_norm.weight": draw.norm(HIDDEN),
            "post_attention_norm.weight": draw.norm(HIDDEN),
            "attn_q.weight": draw.matrix(512, HIDDEN, 2.0),
            "attn_k.weight": draw.matrix(256, HIDDEN),
            "attn_v.weight": draw.matrix(256, HIDDEN),
            "attn_output.weight": draw.matrix(HIDDEN, 512),
            "attn_output.bias": draw.normal(0.1, HIDDEN),
            "attn_sinks.weight": draw.normal(0.5, 8),
            "ffn_gate_inp.weight": draw.matrix(experts, HIDDEN),
            "ffn_gate_inp.bias": draw.normal(0.1, experts),
            "ffn_gate_exps.weight": draw.normal(HIDDEN**-0.5, experts, width, HIDDEN),
            "ffn_up_exps.weight": draw.normal(HIDDEN**-0.5, experts, width, HIDDEN),
            "ffn_down_exps.weight": draw.normal(width**-0.5, experts, HIDDEN, width),
            "ffn_gate_exps.bias": draw.normal(0.1, experts, width),
            "ffn_up_exps.bias": draw.normal(0.1, experts, width),
            "ffn_down_exps.bias": draw.normal(0.1, experts, HIDDEN),
        }
        arrays |= {f"blk.{i}.{name}": array for name, array in layer.items()}
    keys = _keys("gpt-oss", 4) | {
        "gpt-oss.attention.key_length": 64,
        "gpt-oss.attention.value_length": 64,
        "gpt-oss.attention.sliding_window": window,
        "gpt-oss.expert_count": experts,
        "gpt-oss.expert_used_count": 2,
        "gpt-oss.expert_feed_forward_length": width,
    }
    return write_gguf(path, "gpt-oss", keys | tokenizer_keys(VOCAB), arrays, type=type)


def write_gemma4(path: Path, seed: int = 19, type: str = "Q8_0") -> Path:  # noqa: A002
    """Four layers of Gemma 4: embeddings that are scaled, norms behind each part, a window in every second layer."""
    draw = _Draw(seed)
    arrays = _ends(draw) | {"rope_freqs.weight": np.ones(32, np.float32)}
    arrays["token_embd.weight"] *= np.float32(HIDDEN**-0.5)
    for i in range(4):
        layer = _attention(draw) | _feed_forward(draw)
        layer |= {f"post_{name}_norm.weight": draw.norm(HIDDEN) for name in ("attention", "ffw")}
        arrays |= {f"blk.{i}.{name}": array for name, array in layer.items()}
    keys = _keys("gemma4", 4) | {
        "gemma4.attention.key_length": 64,
        "gemma4.attention.value_length": 64,
        "gemma4.attention.key_length_swa": 64,
        "gemma4.attention.value_length_swa": 64,
        "gemma4.attention.shared_kv_layers": 0,
        "gemma4.attention.sliding_window": 32,
        "gemma4.attention.sliding_window_pattern": [True, False, True, False],
        "gemma4.embedding_length_per_layer_input": 0,
        "gemma4.final_logit_softcapping": 30.0,
    }
    return write_gguf(path, "gemma4", keys | tokenizer_keys(VOCAB), arrays, type=type)


def _ends(draw: _Draw) -> dict[str, np.ndarray]:
    arrays = {
        "token_embd.weight": draw.normal(1.0, VOCAB, HIDDEN),
        "output_norm.weight": draw.norm(HIDDEN),
        "output.weight": draw.matrix(VOCAB, HIDDEN, 3.0),
    }
    arrays["output.weight"][: len(SPECIALS)] = 0.0
    return arrays


def _keys(arch: str, n_layers: int) -> dict[str, Any]:
    return {
        "general.name": f"tiny {arch}",
        f"{arch}.context_length": 2048,
        f"{arch}.embedding_length": HIDDEN,
        f"{arch}.block_count": n_layers,
        f"{arch}.feed_forward_length": FFN,
        f"{arch}.attention.head_count": 8,
        f"{arch}.attention.head_count_kv": 4,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.rope.freq_base": 10000.0,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _delta_net(draw: _Draw) -> dict[str, np.ndarray]:
    return {
        "attn_qkv.weight": draw.matrix(512, HIDDEN),
        "attn_gate.weight": draw.matrix(256, HIDDEN),
        "ssm_conv1d.weight": draw.normal(0.5, 512, 4),
        "ssm_dt.bias": draw.normal(0.5, 4),
        "ssm_a": -np.abs(draw.normal(1.0, 4)) - np.float32(0.1),
        "ssm_beta.weight": draw.matrix(4, HIDDEN),
        "ssm_alpha.weight": draw.matrix(4, HIDDEN),
        "ssm_norm.weight": draw.norm(64),
        "ssm_out.weight": draw.matrix(HIDDEN, 256),
    }


def _gated_attention(draw: _Draw) -> dict[str, np.ndarray]:
    return _attention(draw) | {"attn_q.weight": draw.matrix(1024, HIDDEN)}


def write_bert(path: Path, seed: int = 3) -> Path:
    """Two layers of an encoder."""
    hidden, ffn = 128, 256
    draw = _Draw(seed)
    arrays = {
        "token_embd.weight": draw.normal(1.0, VOCAB, hidden),
        "token_types.weight": draw.normal(1.0, 2, hidden),
        "position_embd.weight": draw.normal(1.0, 512, hidden),
    } | _biased(draw, "token_embd_norm", hidden)
    shapes = {"attn_q": (hidden, hidden), "attn_k": (hidden, hidden), "attn_v": (hidden, hidden)}
    shapes |= {"attn_output": (hidden, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn)}
    for i in range(2):
        for name, shape in shapes.items():
            arrays[f"blk.{i}.{name}.weight"] = draw.matrix(*shape)
            arrays[f"blk.{i}.{name}.bias"] = np.zeros(shape[0], np.float32)
        for name in ("attn_output_norm", "layer_output_norm"):
            arrays |= _biased(draw, f"blk.{i}.{name}", hidden)
    keys: dict[str, Any] = {
        "general.name": "tiny bert",
        "bert.context_length": 512,
        "bert.embedding_length": hidden,
        "bert.block_count": 2,
        "bert.feed_forward_length": ffn,
        "bert.attention.head_count": 2,
        "bert.attention.layer_norm_epsilon": 1e-6,
        "bert.attention.causal": False,
        "bert.pooling_type": 1,
        "tokenizer.ggml.token_type_count": 2,
    }
    return write_gguf(path, "bert", keys | tokenizer_keys(VOCAB), arrays, type="F32")


def _biased(draw: _Draw, name: str, width: int) -> dict[str, np.ndarray]:
    return {f"{name}.weight": draw.norm(width), f"{name}.bias": np.zeros(width, np.float32)}
