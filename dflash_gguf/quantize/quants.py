"""The output types, as a table: llama-quantize's names, and two of our own.

Comes in: a name. Goes out: a row of the table. Knows nothing of tensors.
Source: llama.cpp tools/quantize/quantize.cpp, ``QUANT_OPTIONS``; include/llama.h, ``llama_ftype``; src/llama-quant.cpp,
``llama_ftype_get_default_type`` (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dflash_gguf.errors import QuantizeError, brief
from dflash_gguf.ggml_types import BY_NAME, GGML_TYPES


@dataclass(frozen=True, slots=True)
class Quant:
    """An output type: llama.cpp's ``ftype``, the ggml type of most tensors, whether others are mixed in."""

    name: str
    ftype: int
    type: int

    @property
    def mixed(self) -> bool:
        """Whether the file is quantized, so that libllama chooses a type for each tensor."""
        return GGML_TYPES[self.type].block > 1


_ROWS: Final = (
    ("F32", 0, "F32"), ("F16", 1, "F16"), ("BF16", 32, "BF16"),
    ("Q8_0", 7, "Q8_0"), ("Q6_K", 18, "Q6_K"),
    ("Q5_K_M", 17, "Q5_K"), ("Q5_K_S", 16, "Q5_K"), ("Q5_1", 9, "Q5_1"), ("Q5_0", 8, "Q5_0"),
    ("Q4_K_M", 15, "Q4_K"), ("Q4_K_S", 14, "Q4_K"), ("Q4_1", 3, "Q4_1"), ("Q4_0", 2, "Q4_0"),
    ("IQ4_NL", 25, "IQ4_NL"), ("IQ4_XS", 30, "IQ4_XS"), ("MXFP4_MOE", 38, "MXFP4"),
    ("Q3_K_L", 13, "Q3_K"), ("Q3_K_M", 12, "Q3_K"), ("Q3_K_S", 11, "Q3_K"),
    ("IQ3_M", 27, "IQ3_S"), ("IQ3_S", 26, "IQ3_S"), ("IQ3_XS", 22, "IQ3_S"), ("IQ3_XXS", 23, "IQ3_XXS"),
    ("Q2_K", 10, "Q2_K"), ("Q2_K_S", 21, "Q2_K"), ("Q2_0", 41, "Q2_0"),
    ("IQ2_M", 29, "IQ2_S"), ("IQ2_S", 28, "IQ2_XS"), ("IQ2_XS", 20, "IQ2_XS"), ("IQ2_XXS", 19, "IQ2_XXS"),
    ("TQ2_0", 37, "TQ2_0"), ("TQ1_0", 36, "TQ1_0"), ("IQ1_M", 31, "IQ1_M"), ("IQ1_S", 24, "IQ1_S"),
    ("Q1_0", 40, "Q1_0"),
)  # fmt: skip
QUANTS: Final[dict[str, Quant]] = {name: Quant(name, ftype, BY_NAME[kind].id) for name, ftype, kind in _ROWS}
ALIASES: Final[dict[str, str]] = {
    "Q3_K": "Q3_K_M",
    "Q4_K": "Q4_K_M",
    "Q5_K": "Q5_K_M",
    "int4": "Q4_0",
    "int8": "Q8_0",
}
"""The first three are llama-quantize's."""
QUANT_NAMES: Final = (*QUANTS, *ALIASES)
DEFAULT_QUANT: Final = "Q4_K_M"
COPY: Final = Quant("COPY", -1, BY_NAME["F32"].id)
"""No type: every tensor of a GGUF stays as it is. llama-quantize has it among its types."""


def resolve_quant(name: str) -> Quant:
    """The row for ``name`` or its alias, in any case; raises `QuantizeError` when there is none."""
    wanted = {alias.upper(): row for alias, row in ALIASES.items()}.get(name.upper(), name.upper())
    if wanted == COPY.name:
        return COPY
    if wanted not in QUANTS:
        known = ", ".join(QUANT_NAMES)
        raise QuantizeError("unknown output type", value=brief(name), expected=f"one of {known}")
    return QUANTS[wanted]
