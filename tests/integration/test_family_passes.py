"""Every convertible family: one pass over real layer inputs proposes what the NumPy reference makes of the checkpoint.

The reference reads the published tensors and rope; what the converter must decide (causality, windows, embeddings) is
taken from the file it wrote, and is compared with llama.cpp's own converter in ``test_parity.py``.
"""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import reference
import tiny
import zoo
from libllama import Model
from test_drafter_pass import check_block
from test_reference import PRECISE, PROMPT

from dflash_gguf import _core
from dflash_gguf.convert.api import convert
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.facts import drafter_kind
from dflash_gguf.gguf_header import read_header

PACKED = ("nemotron-v1", "nemotron-dspark")
"""NVFP4, which libllama multiplies with rounded inputs; the parity digests see to its bytes."""

NAMES = [name for name in zoo.FAMILIES if name != "deepseek4"]
"""DeepSeek-V4's stages need a target of their own kind; `test_families_load` runs them without a reference."""
RENAMED = (
    ("encoder.fc.", "fc."),
    ("encoder.output_norm_enc.", "hidden_norm."),
    ("model.", ""),
    ("self_attn.sinks", "self_attn.attention_sink_bias"),
)
PARTS = [name for name in tiny.HF_LAYER_TO_GGUF if name.endswith("_proj.weight")]
ROPE_NOISE = ("deepspec-inherited", "deepspec-experts")
"""Copies of a target's config whose ``partial_rotary_factor`` the draft was not trained with (DeepSpec issue 71)."""


def published(name, dims):
    """(arrays under z-lab's names, config) of a family, as its authors publish them."""
    content = zoo.content(name, **dims)
    arrays = {}
    for source, stored in content.tensors.items():
        plain = source
        for old, new in RENAMED:
            plain = plain.replace(old, new, 1) if plain.startswith(old) or "sinks" in old else plain
        if plain.startswith(("markov_w1", "markov_w2")):
            plain = f"markov_head.{plain}"
        if stored.dtype == "I64":
            arrays[plain] = np.frombuffer(stored.data, "<i8")
        elif stored.dtype in ("BF16", "F16", "F32"):
            arrays[plain] = stored.values
    config = content.config | content.config.get("transformer_layer_config", {})
    return arrays, config


def decided(path, config, name):
    """The config with what the converted file decided."""
    header = read_header(path)
    layers = header.integer("dflash.block_count")
    window = header.integer("dflash.attention.sliding_window", 0)
    pattern = header.booleans("dflash.attention.sliding_window_pattern") if window else [False] * layers
    head_dim = header.integer("dflash.attention.key_length")
    changes = {
        "head_dim": head_dim,
        "num_key_value_heads": header.integer("dflash.attention.head_count_kv"),
        "block_size": header.integer("dflash.block_size"),
        "mask_token_id": header.integer("tokenizer.ggml.mask_token_id"),
        "is_causal": header.boolean("dflash.attention.causal"),
        "sliding_window": window,
        "layer_types": ["sliding_attention" if on else "full_attention" for on in pattern],
        "input_embedding_scale": header.number("dflash.embedding_scale", 1.0),
    }
    rope = config.get("rope_parameters") or {}
    if "full_attention" in rope:
        changes |= {"rope_parameters": rope["full_attention"], "attention_scale": 1.0}
    if name in ROPE_NOISE:
        changes |= {"partial_rotary_factor": 1.0, "rope_parameters": rope | {"partial_rotary_factor": 1.0}}
    return header, config | config.get("dflash_config", {}) | changes


def tables(path, target):
    """(embeddings, head) that the runtime uses: the drafter's own where its file has them, else the target's."""
    found = {}
    for file in (target, path):
        for tensor in gguf.GGUFReader(file).tensors:
            if tensor.name in ("token_embd.weight", "output.weight"):
                found[tensor.name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return found["token_embd.weight"], found.get("output.weight", found["token_embd.weight"])


def unpacked(path, name):
    """FP8 weights as the converter made floats of them; `test_sources` compares those with an independent formula."""
    if "fp8" not in name:
        return {}
    sources = {tiny.gguf_name(f"layers.{i}.{part}"): f"layers.{i}.{part}" for i in range(2) for part in PARTS}
    return {
        sources[tensor.name]: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
        if tensor.name in sources
    }


@pytest.fixture(params=NAMES)
def family(request, tmp_path):
    """(name, converted F32 file, target file, sizes that were changed so that libllama's Qwen3 can run the pair)."""
    name = request.param
    row = zoo.FAMILIES[name]
    dims = {"target_layers": row.dims.target_layers + 1}
    target = zoo.write_target_gguf(name, tmp_path / "target.gguf", type="F32", arch="qwen3", **dims)
    checkpoint = zoo.write_checkpoint(name, tmp_path, **dims)
    path = convert(checkpoint, target, "F32", tmp_path / "drafter.gguf", overrides=Overrides(**row.options)).path
    return name, path, target, dims


def test_a_pass_equals_the_reference(family):
    name, path, target_path, dims = family
    arrays, config = published(name, dims)
    header, config = decided(path, config, name)
    kind = drafter_kind(header.tensors)
    if kind != "dflash2":
        # llama.cpp src/models/dflash.cpp: scale and cap serve the selector alone; the best token is the same without.
        config |= {"output_multiplier": 1.0, "final_logit_softcapping": None}
    anchor_first = kind != "dflash2" and header.boolean("dflash.sample_from_anchor", kind == "dspark")
    taps = header.integers("dflash.target_layers")
    with (
        Model(target_path, n_ubatch=64) as target,
        Model(path, other=target, n_batch=64, n_ubatch=64, **PRECISE) as drafter,
    ):
        core_target = _core.LlamaTarget(target.context, 1 << 20, taps, 1)
        core = _core.LlamaDrafter(drafter.context, getattr(_core.Kind, kind), anchor_first)
        core_target.decode(PROMPT, 0, 1)
        features = core_target.features(0, len(PROMPT))
        core.inject(features, 0)
        if name in PACKED:
            assert len(core.draft(123, len(PROMPT), core.n_max)) == core.n_max
            return
        expected = reference.Drafter(arrays | unpacked(path, name), config, *tables(path, target_path))
        expected.inject(features)
        if kind == "dflash2":
            check_block(core, expected, 123, len(PROMPT), core.n_max)
        else:
            rows = expected.rows(123, core.n_max, anchor_first=anchor_first)
            np.testing.assert_allclose(core.rows(123, len(PROMPT), core.n_max), rows, atol=5e-3)
            assert core.draft(123, len(PROMPT), core.n_max) == rows.argmax(axis=1).tolist()
