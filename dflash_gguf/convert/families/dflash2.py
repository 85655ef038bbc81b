"""DFlash 2 as z-lab, incoai, ModelOpt and NeMo lay it out.

Comes in: a specification. Goes out: its rules. The leading axis of a base kernel is the side (before or after
the sublayer), then the tap, then the channel; llama.cpp reads it as stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.families.backbone import backbone_rules, layer_rule
from dflash_gguf.convert.families.rules import Family, TensorRule
from dflash_gguf.errors import CheckpointError
from dflash_gguf.facts import DFLASH2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.convert.spec import DrafterSpec, Selector

SIDES: Final = 2
CONVOLUTIONS: Final = (("attention_conv", "attn_conv"), ("mlp_conv", "ffn_conv"))


def dflash2_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """Rules of the backbone, the convolutions of each layer, and the candidate selector."""
    selector = spec.selector
    if selector is None:
        raise CheckpointError("a DFlash 2 drafter needs the selector's keys in its config")
    yield from backbone_rules(spec)
    for i in range(spec.n_layers):
        for rule in _convolution_rules(spec.hidden_size, selector):
            yield layer_rule(i, rule)
    yield from _selector_rules(spec, selector.rank)


def _convolution_rules(hidden: int, selector: Selector) -> Iterator[TensorRule]:
    rows = SIDES * selector.conv_kernel * (hidden // selector.conv_group)
    for source, name in CONVOLUTIONS:
        yield TensorRule(f"{source}.base_kernel", f"{name}_base", (SIDES, selector.conv_kernel, hidden))
        yield TensorRule(f"{source}.kernel_projection.weight", f"{name}_proj.weight", (rows, hidden))


def _selector_rules(spec: DrafterSpec, rank: int) -> Iterator[TensorRule]:
    book = (spec.vocab_size, rank)
    yield TensorRule("candidate_selector.predecessor_codebook", "selector_predecessor.weight", book)
    yield TensorRule("candidate_selector.successor_codebook", "selector_successor.weight", book)
    hidden = (rank, spec.hidden_size)
    yield TensorRule("candidate_selector.hidden_projection.weight", "selector_hidden.weight", hidden)


FAMILY: Final = Family(
    DFLASH2,
    "DFlash 2",
    marks=(("candidate_selector.",), (".attention_conv.",), (".mlp_conv.",)),
    rules=dflash2_rules,
)
