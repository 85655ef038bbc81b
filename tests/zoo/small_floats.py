"""Weights in the small floats that published drafts use: FP8 with scales, NVFP4, MXFP4.

Comes in: a name and a float matrix. Goes out: the tensors that stand for it, and what the config says of them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from zoo.files import Stored, floats

BLOCK = 128


def _e4m3_values() -> np.ndarray:
    """The value of each byte 0 .. 126 as E4M3 (finite ones, without sign)."""
    bits = np.arange(127)
    exponent, mantissa = bits >> 3, bits & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal).astype(np.float32)


E4M3 = _e4m3_values()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def _nearest(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    middles = (table[1:] + table[:-1]) / 2
    return np.searchsorted(middles, values).astype(np.uint8)


def e4m3(values: np.ndarray) -> np.ndarray:
    """Bytes of the nearest E4M3 floats."""
    return _nearest(np.abs(values), E4M3) | (np.signbit(values).astype(np.uint8) << 7)


def fp8_tensor_scaled(name: str, array: np.ndarray) -> dict[str, Stored]:
    """ModelOpt FP8: one scale a matrix, and one for its input."""
    scale = np.float32(np.abs(array).max() / 448)
    stem = name.removesuffix(".weight")
    return {
        name: Stored("F8_E4M3", array.shape, e4m3(array / scale).tobytes()),
        f"{stem}.weight_scale": Stored("F32", (), scale.tobytes()),
        f"{stem}.input_scale": Stored("F32", (), np.float32(0.0625).tobytes()),
    }


def fp8_block_scaled(name: str, array: np.ndarray) -> dict[str, Stored]:
    """DeepSeek's FP8: a scale for each block of 128 x 128."""
    rows, columns = (-(-size // BLOCK) for size in array.shape)
    scales = np.empty((rows, columns), np.float32)
    packed = np.empty(array.shape, np.uint8)
    for i, j in np.ndindex(rows, columns):
        part = np.s_[i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK]
        scales[i, j] = np.abs(array[part]).max() / 448
        packed[part] = e4m3(array[part] / scales[i, j])
    return {
        name: Stored("F8_E4M3", array.shape, packed.tobytes()),
        f"{name}_scale_inv": floats({"": scales}, "F32")[""],
    }


def nvfp4(name: str, array: np.ndarray, *, input_scale: float | None = None) -> dict[str, Stored]:
    """ModelOpt NVFP4: two weights a byte, an E4M3 scale for each 16 of them, one float for all."""
    rows, columns = array.shape
    whole = np.float32(np.abs(array).max() / (448 * 6))
    blocks = array.reshape(rows, columns // 16, 16)
    scales = e4m3(np.abs(blocks).max(axis=-1) / 6 / whole)
    steps = np.maximum(E4M3[scales] * whole, np.finfo(np.float32).tiny)
    scaled = blocks / steps[..., None]
    codes = _nearest(np.abs(scaled), E2M1) | (np.signbit(scaled).astype(np.uint8) << 3)
    codes = codes.reshape(rows, columns // 2, 2)
    stem = name.removesuffix(".weight")
    tensors = {
        name: Stored("U8", (rows, columns // 2), (codes[..., 0] | codes[..., 1] << 4).tobytes()),
        f"{stem}.weight_scale": Stored("F8_E4M3", scales.shape, scales.tobytes()),
        f"{stem}.weight_scale_2": Stored("F32", (), whole.tobytes()),
    }
    if input_scale is not None:
        tensors[f"{stem}.input_scale"] = Stored("F32", (), np.float32(input_scale).tobytes())
    return tensors


def modelopt_files(config: dict[str, Any], algorithm: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """``config`` with ModelOpt's ``quantization_config``, and its ``hf_quant_config.json``."""
    producer = {"name": "modelopt", "version": "0.41.0"}
    four_bits = algorithm.endswith("NVFP4")
    ignore = ["embed_tokens", "lm_head", "*self_attn*", "*norm*"]
    weights: dict[str, Any] = {"dynamic": False, "num_bits": 4 if four_bits else 8, "type": "float"}
    if four_bits:
        weights["group_size"] = 16
    group = {"input_activations": weights, "targets": ["Linear"], "weights": weights}
    quantization = {
        "config_groups": {"group_0": group},
        "ignore": ignore,
        "producer": producer,
        "quant_algo": algorithm,
        "quant_method": "modelopt",
    }
    outer: dict[str, Any] = {"exclude_modules": ignore, "kv_cache_quant_algo": None, "quant_algo": algorithm}
    if four_bits:
        outer["group_size"] = 16
    side = json.dumps({"producer": producer, "quantization": outer}, indent=4).encode()
    return config | {"quantization_config": quantization}, {"hf_quant_config.json": side}


def fp8_power_scaled(name: str, array: np.ndarray) -> dict[str, Stored]:
    """DeepSeek-V4's FP8: a power of two for each block of 128 x 128."""
    rows, columns = (-(-size // BLOCK) for size in array.shape)
    exponents = np.empty((rows, columns), np.int32)
    packed = np.empty(array.shape, np.uint8)
    for i, j in np.ndindex(rows, columns):
        part = np.s_[i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK]
        exponents[i, j] = np.ceil(np.log2(np.abs(array[part]).max() / 448))
        packed[part] = e4m3(array[part] * np.float32(2.0 ** -exponents[i, j]))
    return {
        name: Stored("F8_E4M3", array.shape, packed.tobytes()),
        f"{name.removesuffix('.weight')}.scale": Stored(
            "F8_E8M0", (rows, columns), (exponents + 127).astype(np.uint8).tobytes()
        ),
    }


def mxfp4(name: str, array: np.ndarray) -> dict[str, Stored]:
    """DeepSeek-V4's experts: two weights a byte, a power of two for each 32 of them."""
    rows, columns = array.shape
    blocks = array.reshape(rows, columns // 32, 32)
    exponents = np.floor(np.log2(np.abs(blocks).max(axis=-1))).astype(np.int32) - 2
    scaled = blocks * np.float32(2.0) ** -exponents[..., None]
    codes = _nearest(np.abs(scaled), E2M1) | (np.signbit(scaled).astype(np.uint8) << 3)
    codes = codes.reshape(rows, columns // 2, 2)
    return {
        name: Stored("I8", (rows, columns // 2), (codes[..., 0] | codes[..., 1] << 4).tobytes()),
        f"{name.removesuffix('.weight')}.scale": Stored(
            "F8_E8M0", exponents.shape, (exponents + 127).astype(np.uint8).tobytes()
        ),
    }
