"""The tensor types of ggml: number, name, block length and block bytes.

Comes in: a type number or name. Goes out: sizes. Knows nothing of files. Numbers that ggml once used and
dropped are absent. Source: llama.cpp ggml/include/ggml.h (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class GGMLType:
    """One tensor type: ``block`` values take ``nbytes`` bytes."""

    id: int
    name: str
    block: int
    nbytes: int


_ROWS: Final = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)

GGML_TYPES: Final[dict[int, GGMLType]] = {row[0]: GGMLType(*row) for row in _ROWS}
BY_NAME: Final[dict[str, GGMLType]] = {kind.name: kind for kind in GGML_TYPES.values()}

F32: Final = BY_NAME["F32"].id
F16: Final = BY_NAME["F16"].id
BF16: Final = BY_NAME["BF16"].id


def type_name(type_id: int) -> str:
    """Name of a type, or its number when ggml has none."""
    kind = GGML_TYPES.get(type_id)
    return f"type {type_id}" if kind is None else kind.name


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape in ggml order without the ones at its end, which ggml drops."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def row_bytes(type_id: int, n_per_row: int) -> int:
    """Bytes of one row; ``n_per_row`` must be a multiple of the type's block."""
    kind = GGML_TYPES[type_id]
    return n_per_row // kind.block * kind.nbytes


def tensor_bytes(type_id: int, shape: Sequence[int]) -> int:
    """Bytes of a tensor of ``shape`` (ggml order: row length first), without padding."""
    return row_bytes(type_id, shape[0]) * prod(shape[1:])
