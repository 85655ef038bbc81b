"""The normal form of a drafter: every fact that its GGUF must state, each resolved once.

Comes in: a config, and the width of a head as its tensors have it. Goes out: a frozen `DrafterSpec`.
Knows nothing of files, tensors' names or GGUF keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from dflash_gguf.convert.config import Config

LAYER_LIMIT: Final = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""
BLOCK_LIMIT: Final = 1024
SLIDING: Final = "sliding_attention"
FULL: Final = "full_attention"


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position: ``base``, and how it is stretched (``scaling`` is None, ``linear`` or ``yarn``)."""

    base: float
    scaling: str | None = None
    factor: float | None = None
    original_context: int | None = None
    ext_factor: float | None = None
    attn_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    interleaved: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """Sliding attention: its width in tokens, and which layers it holds for."""

    size: int
    layers: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """What DFlash 2 adds: the convolutions' taps and channels a group, the lattice's rank and width."""

    conv_kernel: int
    conv_group: int
    rank: int
    top_k: int


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A drafter in normal form; ``taps`` number the target's layers as Hugging Face does, from 0."""

    kind: str
    hidden_size: int
    feed_forward: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    rms_eps: float
    rope: Rope
    block_size: int
    mask_token_id: int
    taps: tuple[int, ...]
    causal: bool
    window: Window | None
    selector: Selector | None
    logit_scale: float | None
    softcap: float | None
    embedding_scale: float | None
    keep_embeddings: bool
    notes: tuple[str, ...]

    @property
    def target_layers(self) -> tuple[int, ...]:
        """The taps in GGUF's numbering: inputs of layers, one more than the outputs' numbers."""
        return tuple(tap + 1 for tap in self.taps)


def resolve_spec(config: Config, kind: str, head_dim: int, *, selector: bool) -> DrafterSpec:
    """Resolve a config; ``head_dim`` is the length of the query norm, ``selector`` asks for DFlash 2's keys.

    Raises `CheckpointError` on a value that is absent, contradictory, or that llama.cpp cannot hold.
    """
    _refuse_unsupported(config)
    n_layers = config.integer("num_hidden_layers", most=LAYER_LIMIT)
    window, window_notes = _window(config, n_layers)
    causal, causal_notes = _causal(config, window)
    vocab_size = config.integer("vocab_size")
    softcap = config.optional_number("final_logit_softcapping", zero=True)
    spec = DrafterSpec(
        kind=kind,
        hidden_size=config.integer("hidden_size"),
        feed_forward=config.integer("intermediate_size"),
        n_layers=n_layers,
        n_heads=config.integer("num_attention_heads"),
        n_kv_heads=config.integer("num_key_value_heads"),
        head_dim=config.optional_integer("head_dim") or head_dim,
        vocab_size=vocab_size,
        context_length=config.integer("max_position_embeddings"),
        rms_eps=config.number("rms_norm_eps"),
        rope=_rope(config),
        block_size=config.integer("block_size", 2, BLOCK_LIMIT),
        mask_token_id=config.integer("mask_token_id", 0, vocab_size - 1),
        taps=config.integers("target_layer_ids", -1, LAYER_LIMIT - 1, LAYER_LIMIT),
        causal=causal,
        window=window,
        selector=_selector(config) if selector else None,
        logit_scale=config.optional_number("output_multiplier"),
        softcap=softcap or None,
        embedding_scale=config.optional_number("input_embedding_scale"),
        keep_embeddings=config.boolean("has_embed_tokens") is not False,
        notes=window_notes + causal_notes,
    )
    _check_shapes(spec, head_dim)
    return spec


def _refuse_unsupported(config: Config) -> None:
    activation = config.string("hidden_act")
    if activation not in (None, "silu"):
        raise CheckpointError("the feed-forward activation", value=activation, expected="silu")
    if config.boolean("attention_bias"):
        raise CheckpointError("`attention_bias` is true, which llama.cpp's dflash loader cannot hold")
    if config.optional_number("partial_rotary_factor") not in (None, 1.0):
        raise CheckpointError("`partial_rotary_factor` in the config", expected="1, as in every DFlash 2 drafter")


