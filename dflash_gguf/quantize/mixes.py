"""Named type assignments for drafters, chosen by measurement: see docs/quantize.md.

Comes in: a name. Goes out: a row of the table. Each is a type and llama-quantize's own options, so that it makes the
same file: ``llama-quantize --pure --tensor-type ... IN OUT TYPE``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dflash_gguf.errors import QuantizeError, brief

LOOKED_UP: Final = ("selector_(predecessor|successor)", "q8_0"), ("markov_w1", "q8_0")
"""Tables of which single rows are taken: no activation runs through them, so no matrix says which columns matter."""


@dataclass(frozen=True, slots=True)
class Mix:
    """``quant`` for every tensor but those that ``tensor_types`` name; ``about`` says what for."""

    name: str
    quant: str
    tensor_types: tuple[tuple[str, str], ...]
    about: str


_ROWS: Final = (
    Mix(
        "linear4",
        "Q4_K_S",
        (*LOOKED_UP, ("selector_hidden", "q8_0"), ("conv_proj", "q8_0"), ("^fc", "q8_0")),
        "4-bit layers; selector, convolution projections and fc at 8 bits",
    ),
)
MIXES: Final[dict[str, Mix]] = {mix.name: mix for mix in _ROWS}


def mix_named(name: str) -> Mix:
    """The row for ``name``; raises `QuantizeError` when there is none."""
    if name.lower() not in MIXES:
        raise QuantizeError("unknown mix", value=brief(name), expected=f"one of {', '.join(MIXES)}")
    return MIXES[name.lower()]
