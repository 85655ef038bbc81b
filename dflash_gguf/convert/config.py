"""One question to a drafter's config, whatever place and spelling its authors chose for the answer.

Comes in: a parsed ``config.json`` and the name of a field. Goes out: its value, checked. Places that hold the
same value are fine; places that hold different ones are an error. A JSON null counts as absent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.overrides import FLAGS, NOTHING, Overrides
from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

UINT_LIMIT: Final = (1 << 31) - 1
FLOAT_LIMIT: Final = 3.4028235e38
FLOAT_LEAST: Final = 1.1754944e-38

INVERTED: Final = "not "
"""Before a place that states the opposite."""
SHIFTED: Final = "1 + "
"""Before a place that counts layers from their inputs, one more than the layer whose output is meant."""
ROOTS: Final = ("", "transformer_layer_config.", "text_config.")
"""Where a config may hold the drafter's own: speculators and multimodal models nest it."""

ROPE_TABLES: Final = ("rope_parameters", "rope_parameters.full_attention", "rope_scaling")
"""Where the parameters of a stretched rotation stand together."""

PLACES: Final[dict[str, tuple[str, ...]]] = {
    "hidden_size": ("hidden_size",),
    "target_hidden_size": ("target_hidden_size",),
    "intermediate_size": ("intermediate_size",),
    "num_hidden_layers": ("num_hidden_layers",),
    "num_attention_heads": ("num_attention_heads",),
    "num_key_value_heads": ("num_key_value_heads",),
    "num_target_layers": ("dflash_config.num_target_layers", "num_target_layers"),
    "head_dim": ("head_dim",),
    "v_head_dim": ("v_head_dim",),
    "vocab_size": ("vocab_size",),
    "draft_vocab_size": ("draft_vocab_size", "dflash_config.draft_vocab_size"),
    "max_position_embeddings": ("max_position_embeddings",),
    "rms_norm_eps": ("rms_norm_eps",),
    "hidden_act": ("hidden_act", "hidden_activation"),
    "attention_bias": ("attention_bias",),
    "attention_sink_bias": ("dflash_config.attention_sink_bias", "attention_sink_bias"),
    "attention_value_scale": ("dflash_config.attention_value_scale", "attention_value_scale"),
    "layer_types": ("layer_types",),
    "max_window_layers": ("max_window_layers",),
    "has_embed_tokens": ("has_embed_tokens",),
    "has_lm_head": ("has_lm_head",),
    "tie_word_embeddings": ("tie_word_embeddings",),
    "projector_type": ("dflash_config.projector_type", "projector_type"),
    "block_size": ("dflash_config.block_size", "block_size", "dspark_block_size"),
    "mask_token_id": ("dflash_config.mask_token_id", "mask_token_id", "dspark_noise_token_id", "pard_token"),
    "target_layer_ids": (
        "dflash_config.target_layer_ids",
        "target_layer_ids",
        "dspark_target_layer_ids",
        "1 + aux_hidden_state_layer_ids",
        "1 + eagle_aux_hidden_state_layer_ids",
    ),
    "use_swa": ("dflash_config.use_swa",),
    "use_sliding_window": ("use_sliding_window",),
    "sliding_window": ("dflash_config.swa_window_size", "swa_window_size", "sliding_window"),
    "is_causal": ("is_causal", "dflash_config.causal", "dflash_query_causal"),
    "sliding_window_causal": ("not sliding_window_non_causal",),
    "sample_from_anchor": ("sample_from_anchor", "dflash_config.sample_from_anchor", "not dspark_bonus_anchor"),
    "markov_rank": ("dflash_config.markov_rank", "markov_rank", "dspark_markov_rank"),
    "markov_head_type": ("dflash_config.markov_head_type", "markov_head_type"),
    "confidence_head": (
        "dflash_config.enable_confidence_head",
        "dflash_config.use_confidence_head",
        "enable_confidence_head",
        "use_confidence_head",
    ),
    "conv_kernel_size": ("dflash_config.conv_kernel_size", "conv_kernel_size"),
    "conv_group_size": ("dflash_config.conv_group_size", "conv_group_size"),
    "selector_rank": ("dflash_config.selector_rank", "selector_rank"),
    "selector_top_k": ("dflash_config.selector_top_k", "selector_top_k"),
    "output_multiplier": ("dflash_config.output_multiplier", "output_multiplier"),
    "final_logit_softcapping": ("dflash_config.final_logit_softcapping", "final_logit_softcapping"),
    "input_embedding_scale": ("dflash_config.input_embedding_scale", "input_embedding_scale"),
    "rope_is_neox_style": ("rope_is_neox_style", "is_neox_style", "not rope_interleaved"),
    "rope_theta": (
        "rope_parameters.rope_theta",
        "rope_parameters.full_attention.rope_theta",
        "rope_parameters.sliding_attention.rope_theta",
        "rope_scaling.rope_theta",
        "rope_theta",
    ),
    "backbone_rotary_base": ("dflash_config.backbone_rotary_base", "backbone_rotary_base"),
    "rope_type": (
        "rope_parameters.rope_type",
        "rope_parameters.type",
        "rope_parameters.full_attention.rope_type",
        "rope_parameters.full_attention.type",
        "rope_parameters.sliding_attention.rope_type",
        "rope_scaling.rope_type",
        "rope_scaling.type",
    ),
    "partial_rotary_factor": (
        "rope_parameters.partial_rotary_factor",
        "rope_parameters.full_attention.partial_rotary_factor",
        "rope_parameters.sliding_attention.partial_rotary_factor",
        "rope_scaling.partial_rotary_factor",
        "partial_rotary_factor",
    ),
    "original_max_position_embeddings": (
        "rope_parameters.original_max_position_embeddings",
        "rope_parameters.full_attention.original_max_position_embeddings",
        "rope_scaling.original_max_position_embeddings",
        "original_max_position_embeddings",
    ),
    **{
        field: tuple(f"{table}.{key}" for table in ROPE_TABLES for key in keys)
        for field, keys in (
            ("rope_factor", ("factor",)),
            ("low_freq_factor", ("low_freq_factor",)),
            ("high_freq_factor", ("high_freq_factor",)),
            ("mscale", ("mscale",)),
            ("mscale_all_dim", ("mscale_all_dim",)),
            ("truncate", ("truncate",)),
            ("yarn_ext_factor", ("extrapolation_factor",)),
            ("yarn_attn_factor", ("attention_factor", "attn_factor")),
            ("yarn_beta_fast", ("beta_fast",)),
            ("yarn_beta_slow", ("beta_slow",)),
        )
    },
    "enable_moe_block": ("enable_moe_block",),
    "attention_k_eq_v": ("attention_k_eq_v",),
}
"""Field -> the places where it is found. Source: the configs of z-lab, incoai, ModelOpt, NeMo, SpecForge, DeepSpec,
speculators, MiMo, Nemotron, LiquidAI and Meta."""

