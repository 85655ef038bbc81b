"""DSpark: DFlash with a head that conditions each row on the token before it, and perhaps one that weighs it.

DeepSpec, SpecForge, RadixArk, speculators, Nemotron, LiquidAI, Ling, and ModelOpt under DFlash's label.
Comes in: a specification. Goes out: its rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.families.backbone import backbone_rules
from dflash_gguf.convert.families.rules import Family, TensorRule
from dflash_gguf.errors import CheckpointError
from dflash_gguf.facts import DSPARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.convert.spec import DrafterSpec

FIRST_BOOK: Final = "markov_head.markov_w1.weight"
SECOND_BOOK: Final = "markov_head.markov_w2.weight"
CONFIDENCE: Final = "confidence_head.proj.weight"
CONFIDENCE_BIAS: Final = "confidence_head.proj.bias"


def dspark_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """Rules of the backbone and the two heads."""
    yield from backbone_rules(spec)
    yield from head_rules(spec)


def head_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """Rules of the Markov head and the confidence head."""
    if spec.markov_rank is None:
        raise CheckpointError("the Markov head is incomplete", expected=f"a matrix `{FIRST_BOOK}`")
    rank, hidden = spec.markov_rank, spec.hidden_size
    yield TensorRule(FIRST_BOOK, "markov_w1.weight", (spec.vocab_size, rank))
    yield TensorRule(SECOND_BOOK, "markov_w2.weight", (spec.draft_vocab or spec.vocab_size, rank))
    if spec.confidence is None:
        return
    width = hidden + rank if spec.confidence else hidden
    reason = "" if spec.confidence else "llama.cpp's confidence head needs weights for the Markov embedding as well"
    yield TensorRule(CONFIDENCE, "conf_proj.weight", (1, width), dropped=reason)
    yield TensorRule(CONFIDENCE_BIAS, "conf_proj.bias", (1,), optional=True, dropped=reason)


FAMILY: Final = Family(DSPARK, "DSpark", marks=(("markov_head.",), ("confidence_head.",)), rules=dspark_rules)
