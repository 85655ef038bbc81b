"""Hugging Face's names of target architectures, and llama.cpp's.

Comes in: a parsed ``config.json``. Goes out: one row of the table. Architectures whose layer inputs libllama does
not expose are here too, so that they are told by name.
Source: the classes registered in llama.cpp conversion/*.py and gguf-py's MODEL_ARCH_NAMES (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

BPE: Final = "bpe"
QWEN: Final = "qwen"
LLAMA: Final = "llama"
GEMMA4: Final = "gemma4"
NEMOTRON_H: Final = "nemotron_h"
MUSE_GLIMMER: Final = "muse_glimmer"
MINIMAX_01: Final = "minimax_01"
GLM: Final = "glm"
GLM4: Final = "glm4"
REFUSED: Final = "refused"
"""The rule of architectures that libllama cannot feed a drafter from, and whose tokenizers need a way of their own."""

PASS_THE_GGUF: Final = "pass the target's GGUF instead of its folder"


@dataclass(frozen=True, slots=True)
class Architecture:
    """``name`` is llama.cpp's; ``vocabulary`` names the rule by which its converter writes the tokenizer."""

    name: str
    vocabulary: str


_ROWS: Final = (
    # exposed
    ("llama", LLAMA, "LlamaForCausalLM LLaMAForCausalLM MistralForCausalLM MixtralForCausalLM LlamaModel"),
    ("llama", LLAMA, "VLlama3ForCausalLM LlavaForConditionalGeneration VoxtralForConditionalGeneration"),
    ("llama", LLAMA, "IQuestCoderForCausalLM"),
    ("llama-embed", LLAMA, "LlamaBidirectionalModel"),
    ("qwen3", QWEN, "Qwen3ForCausalLM Qwen3Model StepVLForConditionalGeneration"),
    ("qwen3moe", BPE, "Qwen3MoeForCausalLM"),
    ("qwen3next", BPE, "Qwen3NextForCausalLM"),
    ("qwen35", BPE, "Qwen3_5ForConditionalGeneration Qwen3_5ForCausalLM MiniCPMV4_6ForConditionalGeneration"),
    ("qwen35moe", BPE, "Qwen3_5MoeForConditionalGeneration Qwen3_5MoeForCausalLM"),
    ("gpt-oss", BPE, "GptOssForCausalLM"),
    ("gemma4", GEMMA4, "Gemma4ForConditionalGeneration Gemma4ForCausalLM Gemma4UnifiedForConditionalGeneration"),
    ("minimax-01", MINIMAX_01, "MiniMaxText01ForCausalLM MiniMaxM1ForCausalLM"),
    ("minimax-m2", BPE, "MiniMaxM2ForCausalLM"),
    ("mimo2", BPE, "MiMoV2FlashForCausalLM MiMoV2ForCausalLM"),
    ("nemotron_h", NEMOTRON_H, "NemotronHForCausalLM"),
    ("nemotron_h_moe", NEMOTRON_H, "NemotronHPuzzleForCausalLM"),
    ("deepseek4", BPE, "DeepseekV4ForCausalLM"),
    ("lfm2", BPE, "Lfm2ForCausalLM LFM2ForCausalLM Lfm2VlForConditionalGeneration"),
    ("lfm2moe", BPE, "Lfm2MoeForCausalLM"),
    ("hunyuan_vl", BPE, "HunYuanVLForConditionalGeneration"),
    ("hunyuan-dense", BPE, "HunYuanDenseV1ForCausalLM"),
    ("bailingmoe3", BPE, "BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration"),
    ("nanbeige", LLAMA, "NanbeigeForCausalLM"),
    ("muse-glimmer", MUSE_GLIMMER, "MuseGlimmerForConditionalGeneration"),
    # not exposed
    ("qwen2", QWEN, "Qwen2ForCausalLM Qwen2Model Qwen2AudioForConditionalGeneration KORMoForCausalLM"),
    ("qwen2moe", BPE, "Qwen2MoeForCausalLM"),
    ("qwen2vl", QWEN, "Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen2_5OmniModel"),
    ("qwen3vl", REFUSED, "Qwen3VLForConditionalGeneration Qwen3ASRForConditionalGeneration"),
    ("qwen3vlmoe", REFUSED, "Qwen3VLMoeForConditionalGeneration Qwen3OmniMoeForConditionalGeneration"),
    ("qwen4exp", BPE, "Qwen4ExpForConditionalGeneration Qwen4ExpForCausalLM"),
    ("gemma", REFUSED, "GemmaForCausalLM"),
    ("gemma2", REFUSED, "Gemma2ForCausalLM"),
    ("gemma3", REFUSED, "Gemma3ForCausalLM Gemma3ForConditionalGeneration"),
    ("gemma3n", REFUSED, "Gemma3nForCausalLM Gemma3nForConditionalGeneration"),
    ("deepseek", REFUSED, "DeepseekForCausalLM"),
    ("deepseek2", BPE, "DeepseekV2ForCausalLM DeepseekV3ForCausalLM KimiVLForConditionalGeneration"),
    ("deepseek2", BPE, "KimiK25ForConditionalGeneration YoutuForCausalLM"),
    ("deepseek2", GLM, "Glm4MoeLiteForCausalLM"),
    ("deepseek32", BPE, "DeepseekV32ForCausalLM"),
    ("glm4", GLM4, "Glm4ForCausalLM Glm4vForConditionalGeneration"),
    ("glm4moe", GLM, "Glm4MoeForCausalLM Glm4vMoeForConditionalGeneration"),
    ("glm-dsa", GLM, "GlmMoeDsaForCausalLM"),
    ("glm5-next", GLM, "Glm5NextForConditionalGeneration"),
    ("kimi-linear", REFUSED, "KimiLinearForCausalLM KimiLinearModel"),
    ("kimi-k3", REFUSED, "KimiK3ForConditionalGeneration"),
    ("laguna", REFUSED, "LagunaForCausalLM"),
    ("llama4", BPE, "Llama4ForCausalLM Llama4ForConditionalGeneration"),
    ("minimax-m3", BPE, "MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration"),
    ("mistral3", REFUSED, "Mistral3ForConditionalGeneration Ministral3ForCausalLM"),
    ("bailingmoe", BPE, "BailingMoeForCausalLM"),
    ("bailingmoe2", BPE, "BailingMoeV2ForCausalLM SarvamMoEForCausalLM"),
    ("ernie4_5", REFUSED, "Ernie4_5ForCausalLM Ernie4_5_ForCausalLM"),
    ("ernie4_5-moe", REFUSED, "Ernie4_5_MoeForCausalLM"),
    ("minicpm", REFUSED, "MiniCPMForCausalLM"),
    ("minicpm3", REFUSED, "MiniCPM3ForCausalLM"),
    ("smollm3", LLAMA, "SmolLM3ForCausalLM"),
    ("phi3", REFUSED, "Phi3ForCausalLM"),
    ("granite", LLAMA, "GraniteForCausalLM"),
    ("granitemoe", LLAMA, "GraniteMoeForCausalLM GraniteMoeSharedForCausalLM"),
    ("granitehybrid", REFUSED, "GraniteMoeHybridForCausalLM BambaForCausalLM"),
    ("falcon-h1", REFUSED, "FalconH1ForCausalLM"),
    ("exaone4", REFUSED, "Exaone4ForCausalLM Exaone4_5_ForConditionalGeneration"),
    ("exaone-moe", REFUSED, "ExaoneMoEForCausalLM ExaoneMoeForCausalLM"),
    ("hunyuan-moe", REFUSED, "HunYuanMoEV1ForCausalLM"),
    ("hy_v3", BPE, "HYV3ForCausalLM"),
    ("hy_v4", BPE, "HYV4ForCausalLM"),
    ("seed_oss", BPE, "SeedOssForCausalLM"),
    ("olmo2", BPE, "Olmo2ForCausalLM Olmo3ForCausalLM"),
    ("step35", BPE, "Step3p5ForCausalLM Step3p7ForConditionalGeneration"),
    ("cohere2", BPE, "Cohere2ForCausalLM"),
    ("dots1", BPE, "Dots1ForCausalLM"),
    ("arcee", LLAMA, "ArceeForCausalLM"),
    ("afmoe", LLAMA, "AfmoeForCausalLM"),
    ("apertus", LLAMA, "ApertusForCausalLM"),
    ("nemotron", REFUSED, "NemotronForCausalLM"),
)

