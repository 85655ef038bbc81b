"""Published drafters that llama.cpp cannot hold: each must be refused by a name that its owner recognises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zoo.dspark import deepspec_config, markov_keys, spark
from zoo.files import Content, Stored, floats, whole
from zoo.parts import BASE, SPARK, Arrays, Dims, Row, backbone, qwen3_config, selector_keys, windowed, without
from zoo.small_floats import nvfp4

LABEL = "DFlashDraftModel"


def _draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 16


def _laguna(dims: Dims, seed: int) -> Content:
    arrays = backbone(dims, seed)
    arrays |= {f"aux_hidden_norms.{i}.weight": 1 + _draw(seed + i, dims.hidden) for i in range(len(dims.taps))}
    for i in range(dims.layers):
        start = f"layers.{i}.self_attn."
        arrays[f"{start}qkv_proj.weight"] = np.concatenate([arrays.pop(f"{start}{n}_proj.weight") for n in "qkv"])
        arrays[f"{start}g_proj.weight"] = _draw(seed + 50 + i, dims.heads, dims.hidden)
    changes = {"gating": "per-head", "model_type": "laguna"}
    config = qwen3_config(dims, "DFlashLagunaForCausalLM", **windowed(dims, full_last=False), **changes)
    config["dflash_config"] |= {"causal": True}
    return Content(config, floats(arrays))


def _domino(dims: Dims, seed: int) -> Content:
    config = qwen3_config(dims, LABEL)
    config["dflash_config"] |= {"causal": False, "projector_type": "domino"}
    arrays = backbone(dims, seed) | {
        "embed_proj.weight": _draw(seed, dims.hidden, dims.hidden),
        "prefix_gru.bias_hh_l0": _draw(seed + 1, 3 * dims.rank),
        "prefix_gru.bias_ih_l0": _draw(seed + 2, 3 * dims.rank),
        "prefix_gru.weight_hh_l0": _draw(seed + 3, 3 * dims.rank, dims.rank),
        "prefix_gru.weight_ih_l0": _draw(seed + 4, 3 * dims.rank, dims.hidden),
    }
    return Content(config, floats(arrays))


def _lilicorr(dims: Dims, seed: int) -> Content:
    config = qwen3_config(dims, "LiLiCorrDraftModel")
    config["dflash_config"] |= {"causal": False, "projector_type": "lilicorr"}
    arrays = backbone(dims, seed) | {
        "lilicorr.down_proj.weight": _draw(seed, dims.rank, dims.hidden),
        "lilicorr.up_proj.weight": _draw(seed + 1, dims.hidden, dims.rank),
    }
    return Content(config, floats(arrays))


def _gated_markov(dims: Dims, seed: int) -> Content:
    gate = {"markov_head.gate_proj.weight": _draw(seed, dims.rank, dims.hidden + dims.rank)}
    return Content(deepspec_config(dims, markov_head_type="gated"), floats(spark(dims, seed) | gate))


def _attention_bias(dims: Dims, seed: int) -> Content:
    arrays = backbone(dims, seed)
    sizes = {"q": dims.heads, "k": dims.kv_heads, "v": dims.kv_heads}
    for i in range(dims.layers):
        arrays |= {
            f"layers.{i}.self_attn.{n}_proj.bias": _draw(seed + i, count * dims.head_dim) for n, count in sizes.items()
        }
    return Content(qwen3_config(dims, LABEL, attention_bias=True), floats(arrays))


def _gated_attention(dims: Dims, seed: int) -> Content:
    arrays = spark(dims, seed)
    for i in range(dims.layers):
        name = f"layers.{i}.self_attn.q_proj.weight"
        arrays[name] = np.concatenate([arrays[name], _draw(seed + i, *arrays[name].shape)])
    config = deepspec_config(dims, "Qwen35DSparkModel", attn_output_gate=True, partial_rotary_factor=0.25)
    return Content(config, floats(arrays))


def _split(arrays: Arrays) -> tuple[Arrays, Arrays]:
    """The linear layers' matrices that quantizers pack, and the rest."""
    packed = {name: array for name, array in arrays.items() if "_proj." in name}
    return packed, {name: array for name, array in arrays.items() if name not in packed}


