"""Random changes to a GGUF that keep it a GGUF: keys dropped, retyped, reset; tensors dropped, retyped, reshaped.

Comes in: the parts of a sound file, and a source of choices. Goes out: changed parts. What is chosen is skewed to what
has ended a process before: zeros, ones, limits of types, lengths that differ by one, types without kernels.
"""

from __future__ import annotations

import struct
from math import prod
from typing import TYPE_CHECKING

import gguf_bytes as raw

from dflash_gguf.ggml_types import GGML_TYPES, tensor_bytes
from dflash_gguf.gguf_parser import SCALARS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gguf_parts import Parts, Tensor

    Take = Callable[[int], int]
    """``take(n)`` is a number from 0 to n - 1."""

STRING, ARRAY = 8, 9
NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    17,
    32,
    63,
    64,
    100,
    127,
    128,
    255,
    256,
    319,
    320,
    321,
    512,
    513,
    1000,
    1024,
    1025,
)
LIMITS = (-1, -2, (1 << 15) - 1, 1 << 16, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-6, 1e30, -1e30, 1e-45, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "",
    "x",
    "none",
    "llama",
    "gpt2",
    "gemma4",
    "t5",
    "yarn",
    "linear",
    "longrope",
    "whitespace",
    "default",
    "gpt-4o",
    "a\0b",
)
ENDS = (
    "attention.sliding_window", "attention.sliding_window_pattern", "attention.key_length", "attention.value_length",
    "attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count", "rope.dimension_count_swa",
    "rope.dimension_sections", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
    "rope.scaling.attn_factor", "rope.freq_base", "rope.freq_base_swa", "expert_count", "expert_used_count",
    "expert_feed_forward_length", "expert_gating_func", "expert_group_count", "expert_group_used_count",
    "nextn_predict_layers", "embedding_length_out", "attention.scale", "attention.value_scale", "logit_scale",
    "final_logit_softcapping", "embedding_scale", "residual_scale", "vocab_size", "attention.causal",
    "hyper_connection.count", "sample_from_anchor", "hidden_activation", "conv_kernel_size", "selector_top_k",
    "attention.temperature_length", "attention.temperature_scale", "attention.recurrent_layers", "pooling_type",
    "leading_dense_block_count", "n_deepstack_layers", "full_attention_interval", "attention.clamp_kqv",
    "attention.max_alibi_bias", "attention.layer_norm_epsilon", "attention.group_norm_groups", "use_parallel_residual",
)  # fmt: skip
"""Keys of any architecture, without its name, that a file may have beside its own."""
OTHERS = (
    "general.alignment", "split.count", "split.no", "tokenizer.ggml.scores", "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_sep_token", "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.precompiled_charsmap", "tokenizer.ggml.suppress_tokens",
    "tokenizer.ggml.add_space_prefix", "tokenizer.chat_template",
)  # fmt: skip
NEW_TENSORS = (
    "d2t", "output.weight", "token_embd.weight", "rope_freqs.weight", "markov_w1.weight", "conf_proj.weight",
    "blk.0.attn_q.bias", "blk.0.attn_q.scale", "blk.0.attn_sinks.weight", "output.bias", "blk.0.ffn_gate_inp.weight",
)  # fmt: skip


def changed(parts: Parts, arch: str, take: Take, most: int = 3) -> Parts:
    """``parts`` with one to ``most`` changes."""
    for _ in range(1 + take(most)):
        parts = _key_changed(parts, arch, take) if take(3) else _tensor_changed(parts, take)
    return parts


def _key_changed(parts: Parts, arch: str, take: Take) -> Parts:
    kind = take(8)
    own = list(parts.keys)
    if kind == 0 and own:
        return parts.changed({own[take(len(own))]: None})
    if kind <= 5 and own:
        key = own[take(len(own))]
        return parts.changed({key: _changed_value(parts.keys[key], take)})
    key = f"{arch}.{ENDS[take(len(ENDS))]}" if take(4) else OTHERS[take(len(OTHERS))]
    return parts.changed({key: _value(take)})


