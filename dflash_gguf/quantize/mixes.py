"""Named type assignments for drafters, chosen by measurement: see docs/quantize.md.

Comes in: a name. Goes out: a row of the table. Each is a type and llama-quantize's own options, so that it makes the
same file: ``llama-quantize --pure --tensor-type ... IN OUT TYPE``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dflash_gguf.errors import QuantizeError, brief

TABLES: Final = "selector_(pre|suc)|markov_w1"
"""Tables of which single rows are taken: no activation runs through them, so no matrix says which columns matter."""
SENSITIVE: Final = "attn_(v|output)|^fc"
"""What costs most acceptance for each bit that it loses."""


@dataclass(frozen=True, slots=True)
class Mix:
    """``quant`` for every tensor but those that ``tensor_types`` name; ``about`` says what for."""

    name: str
    quant: str
    tensor_types: tuple[tuple[str, str], ...]
    about: str


_ROWS: Final = (
    Mix(
        "even",
        "IQ4_XS",
        ((SENSITIVE, "q5_k"), (TABLES, "iq3_s")),
        "smaller than Q4_K_M and as good: 5 bits for fc and attention's values and output, 3 for what is looked up",
    ),
    Mix(
        "lean",
        "IQ3_S",
        ((SENSITIVE, "q4_k"),),
        "3 bits, and 4 for fc and attention's values and output; better than Q3_K_M, and smaller",
    ),
    Mix(
        "least",
        "Q2_K",
        ((SENSITIVE, "q4_k"), ("ffn_down", "q3_k")),
        "2 bits where it costs least",
    ),
    Mix(
        "iq2",
        "IQ2_S",
        ((TABLES, "q8_0"), (SENSITIVE, "q4_k"), ("ffn_down", "iq3_s"), ("selector_hidden|conv_proj", "q8_0")),
        "IQ2_S, which needs an importance matrix, with 8 bits for the tables that have none",
    ),
)
MIXES: Final[dict[str, Mix]] = {mix.name: mix for mix in _ROWS}


def mix_named(name: str) -> Mix:
    """The row for ``name``; raises `QuantizeError` when there is none."""
    if name.lower() not in MIXES:
        raise QuantizeError("unknown mix", value=brief(name), expected=f"one of {', '.join(MIXES)}")
    return MIXES[name.lower()]
