"""DeepSpec's Gemma 4 drafters: layers with norms on both sides, keys that serve as values, a scalar a layer.

Comes in: a specification. Goes out: its rules, and where a Gemma config says things.
Source: llama.cpp conversion/gemma.py Gemma4DSparkModel, src/models/dflash.cpp (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.attention import FULL
from dflash_gguf.convert.families.backbone import attention_rules, layer_rule, outer_rules
from dflash_gguf.convert.families.dspark import head_rules
from dflash_gguf.convert.families.rules import Family, Layout, TensorRule
from dflash_gguf.convert.rope import Rope
from dflash_gguf.errors import CheckpointError
from dflash_gguf.facts import DFLASH, DSPARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.convert.config import Config
    from dflash_gguf.convert.spec import DrafterSpec

UNTURNED: Final = 1e30
"""Divides the frequency of a pair that is not turned, as in llama.cpp's converter."""
DEFAULT_PART: Final = 0.25
MARK: Final = ".pre_feedforward_layernorm."


def gemma_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """Rules of everything but the Markov head."""
    yield from outer_rules(spec)
    hidden = (spec.hidden_size,)
    for i in range(spec.n_layers):
        for rule in (
            *attention_rules(spec),
            TensorRule("post_attention_layernorm.weight", "post_attention_norm.weight", hidden),
            TensorRule("pre_feedforward_layernorm.weight", "ffn_norm.weight", hidden),
            TensorRule("post_feedforward_layernorm.weight", "post_ffw_norm.weight", hidden),
            TensorRule("layer_scalar", "layer_output_scale.weight", (1,), optional=True, group="layer_scalar"),
        ):
            yield layer_rule(i, rule)


def gemma_dspark_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """The same and the Markov head."""
    yield from gemma_rules(spec)
    yield from head_rules(spec)


def _rope(config: Config, head_dim: int, *, copies_target: bool) -> tuple[Rope, tuple[str, ...]]:
    """Gemma's proportional rotation turns the first part of each half; the frequencies of the rest are divided away.

    The partial rotation is genuine here, although the config is a copy of the target's.
    """
    del copies_target
    base = config.number("rope_theta")
    kind = config.string("rope_type")
    if kind not in ("default", "proportional"):
        raise CheckpointError("rope scaling of a Gemma 4 drafter", value=kind, expected="default or proportional")
    if kind == "default":
        return Rope(base, dimensions=head_dim), ()
    part = config.optional_number("partial_rotary_factor") or DEFAULT_PART
    turned = int(head_dim * part / 2)
    if not 0 < part <= 1 or turned < 1 or head_dim * part != 2 * turned:
        raise CheckpointError(
            "`partial_rotary_factor` in the config", value=part, expected=f"an even part of the {head_dim} of a head"
        )
    factors = (1.0,) * turned + (UNTURNED,) * (head_dim // 2 - turned)
    return Rope(base, dimensions=head_dim, factors=factors), ()


def _refuse(config: Config) -> None:
    if not config.boolean("attention_k_eq_v"):
        raise CheckpointError("a Gemma 4 drafter with values of its own", expected="`attention_k_eq_v` true")
    if set(config.strings("layer_types") or ()) - {FULL}:
        raise CheckpointError("a Gemma 4 drafter with layers that are not all full attention")
    if config.boolean("enable_moe_block"):
        raise CheckpointError("a Gemma 4 drafter with experts (`enable_moe_block`)")


ROPE: Final = ("rope_parameters.full_attention", "rope_parameters")
GEMMA4: Final = Layout(
    places={
        "head_dim": ("global_head_dim",),
        "num_key_value_heads": ("num_global_key_value_heads",),
        "hidden_act": ("hidden_activation",),
        # The target's own window means nothing to the drafter.
        "sliding_window": ("dflash_config.swa_window_size",),
        "use_sliding_window": ("dflash_config.use_swa",),
        "rope_theta": (f"{ROPE[0]}.rope_theta", f"{ROPE[1]}.rope_theta"),
        "rope_type": (f"{ROPE[0]}.rope_type", f"{ROPE[1]}.rope_type"),
        "partial_rotary_factor": (f"{ROPE[0]}.partial_rotary_factor", f"{ROPE[1]}.partial_rotary_factor"),
    },
    rope=_rope,
    activation="gelu_pytorch_tanh",
    states_activation=True,
    attention_scale=1.0,
    scales_embeddings=True,
    refuse=_refuse,
)

FAMILIES: Final = (
    Family(DSPARK, "Gemma 4 DSpark", ((MARK, "markov_head."), (MARK, "confidence_head.")), gemma_dspark_rules, GEMMA4),
    Family(DFLASH, "Gemma 4 DFlash", ((MARK,),), gemma_rules, GEMMA4),
)