def _packed_int4(dims: Dims, seed: int) -> Content:
    packed, rest = _split(backbone(dims, seed, "dflash2"))
    tensors = floats(rest)
    for name, array in packed.items():
        rows, columns = array.shape
        stem = name.removesuffix(".weight")
        tensors[f"{stem}.weight_packed"] = whole(np.full((rows, columns // 8), 0x77777777, np.int32))
        tensors |= floats({f"{stem}.weight_scale": np.full((rows, columns // 32), 0.01, np.float32)})
        tensors[f"{stem}.weight_shape"] = whole(np.array([rows, columns], np.int64))
    weights = {"group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": True, "type": "int"}
    scheme = {
        "config_groups": {"group_0": {"format": "pack-quantized", "targets": ["Linear"], "weights": weights}},
        "format": "pack-quantized",
        "ignore": ["fc"],
        "quant_method": "compressed-tensors",
    }
    config = qwen3_config(dims, "DFlash2DraftModel", quantization_config=scheme, is_causal=False)
    config["dflash_config"] |= selector_keys(dims)
    return Content(config, tensors)


def _compressed_nvfp4(dims: Dims, seed: int) -> Content:
    packed, rest = _split(backbone(dims, seed))
    tensors = floats(rest)
    names = {"weight": "weight_packed", "weight_scale": "weight_scale", "weight_scale_2": "weight_global_scale"}
    for name, array in packed.items():
        stem = name.removesuffix("weight")
        for part, tensor in nvfp4(name, array).items():
            tensors[stem + names[part.removeprefix(stem)]] = tensor
    groups = {
        f"group_{i}": {
            "format": "nvfp4-pack-quantized",
            "targets": [target],
            "weights": {"num_bits": 4, "type": "float"},
        }
        for i, target in enumerate(("re:.*self_attn.*", "re:.*mlp.*"))
    }
    scheme = {"config_groups": groups, "format": "nvfp4-pack-quantized", "quant_method": "compressed-tensors"}
    return Content(qwen3_config(dims, LABEL, quantization_config=scheme), tensors)


def _awq(dims: Dims, seed: int) -> Content:
    return _four_bits(dims, seed, {"quant_method": "awq", "version": "gemm", "zero_point": True}, groups=False)


def _gptq(dims: Dims, seed: int) -> Content:
    return _four_bits(dims, seed, {"desc_act": False, "quant_method": "gptq", "sym": True}, groups=True)


def _four_bits(dims: Dims, seed: int, scheme: dict[str, object], *, groups: bool) -> Content:
    packed, rest = _split(backbone(dims, seed))
    tensors: dict[str, Stored] = floats(rest)
    for name, array in packed.items():
        rows, columns = array.shape
        stem = name.removesuffix(".weight")
        shape = (columns // 8, rows) if groups else (columns, rows // 8)
        tensors[f"{stem}.qweight"] = whole(np.full(shape, 0x77777777, np.int32))
        tensors[f"{stem}.qzeros"] = whole(np.full((columns // 128, rows // 8), 0x77777777, np.int32))
        tensors |= floats({f"{stem}.scales": np.full((columns // 128, rows), 0.01, np.float32)}, "F16")
        if groups:
            tensors[f"{stem}.g_idx"] = whole((np.arange(columns) // 128).astype(np.int32))
    config = qwen3_config(dims, LABEL, quantization_config={"bits": 4, "group_size": 128} | scheme)
    return Content(config, tensors)


def _kimi_k3(dims: Dims, seed: int) -> Content:
    arrays = spark(dims, seed)
    for i in range(dims.layers):
        start = f"layers.{i}.self_attn."
        for name in ("k_proj", "v_proj", "q_norm", "k_norm"):
            del arrays[f"{start}{name}.weight"]
        arrays[f"{start}kv_a_proj_with_mqa.weight"] = _draw(seed + i, 80, dims.hidden)
        arrays[f"{start}kv_b_proj.weight"] = _draw(seed + 9 + i, 2 * dims.heads * dims.head_dim, 64)
    config = without(qwen3_config(dims, "KimiK3DSparkModel", kv_lora_rank=64), "head_dim")
    config["dflash_config"] |= markov_keys(dims)
    return Content(config, floats(arrays))


ROWS = (
    Row("laguna", "Laguna-S-2.1-DFlash", "qwen3", _laguna, replace(BASE, mask=3), refusal="Laguna"),
    Row("domino", "Qwen3-8B-Domino-modelopt", "qwen3", _domino, refusal="Domino"),
    Row("lilicorr", "Qwen3-8B-LiLiCorr", "qwen3", _lilicorr, refusal="LiLiCorr"),
    Row("gated-markov", "dspark_qwen3_4b_gated", "qwen3", _gated_markov, SPARK, refusal="gated"),
    Row("attention-bias", "Qwen2.5-7B-DFlash", "qwen3", _attention_bias, refusal="attention_bias"),
    Row("gated-attention", "Qwen3.5-9B-DSpark-gated", "qwen35", _gated_attention, SPARK, refusal="Qwen35DSparkModel"),
    Row("kimi-k3", "Kimi-K3-DSpark", "qwen3", _kimi_k3, SPARK, refusal="KimiK3DSparkModel"),
    Row("packed-int4", "Qwen3.8-27B-DFlash2-W4A16", "qwen35", _packed_int4, refusal="compressed-tensors"),
    Row("compressed-nvfp4", "Qwen3-8B-DFlash-NVFP4", "qwen3", _compressed_nvfp4, refusal="compressed-tensors"),
    Row("awq", "Qwen3-8B-DFlash-AWQ", "qwen3", _awq, refusal="awq"),
    Row("gptq", "Qwen3-8B-DFlash-GPTQ", "qwen3", _gptq, refusal="gptq"),
)