IGNORED: Final = frozenset(
    {
        "attention_mode", "block_size_policy", "confidence_head_alpha", "confidence_head_with_markov",
        "dflash_initial_block_size", "draft_window_size", "num_anchors", "num_target_layers", "projector_type",
        "runtime_block_size", "selector_loss_weight", "shift_label",
    }
)  # fmt: skip
"""Keys of ``dflash_config`` that speak of training or of other engines, not of what a drafter computes."""

OUTER: Final = frozenset({"tie_word_embeddings"})
"""Fields whose nested namesakes speak of something else: the verifier's layers, not the drafter."""


@dataclass(frozen=True, slots=True)
class Config:
    """Typed access to a parsed config; raises `CheckpointError` on a wrong or contradictory value.

    ``overrides`` are values that the user gave, which win; ``places`` replaces rows of `PLACES` for one family.
    """

    values: Mapping[str, Any]
    overrides: Overrides = NOTHING
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def find(self, name: str) -> tuple[str, Any] | None:
        """Place and value of a field, or None when every place is absent."""
        given = self.overrides.value(name)
        return given if given is not None else self.stated(name)

    def stated(self, name: str) -> tuple[str, Any] | None:
        """What the config itself says, whatever the user gave."""
        roots = ROOTS[:1] if name in OUTER else ROOTS
        places = [_rooted(root, place) for root in roots for place in self._places(name)]
        found = [(place, value) for place in places if (value := self._read(place)) is not None]
        for place, value in found[1:]:
            if value != found[0][1]:
                raise CheckpointError(
                    f"`{found[0][0]}` and `{place}` disagree",
                    value=f"{_text(found[0][1])} and {_text(value)}",
                    expected="one value",
                    remedy="correct config.json",
                )
        return found[0] if found else None

    def integer(self, name: str, least: int = 1, most: int = UINT_LIMIT) -> int:
        """A required integer in ``least .. most``."""
        value = self.optional_integer(name, least, most)
        if value is None:
            raise self.absent(name)
        return value

    def optional_integer(self, name: str, least: int = 1, most: int = UINT_LIMIT) -> int | None:
        """An integer in ``least .. most``, or None."""
        found = self.find(name)
        if found is None:
            return None
        place, value = found
        if type(value) is not int or not least <= value <= most:
            raise _wrong(place, value, f"an integer from {least} to {most}")
        return value

    def number(self, name: str) -> float:
        """A required positive number."""
        value = self.optional_number(name)
        if value is None:
            raise self.absent(name)
        return value

    def optional_number(self, name: str, *, zero: bool = False) -> float | None:
        """A positive number within float32, or None; ``zero`` allows 0 as well."""
        found = self.find(name)
        if found is None:
            return None
        place, value = found
        least = 0 if zero else FLOAT_LEAST
        if type(value) not in (int, float) or not least <= value <= FLOAT_LIMIT:
            raise _wrong(place, value, "a positive number that a float holds")
        return float(value)

    def boolean(self, name: str) -> bool | None:
        """True, False, or None when absent."""
        found = self.find(name)
        if found is None:
            return None
        place, value = found
        if type(value) is not bool:
            raise _wrong(place, value, "true or false")
        return value

    def string(self, name: str) -> str | None:
        """A string, or None when absent."""
        found = self.find(name)
        if found is None:
            return None
        place, value = found
        if type(value) is not str:
            raise _wrong(place, value, "a string")
        return value

    def integers(self, name: str, least: int, most: int, longest: int) -> tuple[int, ...]:
        """A required list of 1 to ``longest`` integers, each in ``least .. most``."""
        found = self.find(name)
        if found is None:
            raise self.absent(name)
        place, value = found
        good = isinstance(value, list) and 1 <= len(value) <= longest
        if not good or not all(type(n) is int and least <= n <= most for n in value):
            raise _wrong(place, value, f"a list of 1 to {longest} integers from {least} to {most}")
        return tuple(value)

    def strings(self, name: str) -> tuple[str, ...] | None:
        """A list of strings, or None when absent."""
        found = self.find(name)
        if found is None:
            return None
        place, value = found
        if not isinstance(value, list) or not all(type(item) is str for item in value):
            raise _wrong(place, value, "a list of strings")
        return tuple(value)

    def unread(self) -> tuple[str, ...]:
        """Keys of ``dflash_config`` that no field of ours is found in, and that are not known to mean nothing here."""
        nested = self.values.get("dflash_config")
        places = (place for table in (PLACES, self.places) for row in table.values() for place in row)
        known = {place.rpartition(".")[2] for place in places} | IGNORED
        return tuple(name for name in nested if name not in known) if isinstance(nested, dict) else ()

    def absent(self, name: str) -> CheckpointError:
        """The error that a required field is nowhere."""
        places = " or ".join(f"`{place}`" for place in self._places(name))
        flag = FLAGS.get(name)
        return CheckpointError(
            f"the config has no {places}", remedy=f"pass `{flag}`" if flag else "add it to config.json"
        )

    def _places(self, name: str) -> tuple[str, ...]:
        return self.places[name] if name in self.places else PLACES[name]

    def _read(self, place: str) -> Any:
        """The value at ``place``, turned round where the place says so; a value of a wrong type is left alone."""
        if place.startswith(INVERTED):
            value = self._at(place.removeprefix(INVERTED))
            return not value if type(value) is bool else value
        if place.startswith(SHIFTED):
            value = self._at(place.removeprefix(SHIFTED))
            whole = isinstance(value, list) and all(type(n) is int for n in value)
            return [n - 1 for n in value] if whole else value
        return self._at(place)

    def _at(self, place: str) -> Any:
        node: Any = self.values
        walked: list[str] = []
        for name in place.split("."):
            if not isinstance(node, dict):
                raise _wrong(".".join(walked), node, "an object")
            walked.append(name)
            node = node.get(name)
            if node is None:
                return None
        if isinstance(node, float) and not math.isfinite(node):
            raise _wrong(place, node, "a finite number")
        return node


def _rooted(root: str, place: str) -> str:
    for mark in (INVERTED, SHIFTED):
        if place.startswith(mark):
            return mark + root + place.removeprefix(mark)
    return root + place


def _wrong(place: str, value: Any, expected: str) -> CheckpointError:
    where = f"`{place}`" if place.startswith("--") else f"`{place}` in the config"
    return CheckpointError(f"{where} is {_text(value)}", expected=expected)


def _text(value: Any) -> str:
    return ascii(value)[:80]
