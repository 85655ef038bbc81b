"""DFlash 2 as its authors publish it: z-lab and incoai, NeMo, ModelOpt, GLM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zoo.files import Content, floats
from zoo.parts import (
    BASE,
    Dims,
    Row,
    backbone,
    mask_row,
    qwen3_config,
    selector_keys,
    target_tables,
    windowed,
    without,
)
from zoo.torch_file import mask_embedding

LABEL = "DFlash2DraftModel"


def dflash2_config(dims: Dims, label: str = LABEL, **changes: Any) -> dict[str, Any]:
    config = without(qwen3_config(dims, label, **windowed(dims, full_last=False)), "rope_scaling", "rope_theta")
    rope = {"rope_theta": dims.rope_base, "rope_type": "default"}
    nested = {"block_size": dims.block} | config["dflash_config"] | selector_keys(dims)
    return config | {"dflash_config": nested, "is_causal": False, "rope_parameters": rope} | changes


def _incoai(dims: Dims, seed: int) -> Content:
    return Content(dflash2_config(dims), floats(backbone(dims, seed, "dflash2")))


def _muse(dims: Dims, seed: int) -> Content:
    config = dflash2_config(dims, rms_norm_eps=1e-5)
    config["dflash_config"] |= {"final_logit_softcapping": 20.0, "output_multiplier": 0.19611613513818404}
    return Content(config, floats(backbone(dims, seed, "dflash2")))


def _modelopt(dims: Dims, seed: int) -> Content:
    config = without(qwen3_config(dims, LABEL), "dtype") | {"is_causal": False, "torch_dtype": "bfloat16"}
    config["dflash_config"] |= selector_keys(dims)
    config["dflash_config"] |= {"block_size": dims.block, "causal": False, "projector_type": "dflash2"}
    return Content(config, floats(backbone(dims, seed, "dflash2")))


def _nemo(dims: Dims, seed: int) -> Content:
    config = without(dflash2_config(dims, "Qwen3DFlash2DraftModel"), "is_causal")
    return Content(config, floats(backbone(dims, seed, "dflash2")))


def _flat(dims: Dims, seed: int) -> Content:
    config = without(dflash2_config(dims, "Qwen3DFlash2Model"), "is_causal")
    nested = {key: value for key, value in config.pop("dflash_config").items() if key != "block_size"}
    return Content(config | nested, floats(backbone(dims, seed, "dflash2")))


def _glm(dims: Dims, seed: int) -> Content:
    config = without(qwen3_config(dims, LABEL, is_causal=False, rms_norm_eps=1e-5), "rope_scaling", "rope_theta")
    config["rope_parameters"] = {"rope_theta": dims.rope_base, "rope_type": "default"}
    config["dflash_config"] |= {"block_size": dims.block} | selector_keys(dims)
    tensors = floats(backbone(dims, seed, "dflash2") | target_tables(dims))
    files = {"mask_embedding.pt": mask_embedding(dims.mask, mask_row(dims, seed))}
    parts = tuple(f"model-{i:05d}-of-00002.safetensors" for i in (1, 2))
    return Content(config, tensors, files, parts)


_QWEN38 = replace(BASE, rope_base=1e7)

ROWS = (
    Row("incoai-2", "Qwen3.8-27B-DFlash2", "qwen35", _incoai, _QWEN38, "dflash2"),
    Row("muse-2", "Muse-Glimmer-30B-DFlash2", "muse-glimmer", _muse, replace(BASE, rope_base=5e5), "dflash2"),
    Row("modelopt-2", "Qwen3-8B-DFlash2-modelopt", "qwen3", _modelopt, BASE, "dflash2"),
    Row("nemo-2", "Qwen3-8B-DFlash2-NeMo", "qwen3", _nemo, BASE, "dflash2"),
    Row("nemo-2-flat", "Qwen3-8B-DFlash2-flat", "qwen3", _flat, BASE, "dflash2"),
    Row("glm-2", "GLM-5.3-Flash-DFlash2", "glm5-next", _glm, replace(BASE, rope_base=8e6), "dflash2"),
)
