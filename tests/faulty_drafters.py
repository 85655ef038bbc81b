"""What can be wrong with a drafter's file, or between the two files of a pair, and the words that tell."""

from __future__ import annotations

import math

import gguf_bytes as raw
from faults import Case, reduced, retyped, tokens, with_tensor, without
from gguf_parts import f32, flags, i32s

u32, text = raw.u32, raw.string
D = "dflash."

DRAFTERS: dict[str, Case] = {
    # which file is which
    "swapped": Case("the target and the drafter are swapped", arch="swapped"),
    "two drafters": Case("the target is itself a drafter (target dflash)", arch="dflash"),
    "two targets": Case(
        "the drafter is not a DFlash file (drafter `qwen3`)", keys={"general.architecture": text("qwen3")}
    ),
    "a fork": Case("or pulsar and does not load in llama.cpp", keys={"general.architecture": text("dflash-draft")}),
    "a fork for Gemma": Case(
        "was written by lucebox and does not load", keys={"general.architecture": text("gemma4-dflash-draft")}
    ),
    "another fork": Case("by a fork of llama.cpp and does", keys={"general.architecture": text("x-dflash-draft")}),
    "a fork for DSpark": Case("before DSpark was merged", keys={"general.architecture": text("dspark")}),
    "no GGUF": Case("`: not a GGUF file", edit="text", check_code=1),
    "truncated target": Case("target.gguf`: the tensor data is truncated", target_edit="cut", check_code=1),
    "truncated drafter": Case("drafter.gguf`: the tensor data is truncated", edit="cut", check_code=1),
    # the two against each other
    "hidden sizes": Case("hidden sizes differ (target 64, drafter 128)", drafter={"hidden": 128}),
    "vocabularies": Case("vocabularies differ in length (target 320, drafter 319)", drafter={"vocab": 319}),
    "tokens": Case("the tokenizers differ, first at token 300", keys={"tokenizer.ggml.tokens": tokens(t300="other")}),
    "far taps": Case("the drafter reads layers that the target does not have", drafter={"taps": (0, 4, 5)}),
    "the last layer": Case("does not expose the output of the last layer", drafter={"taps": (0, 1, 3)}),
    "an architecture": Case("does not expose the layer inputs of this target's", arch="gemma3"),
    "mask is the end": Case("mask token is the target's end token", drafter={"mask": 1}),
    "mask is padding": Case("mask token is the target's padding token", drafter={"mask": 5}),
    "another head": Case("the drafter has embeddings but no head", edit=with_tensor("token_embd.weight", (64, 320))),
    # the drafter's keys
    "hidden size": Case("`dflash.embedding_length` is missing", keys={D + "embedding_length": None}),
    "no hidden size": Case(
        "`dflash.embedding_length` is not within", keys={D + "embedding_length": u32(0)}, several=True
    ),
    "layers": Case("`dflash.block_count` is missing", keys={D + "block_count": None}),
    "513 layers": Case("`dflash.block_count` is not within 1 to 512", keys={D + "block_count": u32(513)}),
    "context": Case("`dflash.context_length` is missing", keys={D + "context_length": None}),
    "feed-forward": Case("`dflash.feed_forward_length` is missing", keys={D + "feed_forward_length": None}),
    "no feed-forward": Case(
        "`dflash.feed_forward_length` is not within", keys={D + "feed_forward_length": u32(0)}, several=True
    ),
    "heads": Case("`dflash.attention.head_count` is missing", keys={D + "attention.head_count": None}),
    "a divisor": Case("`dflash.attention.head_count_kv` does not divide", keys={D + "attention.head_count_kv": u32(3)}),
    "no key heads": Case(
        "head_count_kv` is not one number above 0", keys={D + "attention.head_count_kv": u32(0)}, several=True
    ),
    "values": Case("the drafter's heads are not as long for keys (16)", keys={D + "attention.value_length": u32(8)}),
    "an odd turn": Case("`dflash.rope.dimension_count` is not an even", keys={D + "rope.dimension_count": u32(7)}),
    "a type": Case("layer_norm_rms_epsilon` is not of the type", keys={D + "attention.layer_norm_rms_epsilon": u32(1)}),
    "epsilon": Case(
        "`dflash.attention.layer_norm_rms_epsilon` is missing", keys={D + "attention.layer_norm_rms_epsilon": None}
    ),
    "no epsilon": Case(
        "layer_norm_rms_epsilon` is not within", keys={D + "attention.layer_norm_rms_epsilon": f32(0.0)}
    ),
    "a base": Case("`dflash.rope.freq_base` is not within", keys={D + "rope.freq_base": f32(math.nan)}),
    "a scaling": Case("`dflash.rope.scaling.type` is none of", keys={D + "rope.scaling.type": text("su")}),
    "a factor": Case("`dflash.rope.scaling.factor` is not within", keys={D + "rope.scaling.factor": f32(-1.0)}),
    "another width": Case("`dflash.embedding_length_out` is not", keys={D + "embedding_length_out": u32(7)}),
    "further layers": Case("`dflash.nextn_predict_layers` leaves", keys={D + "nextn_predict_layers": u32(1)}),
    "experts in use": Case("`dflash.expert_used_count` is not within", keys={D + "expert_used_count": u32(2)}),
    "too many experts": Case("`dflash.expert_count` is not within", keys={D + "expert_count": u32(1025)}),
    "activation": Case("`dflash.hidden_activation` is none of silu", keys={D + "hidden_activation": text("relu")}),
    "alignment": Case("the drafter's `general.alignment` is below 32", edit="alignment"),
    "causality": Case("`dflash.attention.causal` is not of the type", keys={D + "attention.causal": u32(0)}),
    "anchor": Case("`dflash.sample_from_anchor` is not of the type", keys={D + "sample_from_anchor": u32(1)}),
    # the block, the taps, the mask
    "block": Case("`dflash.block_size` is missing", keys={D + "block_size": None}),
    "block of one": Case("`dflash.block_size` is not within 2 to 1024 (drafter 1)", drafter={"block": 1}),
    "block in words": Case("`dflash.block_size` is not of the type", keys={D + "block_size": text("eight")}),
    "a long block": Case("`dflash.block_size` makes a graph", drafter={"block": 200}, kind="dspark"),
    "taps": Case("`dflash.target_layers` is missing", keys={D + "target_layers": None}),
    "no taps": Case("`dflash.target_layers` does not have 1 to 512", keys={D + "target_layers": i32s()}, several=True),
    "a tap twice": Case("`dflash.target_layers` names a layer twice", drafter={"taps": (1, 1, 2)}),
    "a tap below 0": Case("`dflash.target_layers` is not within 0", drafter={"taps": (-2, 1, 2)}),
    "mask": Case("`tokenizer.ggml.mask_token_id` is missing", keys={"tokenizer.ggml.mask_token_id": None}),
    "a far mask": Case("`tokenizer.ggml.mask_token_id` is not within", drafter={"mask": 320}),
    # windows and sections
    "pattern": Case(
        "`dflash.attention.sliding_window_pattern` is missing", keys={D + "attention.sliding_window": u32(8)}
    ),
    "no layer slides": Case(
        "sliding_window_pattern` names no layer (drafter",
        keys={D + "attention.sliding_window": u32(8), D + "attention.sliding_window_pattern": flags(False)},
    ),
    "a short pattern": Case(
        "sliding_window_pattern` does not have 1 entries",
        keys={D + "attention.sliding_window": u32(8), D + "attention.sliding_window_pattern": flags(True, True)},
    ),
    "a wide window": Case(
        "`dflash.attention.sliding_window` is not within",
        keys={D + "attention.sliding_window": u32(1 << 30), D + "attention.sliding_window_pattern": flags(True)},
    ),
    "three sections": Case(
        "dimension_sections` does not have 4 entries", keys={D + "rope.dimension_sections": i32s(8, 0, 0)}
    ),
    "empty sections": Case(
        "dimension_sections` does not cover half", keys={D + "rope.dimension_sections": i32s(0, 0, 0, 8)}
    ),
    # DFlash 2's own
    "rank": Case("`dflash.selector_rank` is missing", keys={D + "selector_rank": None}),
    "candidates": Case("`dflash.selector_top_k` is not within", keys={D + "selector_top_k": u32(0)}),
    "a wide lattice": Case("`dflash.selector_top_k` is too large", drafter={"top_k": 8}),
    "too many candidates": Case(
        "`dflash.selector_top_k` is more than its", keys={D + "selector_top_k": u32(321)}, several=True
    ),
    "groups": Case("`dflash.conv_group_size` does not divide", keys={D + "conv_group_size": u32(7)}, several=True),
    "kernel": Case("`dflash.conv_kernel_size` makes a graph", drafter={"conv": 64}),
    "no selector": Case("it is an incomplete DFlash 2", keys={D + "selector_top_k": u32(4)}, kind="dflash"),
    # a part of the vocabulary
    "no own head": Case("but has no head of its own", kind="dspark", edit=reduced(*range(320), head=False)),
    "a row outside": Case("tensor `d2t` names a row that is not within", kind="dspark", edit=reduced(*range(319), 320)),
    "a row below 0": Case("within 0 to 319 (drafter -1)", kind="dflash", edit=reduced(*range(319), -1)),
    "rows of I32": Case(
        "tensor `d2t` cannot be computed with: I64", kind="dflash", edit=reduced(*range(320), kind="I32")
    ),
    "rows of a selector": Case("which DFlash 2's code books cannot", edit=reduced(*range(320))),
    # the drafter's tensors
    "a tensor": Case("lacks 1 of its tensors, first `enc.output_norm.weight`", edit=without("enc.output_norm.weight")),
    "markov": Case("first `markov_w2.weight`", kind="dspark", edit=without("markov_w2.weight")),
    "codes": Case("first `selector_successor.weight`", edit=without("selector_successor.weight")),
    "a layer": Case("first `blk.0.attn_k.weight`", kind="dflash", edit=without("blk.0.attn_k.weight")),
    "one too many": Case("tensors that llama.cpp does not load", edit=with_tensor("blk.0.attn_q.bias", (64,))),
    "a shape": Case("tensor `fc.weight` is not 192 (taps x hidden)", edit=with_tensor("fc.weight", (64, 64))),
    "a matrix's type": Case("tensor `fc.weight` cannot be computed with", edit=retyped("fc.weight", "I32")),
    "a norm's type": Case("tensor `output_norm.weight` cannot be", edit=retyped("output_norm.weight", "F16")),
    "a kernel's type": Case("tensor `blk.0.attn_conv_base` cannot be", edit=retyped("blk.0.attn_conv_base", "BF16")),
    "codes' type": Case("`selector_predecessor.weight` cannot be", edit=retyped("selector_predecessor.weight", "F64")),
    "markov's type": Case("`markov_w1.weight` cannot be", kind="dspark", edit=retyped("markov_w1.weight", "I8")),
}
