"""What can be wrong with a target's file or with a tokenizer, and the words that tell."""

from __future__ import annotations

import math
import struct

import gguf_bytes as raw
from faults import TOKENS, Case, retyped, tokens, with_tensor, without
from gguf_parts import f32, flag, flags, i32s

u32, text = raw.u32, raw.string
T = "qwen3."

TARGETS: dict[str, Case] = {
    # tokenizers
    "no tokens": Case("the drafter's `tokenizer.ggml.tokens` is missing", keys={"tokenizer.ggml.tokens": None}),
    "no tokenizer": Case("the drafter's `tokenizer.ggml.model` is missing", keys={"tokenizer.ggml.model": None}),
    "no vocabulary": Case("the drafter's file carries no vocabulary", keys={"tokenizer.ggml.model": text("none")}),
    "another tokenizer": Case(
        "the drafter's `tokenizer.ggml.model` is none of", keys={"tokenizer.ggml.model": text("t5")}
    ),
    "twins": Case(
        "the drafter's tokens are not all different",
        keys={"tokenizer.ggml.tokens": tokens(t319=TOKENS[318])},
        target_keys={"tokenizer.ggml.tokens": tokens(t319=TOKENS[318])},
        several=True,
    ),
    "target's tokens": Case(
        "the target's `tokenizer.ggml.tokens` is missing", target_keys={"tokenizer.ggml.tokens": None}
    ),
    "target's model": Case(
        "the target's file carries no vocabulary", target_keys={"tokenizer.ggml.model": text("no_vocab")}
    ),
    "no bytes": Case("vocabulary cannot spell every byte", target_keys={"tokenizer.ggml.model": text("llama")}),
    "bytes": Case(
        "the target's `tokenizer.ggml.tokens` holds text that is not",
        target_keys={"tokenizer.ggml.tokens": tokens(t319=b"\xff")},
    ),
    "blanks": Case(
        "is one that libllama cannot tokenize text by", target_keys={"tokenizer.ggml.pre": text("whitespace")}
    ),
    "merges": Case("the target's `tokenizer.ggml.merges` is missing", target_keys={"tokenizer.ggml.merges": None}),
    "types": Case(
        "`tokenizer.ggml.token_type` has fewer entries", target_keys={"tokenizer.ggml.token_type": i32s(1, 1)}
    ),
    "types' type": Case(
        "`tokenizer.ggml.token_type` is not an array", target_keys={"tokenizer.ggml.token_type": flags(True)}
    ),
    "scores": Case(
        "`tokenizer.ggml.scores` has fewer entries", target_keys={"tokenizer.ggml.scores": raw.numbers("f", 6, 0.5)}
    ),
    "a token's type": Case(
        "`tokenizer.ggml.bos_token_id` is not of the type", target_keys={"tokenizer.ggml.bos_token_id": text("<s>")}
    ),
    "no first token": Case(
        "adds a token to every text that `tokenizer.ggml.bos_token_id` does not name",
        target_keys={"tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.model": text("gemma4")},
    ),
    "short bytes": Case(
        "is marked as a byte but is not written",
        target_keys={"tokenizer.ggml.token_type": i32s(*[6] * 320)},
    ),
    # targets
    "target's layers": Case("`qwen3.block_count` is not within", target_keys={T + "block_count": u32(0)}, several=True),
    "target's heads": Case(
        "`qwen3.attention.head_count_kv` does not divide", target_keys={T + "attention.head_count_kv": u32(3)}
    ),
    "target's values": Case(
        "the target's heads are not as long for keys", target_keys={T + "attention.value_length": u32(8)}
    ),
    "target's turn": Case(
        "`qwen3.rope.dimension_count` is not the length", target_keys={T + "rope.dimension_count": u32(8)}
    ),
    "target's scaling": Case("`qwen3.rope.scaling.type` is none of", target_keys={T + "rope.scaling.type": text("")}),
    "target's epsilon": Case(
        "`qwen3.attention.layer_norm_rms_epsilon` is not within",
        target_keys={T + "attention.layer_norm_rms_epsilon": f32(math.inf)},
    ),
    "target's experts": Case("`qwen3.expert_used_count` is not within", target_keys={T + "expert_used_count": u32(1)}),
    "target's heads vary": Case(
        "do not all have as many key heads", target_keys={T + "attention.head_count_kv": i32s(2, 2, 1, 2)}
    ),
    "target's alignment": Case("the target's `general.alignment` is below 32", target_edit="alignment"),
    "a shard's alignment": Case("the target's `general.alignment` of `", target_edit="shards"),
    "target's norm": Case("`blk.2.ffn_norm.weight` cannot be", target_edit=retyped("blk.2.ffn_norm.weight", "F16")),
    "target's matrix": Case("`blk.0.ffn_up.weight` cannot be", target_edit=retyped("blk.0.ffn_up.weight", "I16")),
    "target's embeddings": Case("`token_embd.weight` cannot be", target_edit=retyped("token_embd.weight", "Q8_1")),
    "gpt-oss": Case(
        "sliding_window_pattern` leaves no layer",
        arch="gpt-oss",
        target_keys={"gpt-oss.attention.sliding_window_pattern": u32(1)},
    ),
    "gpt-oss's sinks": Case(
        "`blk.0.attn_sinks.weight` cannot be", arch="gpt-oss", target_edit=retyped("blk.0.attn_sinks.weight", "BF16")
    ),
    "gemma4": Case(
        "does not leave a sliding layer and a full",
        arch="gemma4",
        target_keys={"gemma4.attention.shared_kv_layers": u32(3)},
    ),
    "gemma4's windows": Case(
        "of a head in a window", arch="gemma4", target_keys={"gemma4.rope.dimension_count_swa": u32(0)}
    ),
    "qwen35": Case(
        "`qwen35.full_attention_interval` is not", arch="qwen35", target_keys={"qwen35.full_attention_interval": u32(0)}
    ),
    "qwen35's groups": Case(
        "`qwen35.ssm.group_count` does not", arch="qwen35", target_keys={"qwen35.ssm.group_count": u32(3)}
    ),
    "qwen35's layers": Case(
        "layer 2 lacks `blk.2.attn_qkv.weight`", arch="qwen35", target_edit=without("blk.2.attn_qkv.weight")
    ),
    "nemotron": Case(
        "`blk.0.ssm_conv1d.bias` is missing", arch="nemotron_h", target_edit=without("blk.0.ssm_conv1d.bias")
    ),
    "minimax": Case(
        "`minimax-m2.expert_gating_func` is missing",
        arch="minimax-m2",
        target_keys={"minimax-m2.expert_gating_func": None},
    ),
    "ling": Case(
        "for which libllama has no graph", arch="bailingmoe3", target_keys={"bailingmoe3.kda.safe_gate": flag(False)}
    ),
    "lfm2": Case("`lfm2.shortconv.l_cache` is not", arch="lfm2", target_keys={"lfm2.shortconv.l_cache": u32(1)}),
    "nanbeige": Case("`nanbeige.num_loops` makes more", arch="nanbeige", target_keys={"nanbeige.num_loops": u32(200)}),
    "deepseek4": Case(
        "hyper_connection.count` is not within",
        arch="deepseek4",
        target_keys={"deepseek4.hyper_connection.count": u32(2)},
    ),
    "deepseek4's tables": Case(
        "`blk.0.ffn_gate_tid2eid.weight` names a row",
        arch="deepseek4",
        target_edit=with_tensor("blk.0.ffn_gate_tid2eid.weight", (2, 320), "I32", struct.pack("<i", 4) * 640),
    ),
}
