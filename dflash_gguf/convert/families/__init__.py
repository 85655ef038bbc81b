"""The families of drafters, as a table: what marks each, and which tensors it must hold.

Comes in: a checkpoint, later a specification. Goes out: the family, and every tensor paired with its rule.
A family is a row of ``FAMILIES`` and a function that yields `TensorRule`s; the tensors tell it, not the label.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.families import deepseek4, dflash, dflash2, dspark, gemma4
from dflash_gguf.convert.families.backbone import DRAFT_TO_TARGET, EMBEDDINGS, SINKS
from dflash_gguf.convert.families.dialects import label_of
from dflash_gguf.convert.families.dspark import CONFIDENCE, FIRST_BOOK
from dflash_gguf.convert.families.refused import refuse_known
from dflash_gguf.convert.families.rules import Family, Match, Seen, TensorRule
from dflash_gguf.convert.sources import listed
from dflash_gguf.errors import CheckpointError
from dflash_gguf.facts import DFLASH2, DSPARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dflash_gguf.convert.config import Config
    from dflash_gguf.convert.sources import Tensor

__all__ = ["FAMILIES", "Family", "Match", "Seen", "TensorRule", "match_tensors", "recognise", "see"]

FAMILIES: Final[tuple[Family, ...]] = (
    deepseek4.FAMILY,
    *gemma4.FAMILIES,
    dflash2.FAMILY,
    dspark.FAMILY,
    dflash.FAMILY,
)
LAYER: Final = re.compile(r"layers\.(\d+)\.")
HEADS: Final = {
    DFLASH2: ("DFlash 2", ("conv_kernel_size", "selector_rank"), ("dflash2",)),
    DSPARK: ("DSpark", ("markov_rank",), ("dspark",)),
}
"""Kind -> its title, the fields of a config that ask for it, and its name as a projector."""


def recognise(config: Config, tensors: Mapping[str, Tensor]) -> Family:
    """The family whose marks are among the tensors.

    Raises `CheckpointError` when there is none, when it is one that cannot be converted, or when the config asks
    for parts of which there is no tensor.
    """
    label, projector = label_of(config.values), config.string("projector_type") or ""
    refuse_known(label, projector, tensors)
    family = next((row for row in FAMILIES if _marked(row, tensors)), None)
    if family is None:
        known = ", ".join(f"{row.title} (tensors named `{row.marks[0][0]}...`)" for row in FAMILIES)
        raise CheckpointError("the checkpoint is of no known family", value=label, expected=known)
    for kind, (title, fields, projectors) in HEADS.items():
        asked = [name for name in fields if config.optional_integer(name, 0)]
        if kind != family.kind and (asked or projector in projectors):
            what = f"`{asked[0]}`" if asked else f"`projector_type` {projector}"
            raise CheckpointError(
                f"an incomplete {title} drafter: the config has {what}, but the tensors are {family.title}'s"
            )
    return family


def _marked(family: Family, names: Iterable[str]) -> bool:
    listed_names = tuple(names)
    return any(all(any(mark in name for name in listed_names) for mark in marks) for marks in family.marks)


def see(family: Family, tensors: Mapping[str, Tensor]) -> Seen:
    """What the tensors alone say; raises `CheckpointError` when the vector is missing that shows a head's width."""
    norm = tensors.get(family.layout.head_mark)
    if norm is None or len(norm.shape) != 1:
        raise CheckpointError(f"the checkpoint has no vector `{family.layout.head_mark}`")
    layers = {found[1] for name in tensors if (found := LAYER.match(name))}
    return Seen(
        head_dim=norm.shape[0],
        n_layers=len(layers),
        markov_rank=_last(tensors, FIRST_BOOK, 2),
        confidence_width=_last(tensors, CONFIDENCE, 2),
        draft_vocab=_last(tensors, DRAFT_TO_TARGET, 1),
        sinks=any(name.endswith(SINKS) for name in tensors),
        embeddings=EMBEDDINGS in tensors,
    )


def _last(tensors: Mapping[str, Tensor], name: str, n_dims: int) -> int | None:
    tensor = tensors.get(name)
    return tensor.shape[-1] if tensor is not None and len(tensor.shape) == n_dims else None


def match_tensors(family: Family, tensors: Mapping[str, Tensor], rules: Iterable[TensorRule]) -> tuple[Match, ...]:
    """Pair every tensor with its rule, in the checkpoint's order; one error names all that do not fit."""
    table = {rule.source: rule for rule in rules}
    whole = {rule.group for name, rule in table.items() if name in tensors and rule.group}
    missing = [
        name for name, rule in table.items() if name not in tensors and (not rule.optional or rule.group in whole)
    ]
    wrong = [
        f"{name} {list(tensor.shape)} for {list(table[name].shape)}"
        for name, tensor in tensors.items()
        if name in table and (tensor.shape or (1,)) != table[name].shape
    ]
    unknown = [tensor.name for name, tensor in tensors.items() if name not in table]
    faults = (("missing", missing), ("unknown", unknown), ("of another shape", wrong))
    text = "; ".join(f"{title}: {listed(names)}" for title, names in faults if names)
    if text:
        raise CheckpointError(f"the tensors are not those of a {family.title} drafter: {text}")
    return tuple(Match(table[name], tensor) for name, tensor in tensors.items())
