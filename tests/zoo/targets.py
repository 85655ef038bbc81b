"""Tiny targets that the rows fit: a Hugging Face folder with tokenizer, embeddings and head, and a GGUF.

Comes in: a target's name and sizes. Goes out: files. The GGUF is ``tiny.write_target``'s Qwen3 or Llama under the
architecture's own name, so only ``qwen3`` and ``llama`` run in libllama; pass ``arch`` to run another row.
"""

# ruff: noqa: A002 - `type` is what GGUF calls it

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import tiny
from tiny_vocab import tokens

from zoo import tokenizers
from zoo.files import floats, write_json, write_tensors
from zoo.parts import TARGET_SEED, Dims, target_tables

if TYPE_CHECKING:
    from pathlib import Path

EMBEDDINGS = "model.embed_tokens.weight"
INNER = "model.language_model.embed_tokens.weight"
GLM_NAMES = {0: "[gMASK]", 1: "<|endoftext|>", 2: "<|observation|>", 4: "<|user|>"}
MROPE = {
    "mrope_interleaved": True,
    "mrope_section": [3, 3, 2],
    "partial_rotary_factor": 0.25,
    "rope_theta": 10000000,
    "rope_type": "default",
}


@dataclass(frozen=True, slots=True)
class Target:
    """One target: its folder's name, labels, what its config adds, where its tables are."""

    folder: str
    label: str
    model_type: str
    nested: bool = False
    tied: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    embeddings: str = EMBEDDINGS
    shards: int = 1
    renamed: dict[int, str] = field(default_factory=dict)


