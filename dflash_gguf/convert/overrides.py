"""What the user may say in the place of a config: values that it lacks, or that its authors left open.

Comes in: nothing. Goes out: `Overrides`, and the table of its flags, from which the command line is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Flag:
    """One value: its attribute in `Overrides`, the field of the config that it stands for, its flag and help."""

    attribute: str
    field: str
    flag: str
    help: str
    kind: type = int
    off: str = ""

    @property
    def usage(self) -> str:
        """The flag as it is typed."""
        return f"{self.flag}/{self.off}" if self.off else self.flag


TABLE: Final = (
    Flag("block_size", "block_size", "--block-size", "Rows of a block, where the config states none."),
    Flag("mask_token_id", "mask_token_id", "--mask-token-id", "Id of the mask token."),
    Flag(
        "target_layers",
        "target_layer_ids",
        "--target-layers",
        "Target layers whose outputs the drafter reads, as in `target_layer_ids`: 1,9,17.",
        kind=tuple,
    ),
    Flag("rope_theta", "rope_theta", "--rope-theta", "Base of the rotary positions.", kind=float),
    Flag(
        "embedding_scale",
        "input_embedding_scale",
        "--embedding-scale",
        "Factor of the token embeddings; default: the root of the hidden size for Gemma targets, or none.",
        kind=float,
    ),
    Flag(
        "partial_rotary_factor",
        "partial_rotary_factor",
        "--partial-rotary-factor",
        "Part of each head that rotary positions turn; default: the config's where it was trained with, or all.",
        kind=float,
    ),
    Flag(
        "causal",
        "is_causal",
        "--causal",
        "Whether a block's rows see only the rows before them; default: what the config means.",
        kind=bool,
        off="--no-causal",
    ),
    Flag(
        "sample_from_anchor",
        "sample_from_anchor",
        "--sample-from-anchor",
        "Whether the anchor's own row is the first proposal; default: what the config means.",
        kind=bool,
        off="--bonus-anchor",
    ),
)
FLAGS: Final = {row.field: row.usage for row in TABLE}
"""Field of a config -> the flag that supplies it."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """Values that win over the config; None leaves the matter to the config.

    ``target_layers`` number the layers whose outputs are read, from 0, as ``target_layer_ids`` do.
    """

    block_size: int | None = None
    mask_token_id: int | None = None
    target_layers: tuple[int, ...] | None = None
    rope_theta: float | None = None
    embedding_scale: float | None = None
    partial_rotary_factor: float | None = None
    causal: bool | None = None
    sample_from_anchor: bool | None = None

    def value(self, field: str) -> tuple[str, Any] | None:
        """The flag and the value that were given for a field of the config, or None."""
        for row in TABLE:
            given = getattr(self, row.attribute) if row.field == field else None
            if given is not None:
                return row.usage, list(given) if row.kind is tuple else given
        return None


NOTHING: Final = Overrides()
