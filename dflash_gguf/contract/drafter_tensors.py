"""The tensors that llama.cpp's ``dflash`` loads, by kind and layout: names, shapes and types.

Comes in: a kind, and the sizes that a header states. Goes out: rows for `check_slots`. Reads no keys but for sizes.
Source: llama.cpp src/models/dflash.cpp, ``load_arch_tensors``; src/llama-model.cpp for the scales (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.tensors import MATRIX, ROW_NUMBERS, VECTOR, Slot
from dflash_gguf.facts import DFLASH2, DSPARK, count_of, integer_of
from dflash_gguf.schema import ARCHITECTURE, INPUT_SCALED, SCALED, Keys

if TYPE_CHECKING:
    from dflash_gguf.contract.hparams import Sizes
    from dflash_gguf.gguf_header import GGUFHeader

_GLOBAL: Final = (
    Slot("fc.weight", ("taps x hidden", "hidden"), MATRIX),
    Slot("enc.output_norm.weight", ("hidden",), VECTOR),
    Slot("output_norm.weight", ("hidden",), VECTOR),
    Slot("token_embd.weight", ("hidden", "vocabulary"), MATRIX, required=False),
)

_LAYER: Final = (
    Slot("blk.{i}.attn_norm.weight", ("hidden",), VECTOR),
    Slot("blk.{i}.attn_q.weight", ("hidden", "heads"), MATRIX),
    Slot("blk.{i}.attn_k.weight", ("hidden", "kv heads"), MATRIX),
    Slot("blk.{i}.attn_v.weight", ("hidden", "kv heads"), MATRIX, required=False),
    Slot("blk.{i}.attn_output.weight", ("heads", "hidden"), MATRIX),
    Slot("blk.{i}.attn_q_norm.weight", ("head",), VECTOR),
    Slot("blk.{i}.attn_k_norm.weight", ("head",), VECTOR),
    Slot("blk.{i}.post_attention_norm.weight", ("hidden",), VECTOR, required=False),
    Slot("blk.{i}.post_ffw_norm.weight", ("hidden",), VECTOR, required=False),
    Slot("blk.{i}.layer_output_scale.weight", ("one",), VECTOR, required=False),
    Slot("blk.{i}.attn_sinks.weight", ("head count",), VECTOR, required=False),
    Slot("rope_freqs.weight", ("half head",), VECTOR, required=False),
    Slot("blk.{i}.ffn_norm.weight", ("hidden",), VECTOR),
    Slot("blk.{i}.ffn_gate.weight", ("hidden", "feed-forward"), MATRIX),
    Slot("blk.{i}.ffn_down.weight", ("feed-forward", "hidden"), MATRIX),
    Slot("blk.{i}.ffn_up.weight", ("hidden", "feed-forward"), MATRIX),
)

_DFLASH2: Final = (
    Slot("selector_predecessor.weight", ("rank", "vocabulary"), MATRIX),
    Slot("selector_successor.weight", ("rank", "vocabulary"), MATRIX),
    Slot("selector_hidden.weight", ("hidden", "rank"), MATRIX),
    Slot("blk.{i}.attn_conv_base", ("hidden", "kernel", "two"), VECTOR),
    Slot("blk.{i}.attn_conv_proj.weight", ("hidden", "coefficients"), MATRIX),
    Slot("blk.{i}.ffn_conv_base", ("hidden", "kernel", "two"), VECTOR),
    Slot("blk.{i}.ffn_conv_proj.weight", ("hidden", "coefficients"), MATRIX),
)

_DSPARK: Final = (
    Slot("markov_w1.weight", ("markov rank", "vocabulary"), MATRIX),
    Slot("markov_w2.weight", ("markov rank", "draft vocabulary"), MATRIX),
    Slot("conf_proj.weight", ("hidden + markov rank", "one"), MATRIX, required=False),
    Slot("conf_proj.bias", ("one",), VECTOR, required=False),
)

_HEAD: Final = Slot("output.weight", ("hidden", "draft vocabulary"), MATRIX, required=False)
_REDUCED: Final = (Slot("d2t", ("draft vocabulary",), ROW_NUMBERS),)

STAGE_SLOTS: Final = (
    *_GLOBAL,
    *_DSPARK,
    _HEAD,
    Slot("output_hc_fn.weight", ("streams x hidden", "streams"), MATRIX),
    Slot("output_hc_base.weight", ("streams",), VECTOR),
    Slot("output_hc_scale.weight", ("one",), VECTOR),
    Slot("blk.{i}.attn_norm.weight", ("hidden",), VECTOR),
    Slot("blk.{i}.attn_sinks.weight", ("head count",), VECTOR),
    Slot("blk.{i}.attn_q_a.weight", ("hidden", "query rank"), MATRIX),
    Slot("blk.{i}.attn_q_a_norm.weight", ("query rank",), VECTOR),
    Slot("blk.{i}.attn_q_b.weight", ("query rank", "heads"), MATRIX),
    Slot("blk.{i}.attn_kv.weight", ("hidden", "head"), MATRIX),
    Slot("blk.{i}.attn_kv_a_norm.weight", ("head",), VECTOR),
    Slot("blk.{i}.attn_output_a.weight", ("heads / groups", "output ranks"), MATRIX),
    Slot("blk.{i}.attn_output_b.weight", ("output ranks", "hidden"), MATRIX),
    Slot("blk.{i}.hc_attn_fn.weight", ("streams x hidden", "mixes"), MATRIX),
    Slot("blk.{i}.hc_attn_base.weight", ("mixes",), VECTOR),
    Slot("blk.{i}.hc_attn_scale.weight", ("three",), VECTOR),
    Slot("blk.{i}.hc_ffn_fn.weight", ("streams x hidden", "mixes"), MATRIX),
    Slot("blk.{i}.hc_ffn_base.weight", ("mixes",), VECTOR),
    Slot("blk.{i}.hc_ffn_scale.weight", ("three",), VECTOR),
    Slot("blk.{i}.ffn_gate_inp.weight", ("hidden", "experts"), MATRIX),
    Slot("blk.{i}.exp_probs_b.bias", ("experts",), VECTOR),
    Slot("blk.{i}.ffn_norm.weight", ("hidden",), VECTOR),
    Slot("blk.{i}.ffn_gate_exps.weight", ("hidden", "expert", "experts"), MATRIX),
    Slot("blk.{i}.ffn_down_exps.weight", ("expert", "hidden", "experts"), MATRIX),
    Slot("blk.{i}.ffn_up_exps.weight", ("hidden", "expert", "experts"), MATRIX),
    Slot("blk.{i}.ffn_gate_shexp.weight", ("hidden", "shared experts"), MATRIX),
    Slot("blk.{i}.ffn_down_shexp.weight", ("shared experts", "hidden"), MATRIX),
    Slot("blk.{i}.ffn_up_shexp.weight", ("hidden", "shared experts"), MATRIX),
)
"""DeepSeek-V4's layers. The output's groups are stored one after another; the loader reshapes them."""


def slots_for(kind: str, *, reduced: bool) -> tuple[Slot, ...]:
    """The rows of a Qwen3-shaped drafter; ``reduced``: it writes a part of the vocabulary."""
    own = {DFLASH2: _DFLASH2, DSPARK: _DSPARK}.get(kind, ())
    slots = (*_GLOBAL, _HEAD, *_LAYER, *own, *(_REDUCED if reduced else ()))
    return (*slots, *_scales(slots))


def _scales(slots: tuple[Slot, ...]) -> list[Slot]:
    """What stands beside matrices that are quantized with one more factor, such as NVFP4's."""
    rows = []
    for ending, names in (("scale", SCALED), ("input_scale", INPUT_SCALED)):
        for slot in slots:
            stem = slot.name.removesuffix(".weight")
            if slot.name.removeprefix("blk.{i}.") in names:
                rows.append(Slot(f"{stem}.{ending}", ("one",), VECTOR, required=False))
    return rows


