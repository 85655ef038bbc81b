"""What a family is, and what it says about one tensor.

Comes in: nothing. Goes out: the frozen values that the family files fill and the plan reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dflash_gguf.convert.rope import Rope, resolve_rope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dflash_gguf.convert.config import Config
    from dflash_gguf.convert.sources import Tensor
    from dflash_gguf.convert.spec import DrafterSpec


@dataclass(frozen=True, slots=True)
class TensorRule:
    """One tensor that a family knows: its plain name, its GGUF name, its shape in PyTorch order.

    ``rotary`` marks rows (or values) that rotary position pairs up, in heads of the specification's width.
    ``dropped`` is the reason for which it is left out. ``group``: either all tensors of a group are there or none.
    """

    source: str
    name: str
    shape: tuple[int, ...]
    optional: bool = False
    rotary: bool = False
    dropped: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """A tensor of the checkpoint and the rule that it follows."""

    rule: TensorRule
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Seen:
    """What the tensors alone say: sizes that a config may leave out, and which optional parts there are."""

    head_dim: int
    n_layers: int = 0
    markov_rank: int | None = None
    confidence_width: int | None = None
    draft_vocab: int | None = None
    sinks: bool = False
    embeddings: bool = False


@dataclass(frozen=True, slots=True)
class Stages:
    """What DeepSeek-V4's stages have beside the sizes of every drafter."""

    window: int
    query_rank: int
    output_groups: int
    output_rank: int
    n_experts: int
    n_used: int
    n_shared: int
    weights_scale: float
    weights_norm: bool
    clamp: float
    streams: int
    sinkhorn_iterations: int
    connection_eps: float
    indexer: tuple[int, ...]
    compress_rope_base: float


def _nothing(_config: Config) -> None:
    return


def _as_they_are(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return dict(tensors)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a drafter's layers are built, and where its config says so; the default is Qwen3's.

    ``head_mark``: the vector whose length is that of a head. ``counts_layers``: the config counts another model's.
    ``keeps_types``: an unquantized file holds the types of the checkpoint. ``prepare`` puts tensors together.
    """

    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rope: Callable[..., tuple[Rope, tuple[str, ...]]] = resolve_rope
    activation: str = "silu"
    states_activation: bool = False
    attention_scale: float | None = None
    scales_embeddings: bool = False
    refuse: Callable[[Config], None] = _nothing
    head_mark: str = "layers.0.self_attn.q_norm.weight"
    counts_layers: bool = False
    keeps_types: bool = False
    stages: Callable[[Config], Stages] | None = None
    prepare: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] = _as_they_are


QWEN3 = Layout()


@dataclass(frozen=True, slots=True)
class Family:
    """One row of the table. ``marks`` are alternatives: parts of tensor names that must all occur."""

    kind: str
    title: str
    marks: tuple[tuple[str, ...], ...]
    rules: Callable[[DrafterSpec], Iterator[TensorRule]]
    layout: Layout = QWEN3
