"""What a family is, and what it says about one tensor.

Comes in: nothing. Goes out: the frozen values that the family files fill and the plan reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dflash_gguf.convert.safetensors_header import TensorEntry
    from dflash_gguf.convert.spec import DrafterSpec


@dataclass(frozen=True, slots=True)
class TensorRule:
    """One tensor that a family knows: its plain name, its GGUF name, its shape in PyTorch order.

    ``rotary`` marks rows (or values) that rotary position pairs up, in heads of the specification's width.
    """

    source: str
    name: str
    shape: tuple[int, ...]
    optional: bool = False
    rotary: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """A tensor of the checkpoint and the rule that it follows."""

    rule: TensorRule
    entry: TensorEntry


@dataclass(frozen=True, slots=True)
class Family:
    """One row of the table: a tensor whose name holds one of ``marks`` tells the family."""

    kind: str
    title: str
    marks: tuple[str, ...]
    rules: Callable[[DrafterSpec], Iterator[TensorRule]]
    selector: bool = False