def sizes_of(header: GGUFHeader, sizes: Sizes, n_vocab: int | None) -> dict[str, int]:
    """The sizes that the rows name, as far as the header states them."""
    hidden, head = sizes.n_embd, sizes.key_length
    heads = sizes.n_heads[0] if sizes.n_heads else None
    kv_heads = sizes.n_kv_heads[0] if sizes.n_kv_heads else None
    rank, markov = integer_of(header, Keys.SELECTOR_RANK), _rows(header, "markov_w1.weight")
    kernel, group = integer_of(header, Keys.CONV_KERNEL_SIZE), integer_of(header, Keys.CONV_GROUP_SIZE)
    found = {
        "one": 1,
        "two": 2,
        "three": 3,
        "hidden": hidden,
        "taps x hidden": _product(count_of(header, Keys.TARGET_LAYERS), hidden),
        "vocabulary": n_vocab,
        "draft vocabulary": _rows(header, "d2t") or n_vocab,
        "heads": _product(heads, head),
        "kv heads": _product(kv_heads, head),
        "head count": heads,
        "head": head,
        "half head": None if head is None else head // 2,
        "feed-forward": integer_of(header, Keys.FEED_FORWARD_LENGTH),
        "rank": rank,
        "kernel": kernel,
        "coefficients": _product(2, kernel, hidden // group) if hidden and group else None,
        "markov rank": markov,
        "hidden + markov rank": hidden + markov if hidden and markov else None,
    } | _stage_sizes(header, sizes, _product(heads, head))
    return {name: size for name, size in found.items() if size is not None}


def _stage_sizes(header: GGUFHeader, sizes: Sizes, heads: int | None) -> dict[str, int | None]:
    def key(name: str) -> int | None:
        return integer_of(header, f"{ARCHITECTURE}.{name}")

    streams, expert = integer_of(header, Keys.HYPER_CONNECTIONS), key("expert_feed_forward_length")
    groups = key("attention.output_group_count")
    return {
        "streams": streams,
        "streams x hidden": _product(streams, sizes.n_embd),
        "mixes": None if streams is None else (2 + streams) * streams,
        "query rank": key("attention.q_lora_rank"),
        "heads / groups": heads // groups if heads and groups else None,
        "output ranks": _product(groups, key("attention.output_lora_rank")),
        "experts": sizes.n_experts or None,
        "expert": expert,
        "shared experts": _product(expert, key("expert_shared_count")),
    }


def _rows(header: GGUFHeader, name: str) -> int | None:
    """Length of a row."""
    info = header.tensors.get(name)
    return None if info is None else info.shape[0]


def _product(*factors: int | None) -> int | None:
    product = 1
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product
