"""What a drafter's file says about how its passes are read.

Comes in: the headers of a pair. Goes out: one frozen value, once the pair was found to fit. Loads nothing native.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from dflash_gguf.errors import PairError
from dflash_gguf.facts import DSPARK, TITLES, anchor_first, architecture, drafter_kind
from dflash_gguf.pair import check, check_alone
from dflash_gguf.schema import ARCHITECTURE, CONFIDENCE_HEAD, Keys

if TYPE_CHECKING:
    from dflash_gguf.gguf_header import GGUFHeader


@dataclass(frozen=True, slots=True)
class Drafting:
    """``layers`` are the target's layer inputs to capture, ``n_max`` the tokens that a block proposes at the most.

    ``anchor_first``: the anchor's own row is the first proposal. ``confidence_head``: a DSpark row says how likely it
    is right. ``causal``: a row of the block sees none behind it; None: as the file says. ``notes`` are the pair check's
    warnings. Without a drafter: no kind, nothing to capture.
    """

    kind: str | None = None
    anchor_first: bool = False
    confidence_head: bool = False
    n_max: int = 0
    layers: tuple[int, ...] = ()
    causal: bool | None = None
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str | None:
        """The kind's name as its authors write it."""
        return TITLES[self.kind] if self.kind else None

    @classmethod
    def read(cls, target: GGUFHeader, draft: GGUFHeader | None) -> Self:
        """What ``draft`` says; raises PairError naming every mismatch, or when the target itself is a drafter."""
        if draft is None:
            if architecture(target) == ARCHITECTURE:
                raise PairError(
                    f"`{target.name}` is a drafter and writes nothing alone",
                    remedy="give its target with `-m` (`target`) and this file with `-md` (`draft`)",
                )
            check_alone(target)
            return cls()
        report = check(target, draft)
        report.raise_if_bad()
        kind = drafter_kind(draft.tensors)
        block_size = draft.integer(Keys.BLOCK_SIZE)
        layers = tuple(draft.integers(Keys.TARGET_LAYERS))
        # llama.cpp common/speculative.cpp: absent means yes, where the tensor is there.
        head = CONFIDENCE_HEAD in draft.tensors and draft.boolean(Keys.HAS_CONFIDENCE_HEAD, default=True)
        first = anchor_first(draft)
        n_max = block_size - (0 if first else 1)
        return cls(kind, first, kind == DSPARK and head, n_max, layers, None, report.texts)
