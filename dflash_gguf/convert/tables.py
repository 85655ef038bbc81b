"""The two large tables of a drafter, its embeddings and its head: own ones, the target's, or none.

Comes in: the drafter's own, its mask embedding, its target. Goes out: which are written, and notes.
llama.cpp's dflash cannot say "own embeddings, target's head": without a head of its own a drafter that has
embeddings uses them as its head (src/models/dflash.cpp, load_arch_tensors, 0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.families.backbone import EMBEDDINGS, HEAD
from dflash_gguf.convert.sources import FLOATS, Patched, Source, Span, Stored, same_bytes
from dflash_gguf.convert.target import EMBEDDING as TARGET_EMBEDDING
from dflash_gguf.convert.target import HEAD as TARGET_HEAD
from dflash_gguf.errors import CheckpointError
from dflash_gguf.ggml_types import BY_NAME, GGML_TYPES, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.convert.config import Config
    from dflash_gguf.convert.families.rules import Match
    from dflash_gguf.convert.mask_embedding import MaskEmbedding
    from dflash_gguf.convert.spec import DrafterSpec
    from dflash_gguf.convert.target import Target

READABLE: Final = frozenset(
    {*FLOATS.values(), *(row.id for row in GGML_TYPES.values() if row.block > 1)}
    - {BY_NAME[name].id for name in ("Q8_1", "Q8_K", "NVFP4")}
)
"""Types of which ggml can make floats; NVFP4's have their scale in another tensor."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Source of each table that is written, by the name of its rule; ``own`` are those of the checkpoint itself."""

    sources: Mapping[str, Source]
    own: frozenset[str]
    notes: tuple[str, ...]


def decide_tables(
    config: Config,
    spec: DrafterSpec,
    matches: Mapping[str, Match],
    mask: MaskEmbedding | None,
    target: Target,
    *,
    weights: bool = True,
) -> Tables:
    """Decide both tables; raises `CheckpointError` when one that is needed cannot be found.

    Without ``weights`` none are read: a table that may be a copy of the target's is planned as the drafter's own.
    """
    own = {name: _own(matches[name]) for name in (EMBEDDINGS, HEAD) if name in matches}
    notes: tuple[str, ...] = ()
    if EMBEDDINGS in own and config.boolean("has_embed_tokens") is False:
        del own[EMBEDDINGS]
        notes = (f"`{EMBEDDINGS}` was left out: `has_embed_tokens` is false",)
    _check_promised(config, own, mask)
    if mask is not None:
        return _patched(spec, own, mask, target, notes)
    own, dropped = _without_copies(own, target, weights=weights)
    notes += dropped
    if EMBEDDINGS in own and HEAD not in own and not _tied(config, target):
        head, taken = _taken(TARGET_HEAD, spec, target)
        why = "llama.cpp would use the drafter's embeddings in its place"
        return Tables({HEAD: head} | own, frozenset(own), (*notes, f"{taken}: {why}"))
    return Tables(own, frozenset(own), notes)


def _check_promised(config: Config, own: Mapping[str, Source], mask: MaskEmbedding | None) -> None:
    for field, name in (("has_embed_tokens", EMBEDDINGS), ("has_lm_head", HEAD)):
        if config.boolean(field) is True and name not in own and mask is None:
            raise CheckpointError(f"the config promises `{name}` (`{field}`), but there is no such tensor")


def _own(match: Match) -> Source:
    if match.tensor.source is None:
        raise CheckpointError(f"dtype of `{match.tensor.name}`", value=match.tensor.dtype, expected=" or ".join(FLOATS))
    return match.tensor.source


def _tied(config: Config, target: Target) -> bool:
    """Whether the drafter's head is its embeddings: as the target's is, or, where that is not known, by its own word.

    A drafter's word counts last: its config is often a copy of another's.
    """
    says_so = config.boolean("tie_word_embeddings") is True and config.boolean("has_lm_head") is not False
    return target.tied is True or (target.tied is None and says_so)


