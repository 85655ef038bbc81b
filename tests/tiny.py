"""Tiny models made on the spot: drafter checkpoints, drafter GGUFs and target GGUFs.

Comes in: a path and overrides. Goes out: files whose every weight follows from the seed.
Nothing of this package takes part: safetensors are written byte by byte, GGUFs by gguf-py.
"""

# ruff: noqa: A002 - `type` is what GGUF calls it

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tiny_files import TYPES, encode, stored_values, write_gguf, write_safetensors
from tiny_vocab import CHAT_TEMPLATE, MASK_ID, SPECIALS, tokenizer_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "DRAFTER",
    "TARGET",
    "TYPES",
    "Dims",
    "checkpoint_values",
    "drafter_arrays",
    "drafter_config",
    "drafter_keys",
    "encode",
    "gguf_name",
    "stored_values",
    "target_arrays",
    "target_values",
    "write_checkpoint",
    "write_drafter",
    "write_gguf",
    "write_safetensors",
    "write_target",
]

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Dims:
    """The sizes of one model; every field can be overridden by keyword."""

    hidden: int = 512
    ffn: int = 1024
    layers: int = 2
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 64
    vocab: int = 512
    eps: float = 1e-6
    rope_base: float = 10000.0
    context: int = 2048
    block: int = 8
    taps: tuple[int, ...] = (0, 1, 2)
    target_layers: int = 4
    conv: int = 2
    group: int = 16
    rank: int = 32
    top_k: int = 16
    mask: int = MASK_ID
    window: int = 0
    kind: str = "dflash2"
    input_scale: float = 1.0


DRAFTER = Dims()
TARGET = Dims(layers=4)


# ---------------------------------------------------------------- drafter checkpoint


def drafter_arrays(dims: Dims = DRAFTER, seed: int = 1) -> Arrays:
    """Float32 tensors of a drafter under z-lab's names, in PyTorch order of axes."""
    draw = _Draw(seed)
    arrays = {
        "fc.weight": draw.matrix(dims.hidden, len(dims.taps) * dims.hidden),
        "hidden_norm.weight": draw.norm(dims.hidden),
        "norm.weight": draw.norm(dims.hidden),
    }
    for i in range(dims.layers):
        arrays |= {f"layers.{i}.{name}": array for name, array in _drafter_layer(dims, draw).items()}
    if dims.kind == "dflash2":
        arrays["candidate_selector.predecessor_codebook"] = draw.normal(0.6, dims.vocab, dims.rank)
        arrays["candidate_selector.successor_codebook"] = draw.normal(0.6, dims.vocab, dims.rank)
        arrays["candidate_selector.hidden_projection.weight"] = draw.matrix(dims.rank, dims.hidden)
    if dims.kind == "dspark":
        arrays["markov_head.markov_w1.weight"] = draw.normal(0.6, dims.vocab, dims.rank)
        arrays["markov_head.markov_w2.weight"] = draw.normal(0.6, dims.vocab, dims.rank)
    return arrays


