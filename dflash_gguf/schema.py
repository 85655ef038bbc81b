"""The ``dflash`` GGUF key and tensor names, once.

Comes in: nothing. Goes out: constants and the name patterns. Knows nothing of files.
Source: llama.cpp src/llama-arch.cpp, src/models/dflash.cpp and conversion/qwen.py (0.5.0).
"""

from __future__ import annotations

from typing import Final

ARCHITECTURE: Final = "dflash"


class Keys:
    """GGUF metadata keys that a drafter file carries."""

    ARCHITECTURE: Final = "general.architecture"
    NAME: Final = "general.name"
    FILE_TYPE: Final = "general.file_type"
    QUANTIZATION_VERSION: Final = "general.quantization_version"
    IMATRIX_FILE: Final = "quantize.imatrix.file"
    IMATRIX_DATASET: Final = "quantize.imatrix.dataset"
    IMATRIX_ENTRIES: Final = "quantize.imatrix.entries_count"
    IMATRIX_CHUNKS: Final = "quantize.imatrix.chunks_count"
    EXTRA_NAMES: Final = "general.tensor_extra.name"
    EXTRA_PREC_A4: Final = "general.tensor_extra.prec_a4"

    BLOCK_COUNT: Final = "dflash.block_count"
    CONTEXT_LENGTH: Final = "dflash.context_length"
    EMBEDDING_LENGTH: Final = "dflash.embedding_length"
    FEED_FORWARD_LENGTH: Final = "dflash.feed_forward_length"
    HEAD_COUNT: Final = "dflash.attention.head_count"
    HEAD_COUNT_KV: Final = "dflash.attention.head_count_kv"
    KEY_LENGTH: Final = "dflash.attention.key_length"
    VALUE_LENGTH: Final = "dflash.attention.value_length"
    RMS_EPS: Final = "dflash.attention.layer_norm_rms_epsilon"
    CAUSAL: Final = "dflash.attention.causal"
    ATTENTION_SCALE: Final = "dflash.attention.scale"
    VALUE_SCALE: Final = "dflash.attention.value_scale"
    SLIDING_WINDOW: Final = "dflash.attention.sliding_window"
    SLIDING_WINDOW_PATTERN: Final = "dflash.attention.sliding_window_pattern"
    ROPE_FREQ_BASE: Final = "dflash.rope.freq_base"
    ROPE_DIMENSION_COUNT: Final = "dflash.rope.dimension_count"
    ROPE_DIMENSION_SECTIONS: Final = "dflash.rope.dimension_sections"

    BLOCK_SIZE: Final = "dflash.block_size"
    TARGET_LAYERS: Final = "dflash.target_layers"
    SAMPLE_FROM_ANCHOR: Final = "dflash.sample_from_anchor"
    HAS_CONFIDENCE_HEAD: Final = "dflash.has_confidence_head"
    CONV_KERNEL_SIZE: Final = "dflash.conv_kernel_size"
    CONV_GROUP_SIZE: Final = "dflash.conv_group_size"
    SELECTOR_RANK: Final = "dflash.selector_rank"
    SELECTOR_TOP_K: Final = "dflash.selector_top_k"
    LOGIT_SCALE: Final = "dflash.logit_scale"
    SOFTCAP: Final = "dflash.final_logit_softcapping"
    EMBEDDING_SCALE: Final = "dflash.embedding_scale"
    HIDDEN_ACTIVATION: Final = "dflash.hidden_activation"

    HYPER_CONNECTIONS: Final = "dflash.hyper_connection.count"

    TOKENIZER_MODEL: Final = "tokenizer.ggml.model"
    TOKENIZER_PRE: Final = "tokenizer.ggml.pre"
    TOKENS: Final = "tokenizer.ggml.tokens"
    TOKEN_TYPES: Final = "tokenizer.ggml.token_type"
    SCORES: Final = "tokenizer.ggml.scores"
    MERGES: Final = "tokenizer.ggml.merges"
    ADD_BOS: Final = "tokenizer.ggml.add_bos_token"
    ADD_EOS: Final = "tokenizer.ggml.add_eos_token"
    BOS_TOKEN_ID: Final = "tokenizer.ggml.bos_token_id"
    UNKNOWN_TOKEN_ID: Final = "tokenizer.ggml.unknown_token_id"
    SEPARATOR_TOKEN_ID: Final = "tokenizer.ggml.seperator_token_id"
    MASK_TOKEN_ID: Final = "tokenizer.ggml.mask_token_id"
    EOS_TOKEN_ID: Final = "tokenizer.ggml.eos_token_id"
    EOT_TOKEN_ID: Final = "tokenizer.ggml.eot_token_id"
    EOM_TOKEN_ID: Final = "tokenizer.ggml.eom_token_id"
    PADDING_TOKEN_ID: Final = "tokenizer.ggml.padding_token_id"
    CHAT_TEMPLATE: Final = "tokenizer.chat_template"


BLOCK_LIMIT: Final = 1024
"""The longest block that is taken for one; the longest published is 16."""

SELECTOR_MARK: Final = "selector_hidden.weight"
"""The tensor by which llama.cpp recognises DFlash 2."""

MARKOV_MARK: Final = "markov_w1.weight"
"""The tensor by which llama.cpp recognises DSpark."""

CONFIDENCE_HEAD: Final = "conf_proj.weight"
"""The tensor that says how likely DSpark's proposals are right."""

SCALED: Final = (
    "fc.weight", "markov_w2.weight", "output.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight",
    "attn_output.weight", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight",
)  # fmt: skip
"""Tensors beside which llama.cpp looks for a ``.scale``."""
INPUT_SCALED: Final = SCALED[2:]
"""Of these, the ones beside which llama.cpp looks for an ``.input_scale`` (src/llama-model.cpp)."""

TAP_TARGETS: Final[dict[str, bool]] = {
    "llama": False,
    "llama-embed": False,
    "qwen3": False,
    "qwen3moe": False,
    "qwen3next": False,
    "qwen35": False,
    "qwen35moe": False,
    "gpt-oss": False,
    "gemma4": False,
    "minimax-01": False,
    "minimax-m2": False,
    "mimo2": True,
    "nemotron_h": True,
    "nemotron_h_moe": True,
    "deepseek4": True,
    "lfm2": False,
    "lfm2moe": False,
    "hunyuan_vl": False,
    "hunyuan-dense": False,
    "bailingmoe3": False,
    "nanbeige": False,
    "muse-glimmer": False,
}
"""Target architectures whose layer inputs libllama 0.5.0 exposes -> whether the output of the last layer
(tap ``block_count``) is exposed too. Source: the files of src/models that set ``t_layer_inp``. ``qwen4exp``
sets it as well, but to a row wider than its hidden size, which the extractor aborts on."""