_EXPERTS = {"moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2}

TARGETS = {
    "qwen3": Target("Qwen3-4B", "Qwen3ForCausalLM", "qwen3"),
    "qwen3-tied": Target("Qwen3-0.6B", "Qwen3ForCausalLM", "qwen3", tied=True),
    "llama": Target("Llama-3.1-8B-Instruct", "LlamaForCausalLM", "llama"),
    "qwen35": Target(
        "Qwen3.6-27B",
        "Qwen3_5ForConditionalGeneration",
        "qwen3_5",
        nested=True,
        config={"rope_parameters": MROPE},
        embeddings=INNER,
    ),
    "qwen35moe": Target(
        "Qwen3.6-35B-A3B",
        "Qwen3_5MoeForConditionalGeneration",
        "qwen3_5_moe",
        nested=True,
        config={"rope_parameters": MROPE} | _EXPERTS,
        embeddings=INNER,
    ),
    "gemma4": Target(
        "gemma-4-31B-it",
        "Gemma4ForConditionalGeneration",
        "gemma4",
        nested=True,
        tied=True,
        config={"final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh"},
        embeddings=INNER,
    ),
    "mimo2": Target("MiMo-V2.5-Pro", "MiMoV2ForCausalLM", "mimo_v2", config={"partial_rotary_factor": 0.5}, shards=2),
    "nemotron_h": Target(
        "NVIDIA-Nemotron-3.5-Lightning",
        "NemotronHForCausalLM",
        "nemotron_h",
        config={"hybrid_override_pattern": "M*-*", "num_experts_per_tok": 2},
        embeddings="backbone.embeddings.weight",
    ),
    "minimax-m2": Target("MiniMax-M2.5", "MiniMaxM2ForCausalLM", "minimax_m2", config=_EXPERTS),
    "deepseek4": Target(
        "DeepSeek-V4-Flash", "DeepseekV4ForCausalLM", "deepseek_v4", config={"hc_mult": 4}, embeddings="embed.weight"
    ),
    "lfm2": Target("LFM2.5-1.2B-Instruct", "Lfm2ForCausalLM", "lfm2", tied=True),
    "bailingmoe3": Target(
        "Ling-3.0-flash",
        "BailingMoeV3ForCausalLM",
        "bailing_moe_v3",
        config=_EXPERTS,
        embeddings="model.word_embeddings.weight",
    ),
    "muse-glimmer": Target(
        "Muse-Glimmer-30B", "MuseGlimmerForConditionalGeneration", "muse_glimmer", nested=True, embeddings=INNER
    ),
    "glm5-next": Target(
        "GLM-5.3-Flash",
        "Glm5NextForConditionalGeneration",
        "glm5_next",
        nested=True,
        config={"num_key_value_heads": 4},
        embeddings=INNER,
        renamed=GLM_NAMES,
    ),
}
GGUF_ARCHS = {"qwen3-tied": "qwen3", "nemotron_h": "nemotron_h_moe"}


def target_config(name: str, dims: Dims) -> dict[str, Any]:
    """The target's ``config.json``, its text part nested where its authors nest it."""
    target = TARGETS[name]
    text = {
        "bos_token_id": 0,
        "eos_token_id": 1,
        "head_dim": dims.head_dim,
        "hidden_size": dims.hidden,
        "intermediate_size": dims.ffn,
        "max_position_embeddings": dims.context,
        "model_type": f"{target.model_type}_text" if target.nested else target.model_type,
        "num_attention_heads": dims.heads,
        "num_hidden_layers": dims.target_layers,
        "num_key_value_heads": dims.kv_heads,
        "pad_token_id": 0 if name == "gemma4" else 5,
        "rms_norm_eps": dims.eps,
        "rope_theta": 10000.0,
        "tie_word_embeddings": target.tied,
        "vocab_size": dims.vocab,
    } | target.config
    if "rope_parameters" in text:
        del text["rope_theta"]
    outer = {"architectures": [target.label], "dtype": "bfloat16", "transformers_version": "5.13.0"}
    if not target.nested:
        return outer | text
    return outer | {
        "model_type": target.model_type,
        "text_config": text,
        "tie_word_embeddings": target.tied,
        "vision_config": {"depth": 1, "hidden_size": 32},
    }


def write_folder(name: str, folder: Path, dims: Dims) -> Path:
    """Write the target's folder: config, tokenizer, and of its weights the embeddings and the head."""
    target = TARGETS[name]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", target_config(name, dims))
    files = tokenizers.gemma(dims.vocab) if name == "gemma4" else tokenizers.byte_level(dims.vocab, target.renamed)
    for file, value in files.items():
        write_json(folder / file, value)
    tables = floats(target_tables(dims))
    tensors = {target.embeddings: tables["embed_tokens.weight"]}
    if not target.tied:
        tensors["lm_head.weight"] = tables["lm_head.weight"]
    if target.shards == 1:
        write_tensors(folder / "model.safetensors", tensors)
        return folder
    weight_map = {}
    for i, (tensor, stored) in enumerate(tensors.items()):
        part = f"model_{i}.safetensors"
        write_tensors(folder / part, {tensor: stored})
        weight_map[tensor] = part
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    return folder


def write_gguf(
    name: str, path: Path, dims: Dims, *, type: str = "BF16", arch: str | None = None, **options: Any
) -> Path:
    """Write the target's GGUF with the same embeddings and head; ``options`` are those of `tiny.write_gguf`."""
    target = TARGETS[name]
    arch = arch or GGUF_ARCHS.get(name, name)
    keys = {f"{arch}.rope.dimension_sections": [3, 3, 2, 0]} if "rope_parameters" in target.config else {}
    if target.renamed:
        names = tiny_tokens(dims.vocab, target.renamed)
        keys["tokenizer.ggml.tokens"] = names
    sizes = replace(dims, layers=dims.target_layers, kind="dflash")
    fields = {name: getattr(sizes, name) for name in Dims.__slots__}
    extra = keys | options.pop("extra_keys", {})
    return tiny.write_target(
        path, arch, type, seed=TARGET_SEED, tied=target.tied, extra_keys=extra, **options, **fields
    )


def tiny_tokens(vocab: int, renamed: dict[int, str]) -> list[str]:
    """The tokens of ``tiny_vocab`` with special ones renamed."""
    return [renamed.get(i, token) for i, token in enumerate(tokens(vocab))]
