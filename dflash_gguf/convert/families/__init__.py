"""The families of drafters, as a table: what marks each, and which tensors it must hold.

Comes in: a checkpoint, later a specification. Goes out: the family, and every tensor paired with its rule.
A family is a row of ``FAMILIES`` and a function that yields `TensorRule`s; its kind follows from its tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.families import dflash2
from dflash_gguf.convert.families.rules import Family, Match, TensorRule
from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dflash_gguf.convert.checkpoint import Checkpoint
    from dflash_gguf.convert.safetensors_header import TensorEntry

__all__ = ["FAMILIES", "Family", "Match", "TensorRule", "match_tensors", "plain_names", "recognise"]

FAMILIES: Final[tuple[Family, ...]] = (dflash2.FAMILY,)
SHOWN: Final = 8
PREFIX: Final = "model."


def plain_names(checkpoint: Checkpoint) -> dict[str, TensorEntry]:
    """Tensors under their names without the ``model.`` that some authors put before them."""
    plain: dict[str, TensorEntry] = {}
    for name, entry in checkpoint.tensors.items():
        bare = name.removeprefix(PREFIX)
        if bare in plain:
            raise CheckpointError(f"the checkpoint holds both `{bare}` and `{PREFIX}{bare}`")
        plain[bare] = entry
    return plain


def recognise(checkpoint: Checkpoint) -> Family:
    """The family whose mark is among the tensors; raises `CheckpointError` when there is none."""
    names = plain_names(checkpoint)
    for family in FAMILIES:
        if any(mark in name for name in names for mark in family.marks):
            return family
    label = checkpoint.config.get("architectures")
    known = ", ".join(f"{family.title} (tensors named `{family.marks[0]}...`)" for family in FAMILIES)
    raise CheckpointError(f"`{checkpoint.folder}` is of no known family", value=ascii(label)[:80], expected=known)


def match_tensors(family: Family, entries: dict[str, TensorEntry], rules: Iterable[TensorRule]) -> tuple[Match, ...]:
    """Pair every tensor with its rule, in the checkpoint's order; one error names all that do not fit."""
    table = {rule.source: rule for rule in rules}
    faults = [
        _fault("missing", [s for s, rule in table.items() if s not in entries and not rule.optional]),
        _fault("unknown", [name for name in entries if name not in table]),
        _fault(
            "of another shape",
            [_mismatch(n, e, table[n]) for n, e in entries.items() if _differs(e, table.get(n))],
        ),
    ]
    text = "; ".join(fault for fault in faults if fault)
    if text:
        raise CheckpointError(f"the tensors are not those of a {family.title} drafter: {text}")
    return tuple(Match(table[name], entry) for name, entry in entries.items())


def _differs(entry: TensorEntry, rule: TensorRule | None) -> bool:
    return rule is not None and entry.shape != rule.shape


def _mismatch(name: str, entry: TensorEntry, rule: TensorRule) -> str:
    return f"{name} {list(entry.shape)} for {list(rule.shape)}"


def _fault(title: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{title}: " + ", ".join(f"`{name}`" for name in names[:SHOWN]) + more