def _changed_value(value: bytes, take: Take) -> bytes:
    """Of the same type, mostly."""
    kind = struct.unpack_from("<I", value)[0]
    if not take(6):
        return _value(take)
    if kind != ARRAY:
        return struct.pack("<I", kind) + _item(kind, take)
    item, count = struct.unpack_from("<IQ", value, 4)
    if item == STRING:
        return _changed_strings(value, count, take)
    width = SCALARS[item].size
    items = [value[16 + i * width : 16 + (i + 1) * width] for i in range(count)]
    return _array(item, _changed_items(items, lambda: _item(item, take), take))


def _changed_strings(value: bytes, count: int, take: Take) -> bytes:
    items, pos = [], 16
    for _ in range(count):
        end = pos + 8 + struct.unpack_from("<Q", value, pos)[0]
        items.append(value[pos:end])
        pos = end
    new = [items[take(len(items))]] if items and take(2) else [raw.text((b"", b"a", b"\xff", b"a\0b", b"\0")[take(5)])]
    return _array(STRING, _changed_items(items, lambda: new[0], take))


def _changed_items(items: list[bytes], new: Callable[[], bytes], take: Take) -> list[bytes]:
    kind = take(6)
    if kind == 0:
        return items[: take(len(items) + 1)]
    if kind == 1:
        return [*items, new()]
    if kind == 2:
        return [new()] * len(items)
    if kind == 3:
        return items[::-1]
    changed_items = list(items)
    if items:
        changed_items[take(len(items))] = new()
    return changed_items


def _array(item: int, items: list[bytes]) -> bytes:
    return struct.pack("<IIQ", ARRAY, item, len(items)) + b"".join(items)


def _value(take: Take) -> bytes:
    kind = (4, 4, 4, 5, 6, 7, 8, 9, 0, 2, 10, 11, 12)[take(13)]
    if kind != ARRAY:
        return struct.pack("<I", kind) + _item(kind, take)
    item = (4, 5, 5, 6, 7, 8)[take(6)]
    return _array(item, [_item(item, take) for _ in range(take(6))])


def _item(kind: int, take: Take) -> bytes:
    if kind == STRING:
        return raw.text(TEXTS[take(len(TEXTS))])
    if kind in {6, 12}:
        return SCALARS[kind].pack(FLOATS[take(len(FLOATS))])
    number = NUMBERS[take(len(NUMBERS))] if take(4) else LIMITS[take(len(LIMITS))]
    width = SCALARS[kind].size
    return bytes([number & 1]) if kind == raw.BOOL else (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _tensor_changed(parts: Parts, take: Take) -> Parts:
    names = list(parts.tensors)
    kind = take(5)
    if not names or kind == 0:
        name = NEW_TENSORS[take(len(NEW_TENSORS))]
        return parts.changed(tensors={name: _zeros((NUMBERS[1 + take(20)],) * (1 + take(2)), take)})
    name = names[take(len(names))]
    shape, number, data = parts.tensors[name]
    if kind == 1:
        return parts.changed(tensors={name: None})
    if kind == 2:
        return parts.changed(tensors={name: _zeros(shape, take)})
    if kind == 3:
        filled = (b"\0", b"\xff", b"\x7f")[take(3)]
        return parts.changed(tensors={name: (shape, number, filled * len(data))})
    return parts.changed(tensors={name: _zeros(_reshaped(shape, take), take, number)})


def _reshaped(shape: tuple[int, ...], take: Take) -> tuple[int, ...]:
    other = ((prod(shape),), shape[::-1], (*shape, 1), (1, *shape), (*shape[:-1], shape[-1] + 1), (1,))[take(6)]
    return other[:4]


def _zeros(shape: tuple[int, ...], take: Take, number: int | None = None) -> Tensor:
    numbers = list(GGML_TYPES)
    kind = numbers[take(len(numbers))] if number is None else number
    if shape[0] % GGML_TYPES[kind].block:
        kind = 0
    return shape, kind, bytes(tensor_bytes(kind, shape))
