"""One question to a drafter's config, whatever place and spelling its authors chose for the answer.

Comes in: a parsed ``config.json`` and the name of a field. Goes out: its value, checked. Places that hold the
same value are fine; places that hold different ones are an error. A JSON null counts as absent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

UINT_LIMIT: Final = (1 << 31) - 1
FLOAT_LIMIT: Final = 3.4028235e38

PLACES: Final[dict[str, tuple[str, ...]]] = {
    "hidden_size": ("hidden_size",),
    "intermediate_size": ("intermediate_size",),
    "num_hidden_layers": ("num_hidden_layers",),
    "num_attention_heads": ("num_attention_heads",),
    "num_key_value_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "vocab_size": ("vocab_size",),
    "max_position_embeddings": ("max_position_embeddings",),
    "rms_norm_eps": ("rms_norm_eps",),
    "hidden_act": ("hidden_act", "hidden_activation"),
    "attention_bias": ("attention_bias",),
    "layer_types": ("layer_types",),
    "max_window_layers": ("max_window_layers",),
    "has_embed_tokens": ("has_embed_tokens",),
    "block_size": ("dflash_config.block_size", "block_size", "dspark_block_size"),
    "mask_token_id": ("dflash_config.mask_token_id", "mask_token_id", "dspark_noise_token_id"),
    "target_layer_ids": (
        "dflash_config.target_layer_ids",
        "target_layer_ids",
        "dspark_target_layer_ids",
    ),
    "use_swa": ("dflash_config.use_swa",),
    "use_sliding_window": ("use_sliding_window",),
    "sliding_window": ("dflash_config.swa_window_size", "swa_window_size", "sliding_window"),
    "is_causal": ("is_causal", "dflash_config.causal", "dflash_query_causal"),
    "conv_kernel_size": ("dflash_config.conv_kernel_size", "conv_kernel_size"),
    "conv_group_size": ("dflash_config.conv_group_size", "conv_group_size"),
    "selector_rank": ("dflash_config.selector_rank", "selector_rank"),
    "selector_top_k": ("dflash_config.selector_top_k", "selector_top_k"),
    "output_multiplier": ("dflash_config.output_multiplier", "output_multiplier"),
    "final_logit_softcapping": ("dflash_config.final_logit_softcapping", "final_logit_softcapping"),
    "input_embedding_scale": ("dflash_config.input_embedding_scale", "input_embedding_scale"),
    "rope_is_neox_style": ("rope_is_neox_style", "is_neox_style"),
    "rope_theta": (
        "rope_parameters.rope_theta",
        "rope_parameters.full_attention.rope_theta",
        "rope_parameters.sliding_attention.rope_theta",
        "rope_scaling.rope_theta",
        "rope_theta",
    ),
    "rope_type": (
        "rope_parameters.rope_type",
        "rope_parameters.type",
        "rope_parameters.full_attention.rope_type",
        "rope_parameters.sliding_attention.rope_type",
        "rope_scaling.rope_type",
        "rope_scaling.type",
    ),
    "partial_rotary_factor": (
        "rope_parameters.partial_rotary_factor",
        "rope_scaling.partial_rotary_factor",
        "partial_rotary_factor",
    ),
    "rope_factor": ("rope_parameters.factor", "rope_scaling.factor"),
    "original_max_position_embeddings": (
        "rope_parameters.original_max_position_embeddings",
        "rope_scaling.original_max_position_embeddings",
        "original_max_position_embeddings",
    ),
    "yarn_ext_factor": ("rope_parameters.extrapolation_factor", "rope_scaling.extrapolation_factor"),
    "yarn_attn_factor": (
        "rope_parameters.attention_factor",
        "rope_parameters.attn_factor",
        "rope_scaling.attention_factor",
        "rope_scaling.attn_factor",
    ),
    "yarn_beta_fast": ("rope_parameters.beta_fast", "rope_scaling.beta_fast"),
    "yarn_beta_slow": ("rope_parameters.beta_slow", "rope_scaling.beta_slow"),
}
"""Field -> the places where it is found. Source: z-lab, incoai, ModelOpt, NeMo and SpecForge configs."""


@dataclass(frozen=True, slots=True)
class Config:
    """Typed access to a parsed config; raises `CheckpointError` on a wrong or contradictory value."""

    values: Mapping[str, Any]

    def find(self, field: str) -> tuple[str, Any] | None:
        """Place and value of ``field``, or None when every place is absent."""
        found = [(place, value) for place in PLACES[field] if (value := self._at(place)) is not None]
        for place, value in found[1:]:
            if value != found[0][1]:
                raise CheckpointError(
                    f"`{found[0][0]}` and `{place}` disagree",
                    value=f"{_text(found[0][1])} and {_text(value)}",
                    expected="one value",
                    remedy="correct config.json",
                )
        return found[0] if found else None

    def integer(self, field: str, least: int = 1, most: int = UINT_LIMIT) -> int:
        """A required integer in ``least .. most``."""
        value = self.optional_integer(field, least, most)
        if value is None:
            raise self.absent(field)
        return value

    def optional_integer(self, field: str, least: int = 1, most: int = UINT_LIMIT) -> int | None:
        """An integer in ``least .. most``, or None."""
        found = self.find(field)
        if found is None:
            return None
        place, value = found
        if type(value) is not int or not least <= value <= most:
            raise _wrong(place, value, f"an integer from {least} to {most}")
        return value

    def number(self, field: str) -> float:
        """A required positive number."""
        value = self.optional_number(field)
        if value is None:
            raise self.absent(field)
        return value

    def optional_number(self, field: str, *, zero: bool = False) -> float | None:
        """A positive number within float32, or None; ``zero`` allows 0 as well."""
        found = self.find(field)
        if found is None:
            return None
        place, value = found
        if type(value) not in (int, float) or not 0 <= value <= FLOAT_LIMIT or not (zero or value > 0):
            raise _wrong(place, value, "a positive number")
        return float(value)

    def boolean(self, field: str) -> bool | None:
        """True, False, or None when absent."""
        found = self.find(field)
        if found is None:
            return None
        place, value = found
        if type(value) is not bool:
            raise _wrong(place, value, "true or false")
        return value

    def string(self, field: str) -> str | None:
        """A string, or None when absent."""
        found = self.find(field)
        if found is None:
            return None
        place, value = found
        if type(value) is not str:
            raise _wrong(place, value, "a string")
        return value

    def integers(self, field: str, least: int, most: int, longest: int) -> tuple[int, ...]:
        """A required list of 1 to ``longest`` integers, each in ``least .. most``."""
        found = self.find(field)
        if found is None:
            raise self.absent(field)
        place, value = found
        good = isinstance(value, list) and 1 <= len(value) <= longest
        if not good or not all(type(n) is int and least <= n <= most for n in value):
            raise _wrong(place, value, f"a list of 1 to {longest} integers from {least} to {most}")
        return tuple(value)

    def strings(self, field: str) -> tuple[str, ...] | None:
        """A list of strings, or None when absent."""
        found = self.find(field)
        if found is None:
            return None
        place, value = found
        if not isinstance(value, list) or not all(type(item) is str for item in value):
            raise _wrong(place, value, "a list of strings")
        return tuple(value)

    def absent(self, field: str) -> CheckpointError:
        """The error that a required field is nowhere."""
        places = " or ".join(f"`{place}`" for place in PLACES[field])
        return CheckpointError(f"the config has no {places}", remedy="add it to config.json")

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


def _wrong(place: str, value: Any, expected: str) -> CheckpointError:
    return CheckpointError(f"`{place}` in the config is {_text(value)}", expected=expected)


def _text(value: Any) -> str:
    return ascii(value)[:80]
