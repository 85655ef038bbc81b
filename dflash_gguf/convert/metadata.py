"""The ``dflash.*`` keys of a drafter's file, in the order in which llama.cpp's converter writes them.

Comes in: a specification. Goes out: keys. ``attention.causal``, ``block_size``, ``rope.freq_base`` and, for DSpark,
``sample_from_anchor`` and ``has_confidence_head`` are always stated: llama.cpp guesses them when they are absent.
Source: llama.cpp conversion/base.py, conversion/qwen.py (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.encode import KeyValue, array, scalar
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.convert.families.rules import Stages
    from dflash_gguf.convert.rope import Rope
    from dflash_gguf.convert.spec import DrafterSpec


SQRT_SOFTPLUS: Final = 4
"""llama.cpp's number for the gating of DeepSeek-V4's experts."""


def model_keys(spec: DrafterSpec, file_type: int, *, mrope: bool) -> tuple[KeyValue, ...]:
    """Every key between ``general.*`` and the tokenizer; ``mrope``: the target has sections of positions."""
    return (
        *_shape_keys(spec),
        scalar(Keys.FILE_TYPE, "uint32", file_type),
        *_dflash_keys(spec, mrope=mrope),
        *_layout_keys(spec),
        *_anchor_keys(spec),
    )


def _shape_keys(spec: DrafterSpec) -> Iterator[KeyValue]:
    yield scalar(Keys.BLOCK_COUNT, "uint32", spec.n_layers)
    yield scalar(Keys.CONTEXT_LENGTH, "uint32", spec.context_length)
    yield scalar(Keys.EMBEDDING_LENGTH, "uint32", spec.hidden_size)
    if spec.stages is None:
        yield scalar(Keys.FEED_FORWARD_LENGTH, "uint32", spec.feed_forward)
    yield scalar(Keys.HEAD_COUNT, "uint32", spec.n_heads)
    yield scalar(Keys.HEAD_COUNT_KV, "uint32", spec.n_kv_heads)
    if spec.never_causal:
        yield scalar(Keys.CAUSAL, "bool", False)
    yield from _rope_keys(spec.rope)
    yield scalar(Keys.RMS_EPS, "float32", spec.rms_eps)
    if spec.stages is not None:
        yield scalar("dflash.expert_count", "uint32", spec.stages.n_experts)
        yield scalar("dflash.expert_used_count", "uint32", spec.stages.n_used)
        yield scalar("dflash.expert_gating_func", "uint32", SQRT_SOFTPLUS)
    yield scalar(Keys.KEY_LENGTH, "uint32", spec.head_dim)
    yield scalar(Keys.VALUE_LENGTH, "uint32", spec.head_dim)


def _rope_keys(rope: Rope) -> Iterator[KeyValue]:
    rows = (
        ("type", "string", rope.scaling),
        ("factor", "float32", rope.factor),
        ("original_context_length", "uint32", rope.original_context),
        ("yarn_ext_factor", "float32", rope.ext_factor),
        ("yarn_attn_factor", "float32", rope.attn_factor),
        ("yarn_beta_fast", "float32", rope.beta_fast),
        ("yarn_beta_slow", "float32", rope.beta_slow),
        ("attn_factor", "float32", rope.magnitude),
    )
    for name, type_name, value in rows:
        if value is not None:
            yield scalar(f"dflash.rope.scaling.{name}", type_name, value)
    yield scalar(Keys.ROPE_FREQ_BASE, "float32", rope.base)


def _dflash_keys(spec: DrafterSpec, *, mrope: bool) -> Iterator[KeyValue]:
    if spec.rope.dimensions is not None:
        yield scalar(Keys.ROPE_DIMENSION_COUNT, "uint32", spec.rope.dimensions)
    if spec.stages is not None:
        yield from _stage_keys(spec.stages, spec)
    if spec.value_scale is not None:
        yield scalar(Keys.VALUE_SCALE, "float32", spec.value_scale)
    yield scalar(Keys.BLOCK_SIZE, "uint32", spec.block_size)
    if spec.selector is not None:
        yield scalar(Keys.CONV_KERNEL_SIZE, "uint32", spec.selector.conv_kernel)
        yield scalar(Keys.CONV_GROUP_SIZE, "uint32", spec.selector.conv_group)
        yield scalar(Keys.SELECTOR_RANK, "uint32", spec.selector.rank)
        yield scalar(Keys.SELECTOR_TOP_K, "uint32", spec.selector.top_k)
    for key, value in (
        (Keys.LOGIT_SCALE, spec.logit_scale),
        (Keys.SOFTCAP, spec.softcap),
        (Keys.EMBEDDING_SCALE, spec.embedding_scale if spec.activation is None else None),
    ):
        if value is not None:
            yield scalar(key, "float32", value)
    yield array(Keys.TARGET_LAYERS, "int32", spec.target_layers)
    if spec.window is not None:
        yield scalar(Keys.SLIDING_WINDOW, "uint32", spec.window.size)
        yield array(Keys.SLIDING_WINDOW_PATTERN, "bool", spec.window.layers)
    if not spec.never_causal:
        yield scalar(Keys.CAUSAL, "bool", spec.causal)
    if mrope:
        # The draft ropes on the temporal axis only: every frequency belongs to the first section.
        yield array(Keys.ROPE_DIMENSION_SECTIONS, "int32", (spec.head_dim // 2, 0, 0, 0))


def _stage_keys(stages: Stages, spec: DrafterSpec) -> Iterator[KeyValue]:
    """DeepSeek-V4's; ``layers`` are arrays of one value a layer."""
    layers = spec.n_layers
    rows: tuple[tuple[str, str, object], ...] = (
        ("attention.q_lora_rank", "uint32", stages.query_rank),
        ("attention.sliding_window", "uint32", stages.window),
        ("expert_feed_forward_length", "uint32", spec.feed_forward),
        ("expert_shared_count", "uint32", stages.n_shared),
        ("expert_weights_scale", "float32", stages.weights_scale),
        ("expert_weights_norm", "bool", stages.weights_norm),
        ("swiglu_clamp_exp", "float32", (stages.clamp,) * layers),
        ("swiglu_clamp_shexp", "float32", (stages.clamp,) * layers),
        ("attention.indexer.head_count", "uint32", stages.indexer[0]),
        ("attention.indexer.key_length", "uint32", stages.indexer[1]),
        ("attention.indexer.top_k", "uint32", stages.indexer[2]),
        ("attention.output_group_count", "uint32", stages.output_groups),
        ("attention.output_lora_rank", "uint32", stages.output_rank),
        ("attention.compress_ratios", "int32", (0,) * layers),
        ("attention.compress_rope_freq_base", "float32", stages.compress_rope_base),
        ("hyper_connection.count", "uint32", stages.streams),
        ("hyper_connection.sinkhorn_iterations", "uint32", stages.sinkhorn_iterations),
        ("hyper_connection.epsilon", "float32", stages.connection_eps),
        ("hash_layer_count", "uint32", 0),
    )
    for name, kind, value in rows:
        key = f"dflash.{name}"
        yield array(key, kind, value) if isinstance(value, tuple) else scalar(key, kind, value)


def _layout_keys(spec: DrafterSpec) -> Iterator[KeyValue]:
    """What a layout states that is not Qwen3's."""
    if spec.activation is None:
        return
    if spec.embedding_scale is not None:
        yield scalar(Keys.EMBEDDING_SCALE, "float32", spec.embedding_scale)
    if spec.attention_scale is not None:
        yield scalar(Keys.ATTENTION_SCALE, "float32", spec.attention_scale)
    yield scalar(Keys.HIDDEN_ACTIVATION, "string", spec.activation)


def _anchor_keys(spec: DrafterSpec) -> Iterator[KeyValue]:
    if spec.anchor_first is not None:
        yield scalar(Keys.SAMPLE_FROM_ANCHOR, "bool", spec.anchor_first)
        yield scalar(Keys.HAS_CONFIDENCE_HEAD, "bool", bool(spec.confidence))
