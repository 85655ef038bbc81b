"""What libllama asserts of the keys that every architecture has.

Comes in: a reader of a header, and the architecture's name. Goes out: the sizes that other rules need; the faults are
in the reader. Knows nothing of drafters or tensors.
Source: llama.cpp src/llama-model.cpp, ``load_hparams``; src/llama-hparams.h (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.reader import ANY_COUNT, COUNT, FINITE, NOT_NEGATIVE, POSITIVE, Bounds
from dflash_gguf.facts import LAYERS_LIMIT
from dflash_gguf.schema import BLOCK_LIMIT

if TYPE_CHECKING:
    from dflash_gguf.contract.reader import Reader

LAYERS: Final = Bounds(1, LAYERS_LIMIT)
EXPERTS: Final = Bounds(0, 1024)
"""LLAMA_MAX_EXPERTS."""
LENGTH: Final = Bounds(1, 1 << 20)
"""A width of a model: more than any has, and few enough that a product of two fits 63 bits."""
BLOCK: Final = Bounds(2, BLOCK_LIMIT)
HEADS: Final = Bounds(1, 1 << 16)
PAIR: Final = 2
ROPE_SCALINGS: Final = ("none", "linear", "yarn", "longrope")

ONE_EXPERT_IS_NONE: Final = frozenset({"hunyuan_vl", "hunyuan-dense"})
LAYERS_WITHOUT_EXPERTS: Final = frozenset({"nemotron_h_moe"})
"""Architectures whose number of experts in use is 0 in some layers."""
WIDER_OUTPUTS: Final = frozenset({"deepseek4"})
"""Architectures whose ``embedding_length_out`` libllama computes itself; their files name all streams' width."""
WINDOW: Final = Bounds(1, 1 << 24)
"""A window of 2**31 tokens, and a pass more, would not fit an int32."""
WINDOW_OR_NONE: Final = Bounds(0, WINDOW.most)

