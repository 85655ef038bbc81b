"""The ``dflash.*`` keys of a drafter's file, in the order in which llama.cpp's converter writes them.

Comes in: a specification. Goes out: keys. ``attention.causal``, ``block_size`` and ``rope.freq_base`` are
always stated, because llama.cpp guesses them when they are absent.
Source: llama.cpp conversion/base.py, conversion/qwen.py (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_gguf.convert.encode import KeyValue, array, scalar
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.convert.spec import DrafterSpec, Rope


def model_keys(spec: DrafterSpec, file_type: int, *, mrope: bool) -> tuple[KeyValue, ...]:
    """Every key between ``general.*`` and the tokenizer; ``mrope``: the target has sections of positions."""
    return (*_shape_keys(spec), scalar(Keys.FILE_TYPE, "uint32", file_type), *_dflash_keys(spec, mrope=mrope))


def _shape_keys(spec: DrafterSpec) -> Iterator[KeyValue]:
    yield scalar(Keys.BLOCK_COUNT, "uint32", spec.n_layers)
    yield scalar(Keys.CONTEXT_LENGTH, "uint32", spec.context_length)
    yield scalar(Keys.EMBEDDING_LENGTH, "uint32", spec.hidden_size)
    yield scalar(Keys.FEED_FORWARD_LENGTH, "uint32", spec.feed_forward)
    yield scalar(Keys.HEAD_COUNT, "uint32", spec.n_heads)
    yield scalar(Keys.HEAD_COUNT_KV, "uint32", spec.n_kv_heads)
    if not spec.causal:
        yield scalar(Keys.CAUSAL, "bool", False)
    yield from _rope_keys(spec.rope)
    yield scalar(Keys.RMS_EPS, "float32", spec.rms_eps)
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
    )
    for name, type_name, value in rows:
        if value is not None:
            yield scalar(f"dflash.rope.scaling.{name}", type_name, value)
    yield scalar(Keys.ROPE_FREQ_BASE, "float32", rope.base)


def _dflash_keys(spec: DrafterSpec, *, mrope: bool) -> Iterator[KeyValue]:
    yield scalar(Keys.BLOCK_SIZE, "uint32", spec.block_size)
    if spec.selector is not None:
        yield scalar(Keys.CONV_KERNEL_SIZE, "uint32", spec.selector.conv_kernel)
        yield scalar(Keys.CONV_GROUP_SIZE, "uint32", spec.selector.conv_group)
        yield scalar(Keys.SELECTOR_RANK, "uint32", spec.selector.rank)
        yield scalar(Keys.SELECTOR_TOP_K, "uint32", spec.selector.top_k)
    for key, value in (
        (Keys.LOGIT_SCALE, spec.logit_scale),
        (Keys.SOFTCAP, spec.softcap),
        (Keys.EMBEDDING_SCALE, spec.embedding_scale),
    ):
        if value is not None:
            yield scalar(key, "float32", value)
    yield array(Keys.TARGET_LAYERS, "int32", spec.target_layers)
    if spec.window is not None:
        yield scalar(Keys.SLIDING_WINDOW, "uint32", spec.window.size)
        yield array(Keys.SLIDING_WINDOW_PATTERN, "bool", spec.window.layers)
    if spec.causal:
        yield scalar(Keys.CAUSAL, "bool", True)
    if mrope:
        # The draft ropes on the temporal axis only: every frequency belongs to the first section.
        yield array(Keys.ROPE_DIMENSION_SECTIONS, "int32", (spec.head_dim // 2, 0, 0, 0))