def _check_shapes(spec: DrafterSpec, head_dim: int) -> None:
    if spec.head_dim != head_dim:
        raise CheckpointError(
            "`head_dim` in the config", value=spec.head_dim, expected=f"{head_dim}, the width of q_norm"
        )
    if spec.head_dim % 2:
        raise CheckpointError("`head_dim`", value=spec.head_dim, expected="an even number")
    if spec.n_heads % spec.n_kv_heads:
        raise CheckpointError(
            "`num_attention_heads`",
            value=spec.n_heads,
            expected=f"a multiple of {spec.n_kv_heads} key-value heads",
        )
    if spec.selector is not None:
        _check_selector(spec, spec.selector)


def _check_selector(spec: DrafterSpec, selector: Selector) -> None:
    # llama.cpp src/models/dflash.cpp, load_arch_tensors.
    if spec.hidden_size % selector.conv_group:
        raise CheckpointError(
            "`conv_group_size`",
            value=selector.conv_group,
            expected=f"a divisor of hidden_size {spec.hidden_size}",
        )
    if spec.hidden_size < selector.top_k * (selector.top_k + 1):
        raise CheckpointError(
            "`selector_top_k` does not fit a row of the hidden size", value=selector.top_k,
            expected=f"top_k * (top_k + 1) <= {spec.hidden_size}",
        )  # fmt: skip
    if selector.top_k > spec.vocab_size:
        raise CheckpointError(
            "`selector_top_k`", value=selector.top_k, expected=f"at most vocab_size {spec.vocab_size}"
        )


def _selector(config: Config) -> Selector:
    return Selector(
        conv_kernel=config.integer("conv_kernel_size"),
        conv_group=config.integer("conv_group_size"),
        rank=config.integer("selector_rank"),
        top_k=config.integer("selector_top_k", most=1 << 15),
    )


def _rope(config: Config) -> Rope:
    base = config.number("rope_theta")
    interleaved = config.boolean("rope_is_neox_style") is False
    scaling = config.string("rope_type")
    if scaling in (None, "default"):
        return Rope(base, interleaved=interleaved)
    if scaling not in ("linear", "yarn"):
        raise CheckpointError("rope scaling in the config", value=scaling, expected="default, linear or yarn")
    factor = config.number("rope_factor")
    if scaling == "linear":
        return Rope(base, scaling, factor, interleaved=interleaved)
    return Rope(
        base,
        scaling,
        factor,
        config.integer("original_max_position_embeddings"),
        config.optional_number("yarn_ext_factor", zero=True),
        config.optional_number("yarn_attn_factor"),
        config.optional_number("yarn_beta_fast"),
        config.optional_number("yarn_beta_slow"),
        interleaved,
    )


def _window(config: Config, n_layers: int) -> tuple[Window | None, tuple[str, ...]]:
    size = config.optional_integer("sliding_window", 0)
    everywhere = config.boolean("use_swa") or False
    sliding = _sliding_layers(config, n_layers)
    if not (everywhere or config.boolean("use_sliding_window")):
        if any(sliding) and size:
            # Hugging Face drops the width when `use_sliding_window` is not true, and llama.cpp with it.
            return None, ("`layer_types` names sliding layers, but `use_sliding_window` is not true: no window",)
        return None, ()
    if not size:
        raise config.absent("sliding_window")
    layers = (True,) * n_layers if everywhere else sliding
    return (Window(size, layers) if any(layers) else None), ()


def _sliding_layers(config: Config, n_layers: int) -> tuple[bool, ...]:
    types = config.strings("layer_types")
    if types is None:
        # Hugging Face's Qwen3 default, `max_window_layers` included.
        first = config.optional_integer("max_window_layers", 0)
        first = 28 if first is None else first
        return tuple(i >= first for i in range(n_layers))
    if len(types) != n_layers or not set(types) <= {SLIDING, FULL}:
        raise CheckpointError(
            "`layer_types` in the config",
            value=ascii(types)[:80],
            expected=f"{n_layers} of {SLIDING} or {FULL}",
        )
    return tuple(kind == SLIDING for kind in types)


def _causal(config: Config, window: Window | None) -> tuple[bool, tuple[str, ...]]:
    stated = config.boolean("is_causal")
    if stated is not None:
        return stated, ()
    # z-lab's model.py: a sliding layer is causal and a full one is not, unless the config says otherwise.
    if window is None:
        return False, ()
    if all(window.layers):
        return True, ("no causality is stated: sliding layers are causal, as z-lab's code has them",)
    return False, (
        "layers differ in causality, which a GGUF cannot hold: none is causal, so fewer drafts are accepted",
    )