SCALING_NUMBERS: Final = (
    ("rope.scaling.factor", NOT_NEGATIVE),
    ("rope.scale_linear", NOT_NEGATIVE),
    ("rope.scaling.attn_factor", FINITE),
    ("rope.scaling.alpha", FINITE),
    ("rope.scaling.yarn_log_multiplier", FINITE),
    ("rope.scaling.yarn_ext_factor", FINITE),
    ("rope.scaling.yarn_attn_factor", FINITE),
    ("rope.scaling.yarn_beta_fast", FINITE),
    ("rope.scaling.yarn_beta_slow", FINITE),
    ("rope.freq_base", POSITIVE),
    ("rope.freq_base_swa", POSITIVE),
    ("attention.layer_norm_rms_epsilon", POSITIVE),
    ("attention.layer_norm_epsilon", POSITIVE),
    ("attention.scale", FINITE),
    ("attention.value_scale", FINITE),
    ("logit_scale", FINITE),
    ("final_logit_softcapping", FINITE),
    ("attn_logit_softcapping", FINITE),
    ("embedding_scale", FINITE),
    ("residual_scale", FINITE),
)
"""Numbers that go into every logit: key without its prefix -> what is allowed."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """None stands for what is absent or wrong. ``n_layers`` counts all, ``n_predicting`` those at the end that predict
    further tokens; ``n_heads`` and ``n_kv_heads`` have one entry a layer.
    """

    n_layers: int | None
    n_predicting: int
    n_embd: int | None
    n_ctx_train: int | None
    n_heads: list[int] | None
    n_kv_heads: list[int] | None
    key_length: int | None
    value_length: int | None
    n_experts: int


def read_sizes(reader: Reader, arch: str) -> Sizes:
    """Reads and judges the keys of ``load_hparams``."""
    n_layers = reader.integer(f"{arch}.block_count", LAYERS, required=True)
    n_embd = reader.integer(f"{arch}.embedding_length", LENGTH, required=True)
    n_ctx_train = reader.integer(f"{arch}.context_length", COUNT, required=True)
    n_heads, n_kv_heads = _heads(reader, arch, n_layers)
    derived = n_embd // n_heads[0] if n_embd and n_heads and n_heads[0] else None
    key_length = reader.integer(f"{arch}.attention.key_length", LENGTH) or derived
    value_length = reader.integer(f"{arch}.attention.value_length", LENGTH) or derived
    out = reader.integer(f"{arch}.embedding_length_out")
    if out is not None and out != n_embd and arch not in WIDER_OUTPUTS:
        reader.fault(f"`{arch}.embedding_length_out` is not its hidden size, {n_embd}", out)
    reader.integer(f"{arch}.attention.sliding_window", WINDOW_OR_NONE)
    reader.text(f"{arch}.rope.scaling.type", ROPE_SCALINGS)
    _turned(reader, arch, key_length)
    reader.integer(f"{arch}.rope.scaling.original_context_length", COUNT)
    for key, allowed in SCALING_NUMBERS:
        reader.number(f"{arch}.{key}", allowed)
    return Sizes(
        n_layers=n_layers,
        n_predicting=_predicting(reader, arch, n_layers),
        n_embd=n_embd,
        n_ctx_train=n_ctx_train,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        key_length=key_length,
        value_length=value_length,
        n_experts=_experts(reader, arch, n_layers),
    )


def _heads(reader: Reader, arch: str, n_layers: int | None) -> tuple[list[int] | None, list[int] | None]:
    """Query and key heads of each layer; a layer without attention has none."""
    if n_layers is None:
        return None, None
    n_heads = reader.a_layer(f"{arch}.attention.head_count", n_layers, Bounds(0, HEADS.most), required=True)
    key = f"{arch}.attention.head_count_kv"
    n_kv_heads = reader.a_layer(key, n_layers, Bounds(0, HEADS.most)) if key in reader.header.keys else n_heads
    if n_heads is None or n_kv_heads is None:
        return n_heads, n_kv_heads
    for heads, groups in zip(n_heads, n_kv_heads, strict=True):
        if groups and heads % groups:
            reader.fault(f"`{key}` does not divide the {heads} heads", groups)
            return n_heads, None
    return n_heads, n_kv_heads


def _turned(reader: Reader, arch: str, key_length: int | None) -> None:
    """Heads are turned in pairs of values."""
    key = f"{arch}.rope.dimension_count"
    turned = reader.integer(key)
    if turned is not None and (turned < PAIR or turned % PAIR or turned > (key_length or turned)):
        reader.fault(f"`{key}` is not an even number from {PAIR} to the head's {key_length}", turned)
    elif turned is None and key_length is not None and key_length % PAIR:
        reader.fault("heads have an odd length, which cannot be turned in pairs", key_length)
    _turned_in_windows(reader, arch, turned or key_length, key_length)


def _turned_in_windows(reader: Reader, arch: str, turned: int | None, key_length: int | None) -> None:
    """Layers that slide may have heads of another length, of which as much is turned as of the others."""
    key, length_key = f"{arch}.rope.dimension_count_swa", f"{arch}.attention.key_length_swa"
    if not {key, length_key} & reader.header.keys.keys():
        return
    length = reader.integer(length_key, LENGTH) or key_length
    own = reader.integer(key)
    turned = turned if own is None else own
    if turned is not None and (turned < PAIR or turned % PAIR or turned > (length or turned)):
        reader.fault(f"`{key}` is not an even number from {PAIR} to the {length} of a head in a window", turned)


def check_windows_heads(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Notes heads of layers that slide which are not as those of the others, where one graph is built for both."""
    turned = reader.integer(f"{arch}.rope.dimension_count") or sizes.key_length
    for name, length in (
        ("attention.key_length_swa", sizes.key_length),
        ("attention.value_length_swa", sizes.value_length),
        ("rope.dimension_count_swa", turned),
    ):
        own = reader.integer(f"{arch}.{name}")
        if own is not None and length is not None and own != length:
            reader.fault(f"`{arch}.{name}` is not {length}, as in layers without a window", own)


def _predicting(reader: Reader, arch: str, n_layers: int | None) -> int:
    key = f"{arch}.nextn_predict_layers"
    predicting = reader.integer(key) or 0
    if n_layers is not None and predicting >= n_layers:
        reader.fault(f"`{key}` leaves none of the {n_layers} layers", predicting)
        return 0
    return predicting


def _experts(reader: Reader, arch: str, n_layers: int | None) -> int:
    count = reader.integer(f"{arch}.expert_count", EXPERTS) or 0
    if arch in ONE_EXPERT_IS_NONE and count <= 1:
        return 0
    groups = reader.integer(f"{arch}.expert_group_count") or 0
    groups_used = reader.integer(f"{arch}.expert_group_used_count") or 0
    used_key = f"{arch}.expert_used_count"
    used = (reader.a_layer(used_key, n_layers, ANY_COUNT) if n_layers else None) or [0]
    fewest = max(used) if arch in LAYERS_WITHOUT_EXPERTS else min(used)
    if max(used) > count or (count and not fewest):
        wrong = max(used) if max(used) > count else fewest
        reader.fault(f"`{used_key}` is not within {1 if count else 0} to the {count} experts", wrong)
    if groups and (groups >= count or (groups > 1 and (count % groups or not 0 < groups_used < groups))):
        reader.fault(f"experts are not in groups: {count} in {groups}, of which {groups_used} are used", groups)
    return count
