"""What a drafter to be trained looks like: its sizes, most of them its target's.

Comes in: the header of a target's GGUF and what is asked for. Goes out: a frozen `Shape` and the ``config.json`` that
z-lab's tools and `convert` read. Knows nothing of weights nor of PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.contract.drafter import widest_kernel
from dflash_gguf.contract.hparams import read_sizes
from dflash_gguf.contract.reader import Reader
from dflash_gguf.errors import TrainError
from dflash_gguf.facts import DFLASH, DFLASH2, architecture, target_facts
from dflash_gguf.schema import BLOCK_LIMIT, TAP_TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader

KINDS: Final = {DFLASH2: "DFlash2DraftModel", DFLASH: "DFlashDraftModel"}
"""Kind -> ``architectures[0]`` of its config."""

WEIGHTS: Final = "model.safetensors"
CONFIG: Final = "config.json"
"""The files of a checkpoint."""

SELECTING: Final = ("rank", "top_k", "conv_kernel", "conv_group")
"""Sizes of a DFlash 2 drafter alone."""
N_TAPS: Final = 4
LAYER_TENSORS: Final = 15
TENSORS: Final = 6
"""Of a DFlash 2 drafter's GGUF: those of each layer, and the others."""
ROPE_BASE: Final = 10000.0
"""llama.cpp's, where a file names none."""
EPS: Final = 1e-6
GEMMA: Final = "gemma"
"""Targets whose embeddings are scaled by the square root of their width."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What may be chosen. ``taps`` are layers whose outputs are read, by z-lab's numbers; None: evenly spread."""

    kind: str = DFLASH2
    layers: int = 2
    block: int = 8
    taps: tuple[int, ...] | None = None
    rank: int = 32
    top_k: int = 16
    conv_kernel: int = 2
    conv_group: int = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a drafter; ``input_scale`` multiplies the target's embeddings. ``mask_id`` fills a block."""

    kind: str
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    eps: float
    rope_base: float
    context: int
    block: int
    taps: tuple[int, ...]
    target_layers: int
    mask_id: int
    rank: int
    top_k: int
    conv_kernel: int
    conv_group: int
    input_scale: float = 1.0

    @property
    def n_features(self) -> int:
        """Values of a context row: the inputs of the tapped layers side by side."""
        return len(self.taps) * self.hidden

    def config(self) -> dict[str, Any]:
        """``config.json``, as z-lab writes it."""
        own: dict[str, Any] = {
            "block_size": self.block,
            "mask_token_id": self.mask_id,
            "target_layer_ids": list(self.taps),
        }
        if self.kind == DFLASH2:
            own |= {
                "conv_kernel_size": self.conv_kernel,
                "conv_group_size": self.conv_group,
                "selector_rank": self.rank,
                "selector_top_k": self.top_k,
            }
        if self.input_scale != 1.0:
            own["input_embedding_scale"] = self.input_scale
        return {
            "architectures": [KINDS[self.kind]],
            "model_type": "qwen3",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "rms_norm_eps": self.eps,
            "rope_theta": self.rope_base,
            "max_position_embeddings": self.context,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": False,
            "block_size": self.block,
            "num_target_layers": self.target_layers,
            "is_causal": False,
            "layer_types": ["full_attention"] * self.layers,
            "torch_dtype": "bfloat16",
            "dflash_config": own,
        }


def shape_of(header: GGUFHeader, asked: Asked, mask_id: int) -> Shape:
    """The drafter of the target in ``header``; raises TrainError for a target or a size that cannot be trained for."""
    name = architecture(header)
    _check_tappable(name)
    sizes = read_sizes(Reader(header, "target", ""), name)
    facts = target_facts(header)
    if not (sizes.n_embd and sizes.n_heads and sizes.n_kv_heads and facts.n_layers and facts.vocab_size):
        raise TrainError(f"`{header.name}` does not state its sizes", remedy="download the file again")
    heads, kv_heads = _heads(sizes.n_heads, sizes.n_kv_heads)
    taps = spread_taps(facts.n_layers) if asked.taps is None else asked.taps
    check_taps(header, taps)
    shape = Shape(
        kind=asked.kind,
        hidden=sizes.n_embd,
        ffn=_ffn(header, name, sizes.n_embd),
        layers=asked.layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=sizes.key_length or sizes.n_embd // heads,
        vocab=facts.vocab_size,
        eps=round(header.number(f"{name}.attention.layer_norm_rms_epsilon", EPS), 12),
        rope_base=header.number(f"{name}.rope.freq_base", ROPE_BASE),
        context=sizes.n_ctx_train or 0,
        block=asked.block,
        taps=taps,
        target_layers=facts.n_layers,
        mask_id=mask_id,
        rank=asked.rank,
        top_k=asked.top_k,
        conv_kernel=asked.conv_kernel,
        conv_group=asked.conv_group,
        input_scale=sizes.n_embd**0.5 if name.startswith(GEMMA) else 1.0,
    )
    _check(shape)
    return shape


