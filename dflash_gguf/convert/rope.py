"""Rotary position in normal form: its base, its stretching, the values that it turns.

Comes in: a config. Goes out: a frozen `Rope` and notes.
Source: transformers modeling_rope_utils.py; llama.cpp src/llama-context.cpp, conversion/{base,llama}.py (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_gguf.convert.config import Config

UNSCALED: Final = (None, "default")
BETAS: Final = {"yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0}
"""What llama.cpp's dflash uses whatever the file says."""
TRIVIAL: Final = 1e-6
MEASURED_NOISE: Final = "DeepSpec issue 71: 1.4 tokens accepted with it, 2.53 without"


@dataclass(frozen=True, slots=True)
class Rope:
    """``scaling`` is None, ``linear`` or ``yarn``; ``dimensions`` (None: all) of each head are turned.

    ``magnitude`` corrects what llama.cpp multiplies rotated values by under YaRN; ``factors`` divide the
    frequencies (``rope_freqs.weight``). ``interleaved``: pairs are neighbours in the checkpoint.
    """

    base: float
    scaling: str | None = None
    factor: float | None = None
    original_context: int | None = None
    ext_factor: float | None = None
    attn_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    interleaved: bool = False
    dimensions: int | None = None
    magnitude: float | None = None
    factors: tuple[float, ...] | None = None


Notes = tuple[str, ...]


def resolve_rope(config: Config, head_dim: int, *, copies_target: bool) -> tuple[Rope, Notes]:
    """Resolve the rotary keys; ``copies_target``: a partial rotation in the config was not trained with.

    Raises `CheckpointError` on a value that is absent, contradictory, or that llama.cpp cannot hold.
    """
    base = config.number("rope_theta")
    if base < 1:
        raise CheckpointError("`rope_theta`", value=base, expected="at least 1")
    interleaved = config.boolean("rope_is_neox_style") is False
    dimensions, notes = _dimensions(config, head_dim, copies_target=copies_target)
    notes += _other_base(config, base)
    kind = config.string("rope_type")
    if kind in UNSCALED:
        return Rope(base, interleaved=interleaved, dimensions=dimensions), notes
    if kind not in SCALINGS:
        known = ", ".join(("default", *SCALINGS))
        raise CheckpointError("rope scaling in the config", value=ascii(kind)[1:-1][:80], expected=f"one of {known}")
    rope, more = SCALINGS[kind](config, base, head_dim)
    return _with(rope, interleaved, dimensions), notes + more


def _with(rope: Rope, interleaved: bool, dimensions: int | None) -> Rope:
    if rope.factors is not None and (interleaved or dimensions is not None):
        raise CheckpointError("llama3 rope scaling together with interleaved or partial rotation")
    return Rope(
        rope.base,
        rope.scaling,
        rope.factor,
        rope.original_context,
        rope.ext_factor,
        rope.attn_factor,
        rope.beta_fast,
        rope.beta_slow,
        interleaved,
        dimensions,
        rope.magnitude,
        rope.factors,
    )


def _dimensions(config: Config, head_dim: int, *, copies_target: bool) -> tuple[int | None, Notes]:
    """Values of a head that are turned, None for all of them."""
    part = config.optional_number("partial_rotary_factor")
    if part is None or part == 1:
        return None, ()
    if copies_target and config.overrides.partial_rotary_factor is None:
        # transformers' Qwen3 turns whole heads whatever this inherited key says.
        why = f"it is a copy of the target's, and the drafter was trained with whole heads ({MEASURED_NOISE})"
        return None, (f"`partial_rotary_factor` {part} was left out: {why}",)
    dimensions = int(head_dim * part)
    if not 0 < dimensions <= head_dim or dimensions % 2 or dimensions != head_dim * part:
        raise CheckpointError(
            "`partial_rotary_factor` in the config", value=part, expected=f"an even part of the {head_dim} of a head"
        )
    if config.overrides.partial_rotary_factor is not None:
        return dimensions, ()
    what = f"{dimensions} of the {head_dim} values of a head are turned, as `partial_rotary_factor` says"
    return dimensions, (f"{what}; `--partial-rotary-factor 1` turns all",)


def _other_base(config: Config, base: float) -> Notes:
    """MiMo's second base: ik_llama.cpp (PR 2048) reads it for the injected keys, llama.cpp and vLLM do not."""
    other = config.optional_number("backbone_rotary_base")
    if other is None or other == base:
        return ()
    return (
        f"`backbone_rotary_base` {other:g} is not used, `rope_theta` {base:g} is; `--rope-theta` decides otherwise",
    )


def _linear(config: Config, base: float, _head_dim: int) -> tuple[Rope, Notes]:
    return Rope(base, "linear", config.number("rope_factor")), ()


def _yarn(config: Config, base: float, _head_dim: int) -> tuple[Rope, Notes]:
    factor = config.number("rope_factor")
    rope = Rope(
        base,
        "yarn",
        factor,
        config.integer("original_max_position_embeddings"),
        config.optional_number("yarn_ext_factor", zero=True),
        config.optional_number("yarn_attn_factor"),
        config.optional_number("yarn_beta_fast"),
        config.optional_number("yarn_beta_slow"),
        magnitude=_magnitude(config, factor),
    )
    return rope, tuple(_ignored(config))


def _magnitude(config: Config, factor: float) -> float | None:
    """The factor that turns llama.cpp's own magnitude into the config's; None when they agree.

    llama.cpp always multiplies by ``0.1 ln(factor) + 1`` and then by ``rope.scaling.attn_factor``; transformers
    takes the config's ``attention_factor``, or else a ratio of ``mscale`` and ``mscale_all_dim`` if both are given.
    """
    own = _mscale(factor, 1)
    stated = config.optional_number("yarn_attn_factor")
    scale, everywhere = config.optional_number("mscale"), config.optional_number("mscale_all_dim")
    if stated is None and scale is not None and everywhere is not None:
        stated = _mscale(factor, scale) / _mscale(factor, everywhere)
    return None if stated is None or abs(stated / own - 1) < TRIVIAL else stated / own


def _mscale(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * log(factor) + 1


def _ignored(config: Config) -> list[str]:
    notes = [
        f"llama.cpp takes {default:g} for `{name.removeprefix('yarn_')}`, the config says {value:g}: "
        "positions far from the start differ a little"
        for name, default in BETAS.items()
        if (value := config.optional_number(name)) is not None and value != default
    ]
    if config.boolean("truncate") is False:
        notes.append("llama.cpp has no key for `truncate: false` of YaRN: some frequencies differ a little")
    return notes


def _llama3(config: Config, base: float, head_dim: int) -> tuple[Rope, Notes]:
    factor, context = config.number("rope_factor"), config.integer("original_max_position_embeddings")
    low, high = config.number("low_freq_factor"), config.number("high_freq_factor")
    if not low < high:
        raise CheckpointError(
            "`low_freq_factor` of llama3 rope scaling", value=low, expected=f"less than `high_freq_factor` {high}"
        )
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * pi * base ** (i / head_dim)
        smooth = min(1.0, max(0.0, (context / wavelength - low) / (high - low)))
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return Rope(base, factors=tuple(factors)), ()


SCALINGS: Final[dict[str, Callable[[Config, float, int], tuple[Rope, Notes]]]] = {
    "linear": _linear,
    "yarn": _yarn,
    "llama3": _llama3,
}
