"""What an importance matrix changes of libllama's choice of types, and which types need one.

Comes in: a type, the tensors' names in llama-quantize's order. Goes out: the tensors that get another type.
``llama_quant_compute_types`` decides as if there were no matrix, so these rules are ours.
Source: llama.cpp src/llama-quant.cpp, ``llama_tensor_get_type_impl`` wherever it asks ``has_imatrix``, and
``tensor_requires_imatrix`` (0.5.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dflash_gguf.ggml_types import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.quantize.selection import ModelSizes

FFN_DOWN: Final = re.compile(r"ffn_down")
ATTN_V: Final = re.compile(r"attn_(qkv|kv_b|v)\.weight")
LAYER: Final = re.compile(r"blk\.(\d+)\.")
EIGHT_EXPERTS: Final = 8
MANY_QUERIES: Final = 4
"""Query heads a key head, from which on `attn_v` is not worth saving at."""


@dataclass(frozen=True, slots=True)
class Rule:
    """In a file of ``quant``, tensors that ``name`` is found in are made as in a pure file of ``becomes``."""

    quant: str
    name: re.Pattern[str]
    becomes: str
    where: Literal["first eighth of the layers", "everywhere", "few queries a key"]


RULES: Final = (
    Rule("Q4_0", FFN_DOWN, "Q4_1", "first eighth of the layers"),
    Rule("Q5_0", FFN_DOWN, "Q5_1", "first eighth of the layers"),
    Rule("IQ4_NL", FFN_DOWN, "IQ4_NL", "first eighth of the layers"),
    Rule("IQ4_XS", FFN_DOWN, "IQ4_XS", "first eighth of the layers"),
    Rule("IQ3_XXS", FFN_DOWN, "IQ3_XXS", "everywhere"),
    Rule("IQ3_XXS", ATTN_V, "IQ3_XXS", "few queries a key"),
)
"""The third and fourth: without a matrix these layers get Q5_K. The last two: Q4_K or Q3_K, and IQ3_S."""

NEEDING: Final = frozenset(BY_NAME[name].id for name in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"))
NEEDING_IN: Final = {"Q2_K_S": frozenset({BY_NAME["Q2_K"].id})}
"""File type -> tensor types that need a matrix in it alone."""
EXEMPT: Final = frozenset({"token_embd.weight", "output.weight"})
"""llama-quantize asks for no matrix here."""
NEEDING_ANYWHERE: Final = frozenset(BY_NAME[name].id for name in ("IQ1_S", "IQ2_XXS", "IQ2_XS"))
"""What ggml makes none of without weights: llama-quantize ends in an assertion (``ggml_quantize_requires_imatrix``)."""


def needs_matrix(quant: str, name: str, kind: int) -> bool:
    """Whether llama-quantize makes no tensor ``name`` of type ``kind`` without a matrix."""
    needing = NEEDING_ANYWHERE if name in EXEMPT else NEEDING | NEEDING_IN.get(quant, frozenset())
    return kind in needing


def changes(quant: str, sizes: ModelSizes, names: Sequence[str], standard: Sequence[bool]) -> dict[int, str]:
    """Index of a tensor -> the type of the file that it is made as; ``standard``: no option decided its type."""
    rules = [rule for rule in RULES if rule.quant == quant]
    found: dict[int, str] = {}
    for rule in rules:
        seen = 0
        for i, (name, by_mixture) in enumerate(zip(names, standard, strict=True)):
            if by_mixture and rule.name.search(name):
                if _applies(rule, sizes, seen if sizes.n_expert <= 1 else _layer(name)):
                    found[i] = rule.becomes
                seen += 1
    return found


def _applies(rule: Rule, sizes: ModelSizes, layer: int) -> bool:
    if rule.where == "first eighth of the layers":
        return layer < sizes.n_layer // 8
    if rule.where == "few queries a key":
        return sizes.n_head // sizes.n_head_kv < MANY_QUERIES and sizes.n_expert != EIGHT_EXPERTS
    return True


def _layer(name: str) -> int:
    found = LAYER.match(name)
    return int(found[1]) if found else -1