def check_taps(header: GGUFHeader, taps: Sequence[int]) -> None:
    """Raises TrainError for layers whose outputs libllama does not hand out, or that do not ascend.

    -1 is what the first layer reads.
    """
    facts = target_facts(header)
    _check_tappable(facts.architecture)
    last = (facts.n_layers or 0) - (1 if TAP_TARGETS[facts.architecture] else 2)
    if not taps or list(taps) != sorted(set(taps)) or taps[0] < -1 or taps[-1] > last:
        raise TrainError("`taps`", value=list(taps), expected=f"ascending numbers of layers from -1 to {last}")


def _check_tappable(name: str) -> None:
    if name not in TAP_TARGETS:
        raise TrainError(
            "libllama does not hand out what the layers of this architecture read",
            value=name,
            expected=f"one of {', '.join(TAP_TARGETS)}",
            remedy="train for another target",
        )


def spread_taps(n_layers: int) -> tuple[int, ...]:
    """Taps from the second layer to the last but one, evenly."""
    last = n_layers - 2
    count = max(1, min(N_TAPS, last))
    if count == 1:
        return (max(0, last),)
    return tuple(round(1 + i * (last - 1) / (count - 1)) for i in range(count))


def _heads(heads: Sequence[int], kv_heads: Sequence[int]) -> tuple[int, int]:
    """Those of the last layer that has any."""
    with_attention = [(a, b) for a, b in zip(heads, kv_heads, strict=True) if a and b]
    if not with_attention:
        raise TrainError("no layer of the target has attention", remedy="choose another target")
    return with_attention[-1]


def _ffn(header: GGUFHeader, name: str, hidden: int) -> int:
    """The target's width, or of experts three times the hidden size, as published drafters have it."""
    return max(by_layer(header, f"{name}.feed_forward_length")) or 3 * hidden


def by_layer(header: GGUFHeader, key: str) -> list[int]:
    """A value for each layer, or one for all; 0 when the key is missing."""
    if key in header.keys and header.keys[key].type_text.startswith("array"):
        return header.integers(key) or [0]
    return [header.integer(key, 0)]


def _check(shape: Shape) -> None:
    for what, value, right, expected in (
        ("`kind`", shape.kind, shape.kind in KINDS, f"one of {', '.join(KINDS)}"),
        ("`block`", shape.block, 2 <= shape.block <= BLOCK_LIMIT, f"2 to {BLOCK_LIMIT} tokens"),
        ("`layers`", shape.layers, shape.layers >= 1, "at least 1"),
        ("heads of an even length", shape.head_dim, shape.head_dim % 2 == 0, "values that turn in pairs"),
    ):
        if not right:
            raise TrainError(what, value=value, expected=expected)
    if shape.kind == DFLASH2:
        _check_selector(shape)


def _check_selector(shape: Shape) -> None:
    """llama.cpp packs a position's candidates and scores into a row of the hidden size."""
    most = int((shape.hidden + 0.25) ** 0.5 - 0.5)
    widest = widest_kernel(shape.layers, shape.layers * LAYER_TENSORS + TENSORS)
    for what, value, right, expected in (
        ("`rank`", shape.rank, shape.rank >= 1, "at least 1"),
        ("`top_k`", shape.top_k, shape.top_k >= 1, "at least 1"),
        (
            "`top_k`, whose candidates and scores fill a row",
            shape.top_k,
            shape.top_k * (shape.top_k + 1) <= shape.hidden,
            f"top_k * (top_k + 1) at most the hidden size, {shape.hidden}: at most {most}",
        ),
        ("`conv_kernel`", shape.conv_kernel, 1 <= shape.conv_kernel <= shape.block, f"1 to the block's {shape.block}"),
        (
            f"`conv_kernel`, for whose graph libllama must have room in {shape.layers} layers",
            shape.conv_kernel,
            shape.conv_kernel <= widest,
            f"at most {widest}",
        ),
        (
            "`conv_group`",
            shape.conv_group,
            shape.conv_group >= 1 and shape.hidden % shape.conv_group == 0,
            f"a divisor of the hidden size, {shape.hidden}",
        ),
    ):
        if not right:
            raise TrainError(what, value=value, expected=expected)
