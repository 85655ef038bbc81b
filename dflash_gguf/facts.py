"""What a header says about its model, as far as the other of a pair must match it.

Comes in: a GGUF header. Goes out: frozen facts. Judges nothing.
Source: llama.cpp src/models/dflash.cpp (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import GGUFError
from dflash_gguf.schema import MARKOV_MARK, SELECTOR_MARK, Keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dflash_gguf.gguf_header import GGUFHeader

DFLASH: Final = "dflash"
DFLASH2: Final = "dflash2"
DSPARK: Final = "dspark"
TITLES: Final = {DFLASH: "DFlash", DFLASH2: "DFlash 2", DSPARK: "DSpark"}
"""Kind -> its name as its authors write it."""

EMBEDDINGS: Final = "token_embd.weight"
HEAD: Final = "output.weight"
ARCHITECTURE_LIMIT: Final = 64
"""Longer than any name that llama.cpp or a fork has."""
LAYERS_LIMIT: Final = 512
"""LLAMA_MAX_LAYERS."""
TOKEN_LIMIT: Final = 1 << 22
"""More tokens are not read."""

OWN_HEADS: Final = frozenset({HEAD, EMBEDDINGS})
"""Tensors that make a drafter's file independent of the target's head."""


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """What a drafter asks of its target; None stands for what its file does not say.

    ``target_layers`` are the layers whose inputs it reads (GGUF numbering: the checkpoint's id + 1).
    ``padding_may_differ``: its list of tokens need not be padded like the target's, because it has a head of its own
    (in a file), or no tensor with a row for each token (in a checkpoint).
    """

    kind: str
    hidden_size: int | None
    target_layers: tuple[int, ...]
    block_size: int | None
    mask_token_id: int | None
    vocab_size: int | None
    padding_may_differ: bool = False


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What a target offers: its architecture, and what a drafter must match.

    ``n_padded`` of the ``vocab_size`` tokens only fill the list up, at its end.
    """

    architecture: str
    hidden_size: int | None
    n_layers: int | None
    vocab_size: int | None
    n_padded: int = 0
    eos_token_ids: tuple[int, ...] = ()
    pad_token_ids: tuple[int, ...] = ()


def architecture(header: GGUFHeader) -> str:
    """``general.architecture``, or an empty text when the file has none that is a text, or one that nobody gave."""
    try:
        name = header.string(Keys.ARCHITECTURE, "")
    except GGUFError:
        return ""
    return name if len(name) <= ARCHITECTURE_LIMIT else ""


def drafter_kind(tensors: Iterable[str]) -> str:
    """The kind of drafter by the tensors that llama.cpp recognises it by."""
    names = set(tensors)
    if SELECTOR_MARK in names:
        return DFLASH2
    return DSPARK if MARKOV_MARK in names else DFLASH


def anchor_first(header: GGUFHeader) -> bool:
    """Whether the anchor's own row is the first of a drafter's proposals; raises `GGUFError` on a wrong type.

    llama.cpp reads the key for DSpark only, where absent means yes; we also write it for DFlash models that were
    trained so. DFlash 2's lattice has nothing in the anchor's row. Source: llama.cpp common/speculative.cpp (0.5.0).
    """
    kind = drafter_kind(header.tensors)
    return kind != DFLASH2 and header.boolean(Keys.SAMPLE_FROM_ANCHOR, kind == DSPARK)


def spec_type(kind: str, *, anchor_first: bool) -> str:
    """llama.cpp's ``--spec-type``: what proposes from the anchor's row on is read right only as DSpark."""
    return "draft-dspark" if kind == DSPARK or anchor_first else "draft-dflash"


def drafter_facts(header: GGUFHeader) -> DrafterFacts:
    """Read a ``dflash`` header."""
    return DrafterFacts(
        kind=drafter_kind(header.tensors),
        hidden_size=integer_of(header, Keys.EMBEDDING_LENGTH),
        target_layers=_taps(header),
        block_size=integer_of(header, Keys.BLOCK_SIZE),
        mask_token_id=integer_of(header, Keys.MASK_TOKEN_ID),
        vocab_size=count_of(header, Keys.TOKENS),
        padding_may_differ=bool(OWN_HEADS & header.tensors.keys()),
    )


def target_facts(header: GGUFHeader) -> TargetFacts:
    """Read a target's header."""
    name = architecture(header)
    blocks = integer_of(header, f"{name}.block_count")
    predicting = integer_of(header, f"{name}.nextn_predict_layers") or 0
    return TargetFacts(
        architecture=name,
        hidden_size=integer_of(header, f"{name}.embedding_length"),
        n_layers=None if blocks is None else blocks - predicting,
        vocab_size=count_of(header, Keys.TOKENS),
        eos_token_ids=_token_ids(header, Keys.EOS_TOKEN_ID, Keys.EOT_TOKEN_ID, Keys.EOM_TOKEN_ID),
        pad_token_ids=_token_ids(header, Keys.PADDING_TOKEN_ID),
    )


def _token_ids(header: GGUFHeader, *keys: str) -> tuple[int, ...]:
    found = (integer_of(header, key) for key in keys)
    return tuple(sorted({number for number in found if number is not None}))


def tokens_of(header: GGUFHeader) -> list[str] | None:
    """The texts of the tokens; None where there are none that can be read, or too many, which the contract tells."""
    count = count_of(header, Keys.TOKENS)
    if count is None or count > TOKEN_LIMIT:
        return None
    try:
        return header.strings(Keys.TOKENS)
    except GGUFError:
        return None


def integer_of(header: GGUFHeader, key: str) -> int | None:
    """None too for a value of another type: the contract tells that."""
    try:
        return header.integer(key, None)
    except GGUFError:
        return None


def count_of(header: GGUFHeader, key: str) -> int | None:
    """Length of an array; None for anything else."""
    try:
        return header.count(key) if key in header.keys else None
    except GGUFError:
        return None


def _taps(header: GGUFHeader) -> tuple[int, ...]:
    if not 0 < (count_of(header, Keys.TARGET_LAYERS) or 0) <= LAYERS_LIMIT:
        return ()
    try:
        return tuple(header.integers(Keys.TARGET_LAYERS))
    except GGUFError:
        return ()
