"""A drafter by its ``config.json`` alone: what another engine must be told of it.

Comes in: a parsed config. Goes out: a frozen `Described`. Opens no weights: where tensors would tell the kind, the
config's own words must do. Knows nothing of engines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.attention import resolve_causal, resolve_window
from dflash_gguf.convert.config import Config
from dflash_gguf.convert.families.dialects import dialect_of, label_of
from dflash_gguf.convert.families.refused import refuse_known
from dflash_gguf.convert.spec import LAYER_LIMIT, anchor_first
from dflash_gguf.errors import CheckpointError
from dflash_gguf.facts import DFLASH, DFLASH2, DSPARK
from dflash_gguf.schema import BLOCK_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

FOREIGN: Final = "give the folder of a DFlash drafter, with its config.json"


@dataclass(frozen=True, slots=True)
class Described:
    """What a drafter's config says; None where it says nothing. ``taps`` number the target's layers from 0."""

    label: str
    kind: str
    block_size: int
    mask_token_id: int | None
    taps: tuple[int, ...]
    window: int | None
    causal: bool
    anchor_first: bool
    hidden_size: int | None
    vocab_size: int | None
    n_target_layers: int | None


def describe(values: Mapping[str, Any], name: str) -> Described:
    """Read a config; ``name`` is the drafter's, for errors. Raises `CheckpointError` when it is no drafter's."""
    config = Config(values)
    label, projector = label_of(values), config.string("projector_type") or ""
    refuse_known(label, projector, ())
    kind = _kind(config, label, projector)
    dialect, _ = dialect_of(values)
    n_layers = config.optional_integer("num_hidden_layers", most=LAYER_LIMIT) or 1
    window, _ = resolve_window(config, n_layers, dialect)
    causal, _ = resolve_causal(config, n_layers, dialect)
    return Described(
        label=label,
        kind=kind,
        block_size=_block_size(config, label, name),
        mask_token_id=config.optional_integer("mask_token_id", 0),
        taps=config.integers("target_layer_ids", -1, LAYER_LIMIT - 1, LAYER_LIMIT),
        window=None if window is None else window.size,
        causal=causal,
        anchor_first=anchor_first(config, kind, dialect) is True,
        hidden_size=config.optional_integer("hidden_size"),
        vocab_size=config.optional_integer("vocab_size"),
        n_target_layers=config.optional_integer("num_target_layers"),
    )


def _kind(config: Config, label: str, projector: str) -> str:
    rank = config.optional_integer("markov_rank", 0)
    if rank or projector == DSPARK or (rank is None and "DSpark" in label):
        return DSPARK
    if config.optional_integer("conv_kernel_size") or projector == DFLASH2 or "DFlash2" in label:
        return DFLASH2
    return DFLASH


def _block_size(config: Config, label: str, name: str) -> int:
    found = config.optional_integer("block_size", 2, BLOCK_LIMIT)
    if found is None:
        raise CheckpointError(
            f"the config of `{name}` states no `block_size`",
            value=label,
            expected="the config of a drafter",
            remedy=f"{FOREIGN}, or add the block size that it was trained with",
        )
    return found