def _without_copies(
    own: dict[str, Source], target: Target, *, weights: bool
) -> tuple[dict[str, Source], tuple[str, ...]]:
    """Leave out a table that is the target's byte for byte: it is there whenever the drafter runs."""
    left, notes, equals = dict(own), [], dict[str, Stored]()
    for name, source in own.items():
        theirs = target.tensors.get(TARGET_EMBEDDING if name == EMBEDDINGS or target.tied else TARGET_HEAD)
        free = name == EMBEDDINGS or EMBEDDINGS not in left
        if theirs is None or not free or not isinstance(source, Stored):
            continue
        # What equals the target's stands for it: the target's may be far away.
        copy = equals.get(theirs.name) or Stored(
            theirs.name, Span(theirs.file, theirs.offset, theirs.nbytes), theirs.type
        )
        if copy.type != source.type:
            notes.append(
                f"`{source.name}` ({source.span.nbytes} bytes) may be the target's: `--target` with the target's "
                "unquantized folder would tell, and leave it out"
            )
        elif not weights:
            notes.append(
                f"`{source.name}` is left out if it is the target's, which its bytes will tell; none were read"
            )
        elif same_bytes(source, copy):
            del left[name]
            equals[theirs.name] = source
            notes.append(f"`{source.name}` was left out: it is the target's, and {source.span.nbytes} bytes long")
    return left, tuple(notes)


def _patched(
    spec: DrafterSpec, own: dict[str, Source], mask: MaskEmbedding, target: Target, notes: tuple[str, ...]
) -> Tables:
    """Embeddings with the mask token's trained row, and therefore a head as well."""
    if mask.token_id != spec.mask_token_id:
        raise CheckpointError(
            "`mask_token_id` of the mask embedding",
            value=mask.token_id,
            expected=f"{spec.mask_token_id}, as the config's",
        )
    if len(mask.values) != 4 * spec.hidden_size:
        raise CheckpointError(
            "values of the mask embedding", value=len(mask.values) // 4, expected=f"{spec.hidden_size}, the hidden size"
        )
    base = own.get(EMBEDDINGS)
    if base is None:
        base, taken = _taken(TARGET_EMBEDDING, spec, target)
        notes += (f"{taken}, with the drafter's own row for the mask token",)
    if not isinstance(base, Stored):
        raise CheckpointError(f"a row of `{base.name}` cannot be replaced", expected="unquantized embeddings")
    head = own.get(HEAD)
    if head is None:
        head, taken = _taken(TARGET_EMBEDDING if target.tied else TARGET_HEAD, spec, target)
        notes += (f"{taken}, so that the head does not become the patched embeddings",)
    sources = {HEAD: head, EMBEDDINGS: Patched(base, mask.token_id, mask.values)}
    return Tables(sources, frozenset({HEAD} if HEAD in own else ()), notes)


def _taken(name: str, spec: DrafterSpec, target: Target) -> tuple[Stored, str]:
    """A table of the target's, and the beginning of a note on it."""
    found = target.tensors.get(name)
    if found is None:
        raise CheckpointError(
            f"the drafter needs the target's `{name}`, which `{target.name}` does not hold",
            remedy="pass the target's whole GGUF, or its folder with the shard that holds it",
        )
    if found.shape != (spec.hidden_size, spec.vocab_size) or found.type not in READABLE:
        raise CheckpointError(
            f"`{found.name}` of the target cannot serve the drafter",
            value=f"{type_name(found.type)} {list(found.shape)}",
            expected=f"floats, or blocks that ggml reads, of {[spec.hidden_size, spec.vocab_size]}",
        )
    source = Stored(found.name, Span(found.file, found.offset, found.nbytes), found.type)
    return source, f"`{found.name}` ({type_name(found.type)}, {found.nbytes} bytes) is taken from the target"