ARCHITECTURES: Final[dict[str, Architecture]] = {
    name: Architecture(arch, rule) for arch, rule, names in _ROWS for name in names.split()
}
"""``architectures[0]`` of a config -> its row."""

MODEL_TYPES: Final[dict[str, str]] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "gemma4": "Gemma4ForConditionalGeneration",
    "gemma4_text": "Gemma4ForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "muse_glimmer": "MuseGlimmerForConditionalGeneration",
}
"""``model_type`` -> architecture, for a config that names none."""

TOP_LEVEL: Final = frozenset(
    {
        "StepVLForConditionalGeneration",
        "Exaone4_5_ForConditionalGeneration",
        "Step3p7ForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
    }
)
"""Architectures whose name at the top counts, whatever the text part calls itself."""

MOE_MARK: Final = {"nemotron_h": ("num_experts_per_tok", "nemotron_h_moe")}
"""Architecture -> the config key that makes it a mixture of experts, and what llama.cpp calls it then."""


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """The row of a target's config, as read; raises `CheckpointError` naming an unknown architecture."""
    name = _named(config)
    row = ARCHITECTURES.get(name)
    if row is None:
        raise CheckpointError(
            f"the target's architecture `{ascii(name)[1:-1]}` is not known here",
            remedy=f"{PASS_THE_GGUF}, if llama.cpp converts it",
        )
    key, other = MOE_MARK.get(row.name, ("", ""))
    return Architecture(other, row.vocabulary) if key in merged(config) else row


def merged(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with its text part laid over the top level, as llama.cpp's converter reads it."""
    flat = dict(config)
    for part in ("text_config", "llm_config", "lm_config", "language_config"):
        flat |= _part(config, part)
    return flat | _part(_part(config, "thinker_config"), "text_config")


def _named(config: Mapping[str, Any]) -> str:
    top = _first(config.get("architectures"))
    inner = _first(_part(config, "text_config").get("architectures"))
    name = top if top in TOP_LEVEL else inner or top
    if name is None:
        model_type = config.get("model_type")
        name = MODEL_TYPES.get(model_type, model_type) if isinstance(model_type, str) else None
    if name is None:
        raise CheckpointError("the target's config.json names no architecture", remedy=PASS_THE_GGUF)
    return name


def _first(names: object) -> str | None:
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _part(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}