def _drafter_layer(dims: Dims, draw: _Draw) -> Arrays:
    query, key = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
    layer = {
        "input_layernorm.weight": draw.norm(dims.hidden),
        "self_attn.q_proj.weight": draw.matrix(query, dims.hidden),
        "self_attn.k_proj.weight": draw.matrix(key, dims.hidden),
        "self_attn.v_proj.weight": draw.matrix(key, dims.hidden),
        "self_attn.o_proj.weight": draw.matrix(dims.hidden, query),
        "self_attn.q_norm.weight": draw.norm(dims.head_dim, 1.5),
        "self_attn.k_norm.weight": draw.norm(dims.head_dim, 1.5),
        "post_attention_layernorm.weight": draw.norm(dims.hidden),
        "mlp.gate_proj.weight": draw.matrix(dims.ffn, dims.hidden),
        "mlp.up_proj.weight": draw.matrix(dims.ffn, dims.hidden),
        "mlp.down_proj.weight": draw.matrix(dims.hidden, dims.ffn),
    }
    if dims.kind == "dflash2":
        rows = 2 * dims.conv * (dims.hidden // dims.group)
        for name in ("attention_conv", "mlp_conv"):
            base = draw.normal(0.3, 2, dims.conv, dims.hidden)
            base[:, 0] += 1.0
            layer[f"{name}.base_kernel"] = base
            layer[f"{name}.kernel_projection.weight"] = draw.matrix(rows, dims.hidden, 0.2)
    return layer


def drafter_config(dims: Dims = DRAFTER) -> dict[str, Any]:
    """A ``config.json`` as z-lab writes it."""
    block = {"block_size": dims.block, "mask_token_id": dims.mask, "target_layer_ids": list(dims.taps)}
    selector = {
        "conv_kernel_size": dims.conv,
        "conv_group_size": dims.group,
        "selector_rank": dims.rank,
        "selector_top_k": dims.top_k,
    }
    scale = {"input_embedding_scale": dims.input_scale} if dims.input_scale != 1.0 else {}
    layer_type = "sliding_attention" if dims.window else "full_attention"
    return {
        "architectures": ["DFlash2DraftModel" if dims.kind == "dflash2" else "DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": dims.hidden,
        "intermediate_size": dims.ffn,
        "num_hidden_layers": dims.layers,
        "num_attention_heads": dims.heads,
        "num_key_value_heads": dims.kv_heads,
        "head_dim": dims.head_dim,
        "vocab_size": dims.vocab,
        "rms_norm_eps": dims.eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": dims.rope_base},
        "max_position_embeddings": dims.context,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "block_size": dims.block,
        "num_target_layers": dims.target_layers,
        "layer_types": [layer_type] * dims.layers,
        "use_sliding_window": dims.window > 0,
        "sliding_window": dims.window or None,
        "is_causal": False,
        "torch_dtype": "bfloat16",
        "dflash_config": block | scale | (selector if dims.kind == "dflash2" else {}),
    }


def write_checkpoint(
    folder: str | Path,
    *,
    dtype: str = "BF16",
    seed: int = 1,
    config: Mapping[str, Any] | None = None,
    drop_config: Iterable[str] = (),
    tensors: Mapping[str, np.ndarray] | None = None,
    drop_tensors: Iterable[str] = (),
    prefix: str = "",
    shards: int = 1,
    **dims: Any,
) -> Path:
    """Write ``config.json`` and ``model.safetensors`` (or ``shards`` parts and an index) into ``folder``.

    ``dtype`` is F32, F16 or BF16; ``config`` updates the config, its ``dflash_config`` key by key;
    ``drop_config`` takes keys out (``"block_size"``, ``"dflash_config.block_size"``); ``tensors`` adds or
    replaces; ``drop_tensors`` takes out; ``prefix`` goes before every name; ``dims`` are fields of `Dims`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = replace(DRAFTER, **dims)
    merged = _merge(drafter_config(sizes), config or {})
    for key in drop_config:
        *parents, last = key.split(".")
        place = merged[parents[0]] if parents else merged
        del place[last]
    (folder / "config.json").write_text(json.dumps(merged, indent=1), encoding="utf-8")
    arrays = drafter_arrays(sizes, seed) | dict(tensors or {})
    for name in drop_tensors:
        del arrays[name]
    arrays = {prefix + name: array for name, array in arrays.items()}
    _write_shards(folder, arrays, dtype, shards)
    return folder


def checkpoint_values(*, dtype: str = "BF16", seed: int = 1, **dims: Any) -> Arrays:
    """What `write_checkpoint` stores, as float32 after rounding to ``dtype``."""
    arrays = drafter_arrays(replace(DRAFTER, **dims), seed)
    return {name: stored_values(array, dtype) for name, array in arrays.items()}


def _merge(base: dict[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in update.items():
        nested = isinstance(value, dict) and isinstance(base.get(key), dict)
        base[key] = base[key] | value if nested else value
    return base


def _write_shards(folder: Path, arrays: Arrays, dtype: str, shards: int) -> None:
    if shards == 1:
        write_safetensors(folder / "model.safetensors", arrays, dtype)
        return
    names = sorted(arrays)
    weight_map = {}
    for i in range(shards):
        part = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        mine = {name: arrays[name] for name in names[i::shards]}
        write_safetensors(folder / part, mine, dtype)
        weight_map |= dict.fromkeys(mine, part)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


# ---------------------------------------------------------------- GGUF


HF_TO_GGUF = {
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
    "candidate_selector.hidden_projection.weight": "selector_hidden.weight",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
}
HF_LAYER_TO_GGUF = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection.weight": "attn_conv_proj.weight",
    "mlp_conv.base_kernel": "ffn_conv_base",
    "mlp_conv.kernel_projection.weight": "ffn_conv_proj.weight",
}


def gguf_name(name: str) -> str:
    """The GGUF name of a z-lab tensor."""
    if name in HF_TO_GGUF:
        return HF_TO_GGUF[name]
    _, layer, rest = name.split(".", 2)
    return f"blk.{layer}.{HF_LAYER_TO_GGUF[rest]}"


def drafter_keys(dims: Dims = DRAFTER) -> dict[str, Any]:
    """Metadata of a drafter GGUF as llama.cpp's own converter writes it, tokenizer included."""
    keys = _model_keys("dflash", dims) | {
        "dflash.block_size": dims.block,
        "dflash.target_layers": [tap + 1 for tap in dims.taps],
        "dflash.attention.causal": False,
        "tokenizer.ggml.mask_token_id": dims.mask,
    }
    if dims.kind == "dflash2":
        keys |= {
            "dflash.conv_kernel_size": dims.conv,
            "dflash.conv_group_size": dims.group,
            "dflash.selector_rank": dims.rank,
            "dflash.selector_top_k": dims.top_k,
        }
    if dims.input_scale != 1.0:
        keys["dflash.embedding_scale"] = dims.input_scale
    if dims.window:
        keys |= {
            "dflash.attention.sliding_window": dims.window,
            "dflash.attention.sliding_window_pattern": [True] * dims.layers,
        }
    return keys


def write_drafter(path: str | Path, *, type: str = "F32", seed: int = 1, **overrides: Any) -> Path:
    """Write a drafter GGUF directly (the same weights as `write_checkpoint` with that seed).

    ``overrides``: fields of `Dims` and the options of `write_gguf`.
    """
    dims, options = _split(DRAFTER, overrides)
    arrays = {gguf_name(name): array for name, array in drafter_arrays(dims, seed).items()}
    return write_gguf(path, "dflash", drafter_keys(dims), arrays, type=type, **options)


def target_arrays(arch: str = "qwen3", dims: Dims = TARGET, seed: int = 7, *, tied: bool = False) -> Arrays:
    """Float32 tensors of a target under GGUF names; the head's rows of the special tokens are zero."""
    draw = _Draw(seed)
    arrays = {
        "token_embd.weight": draw.normal(1.0, dims.vocab, dims.hidden),
        "output_norm.weight": draw.norm(dims.hidden),
    }
    if not tied:
        arrays["output.weight"] = draw.matrix(dims.vocab, dims.hidden, 3.0)
        arrays["output.weight"][: len(SPECIALS)] = 0.0
    for i in range(dims.layers):
        layer = _drafter_layer(replace(dims, kind="dflash"), draw)
        if arch != "qwen3":
            for name in ("q_norm", "k_norm"):
                del layer[f"self_attn.{name}.weight"]
            layer["self_attn.q_proj.weight"] *= 2.0
        arrays |= {f"blk.{i}.{HF_LAYER_TO_GGUF[name]}": array for name, array in layer.items()}
    return arrays


def target_values(arch: str = "qwen3", *, type: str = "F32", seed: int = 7, tied: bool = False, **dims: Any) -> Arrays:
    """What `write_target` stores, as float32 after rounding to ``type``."""
    arrays = target_arrays(arch, replace(TARGET, **dims), seed, tied=tied)
    return {name: stored_values(a, type if a.ndim > 1 else "F32") for name, a in arrays.items()}


def write_target(
    path: str | Path,
    arch: str = "qwen3",
    type: str = "F32",
    *,
    seed: int = 7,
    tied: bool = False,
    **overrides: Any,
) -> Path:
    """Write a target GGUF that libllama loads; ``arch`` is ``qwen3`` or ``llama``.

    ``tied`` leaves ``output.weight`` out. ``overrides``: fields of `Dims` and the options of `write_gguf`.
    """
    dims, options = _split(TARGET, overrides)
    keys = _model_keys(arch, dims) | {"tokenizer.chat_template": CHAT_TEMPLATE}
    arrays = target_arrays(arch, dims, seed, tied=tied)
    return write_gguf(path, arch, keys, arrays, type=type, **options)


def _model_keys(arch: str, dims: Dims) -> dict[str, Any]:
    return {
        "general.name": f"tiny {arch}",
        "general.file_type": 0,
        f"{arch}.context_length": dims.context,
        f"{arch}.embedding_length": dims.hidden,
        f"{arch}.block_count": dims.layers,
        f"{arch}.feed_forward_length": dims.ffn,
        f"{arch}.attention.head_count": dims.heads,
        f"{arch}.attention.head_count_kv": dims.kv_heads,
        f"{arch}.attention.key_length": dims.head_dim,
        f"{arch}.attention.value_length": dims.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": dims.eps,
        f"{arch}.rope.freq_base": dims.rope_base,
    } | tokenizer_keys(dims.vocab)


def _split(base: Dims, overrides: dict[str, Any]) -> tuple[Dims, dict[str, Any]]:
    sizes = {name: value for name, value in overrides.items() if name in Dims.__slots__}
    return replace(base, **sizes), {k: v for k, v in overrides.items() if k not in sizes}


class _Draw:
    """Seeded weights: matrices keep the scale of their input, norms stay near a gain."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def normal(self, scale: float, *shape: int) -> np.ndarray:
        return (self._rng.standard_normal(shape) * scale).astype(np.float32)

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return self.normal(gain / columns**0.5, rows, columns)

    def norm(self, size: int, gain: float = 1.0) -> np.ndarray:
        return np.float32(gain) + self.normal(0.1 * gain, size)
