"""From matched tensors to the tensors of the output, in the order of llama.cpp's converter.

Comes in: a specification, matches, the two tables. Goes out: pieces, each with its name, shape and source; what
the checkpoint does not hold is made here: absolute token ids, rotary factors, NVFP4's scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dflash_gguf.convert.families.backbone import DRAFT_TO_TARGET, EMBEDDINGS, HEAD, TARGET_TO_DRAFT
from dflash_gguf.convert.sources import FLOATS, I64, Made, Mxfp4, Nvfp4, Source, listed, read_span
from dflash_gguf.errors import CheckpointError
from dflash_gguf.ggml_types import F32
from dflash_gguf.schema import INPUT_SCALED, SCALED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dflash_gguf.convert.families.rules import Match
    from dflash_gguf.convert.sources import Tensor
    from dflash_gguf.convert.spec import DrafterSpec
    from dflash_gguf.convert.tables import Tables

INTEGERS: Final = {"I64": "<i8", "I32": "<i4"}
MARKS: Final = ("BOOL", "U8", "I8")


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor of the output, ``shape`` in PyTorch order; ``rotary``: rotary position pairs up its rows."""

    name: str
    shape: tuple[int, ...]
    source: Source
    rotary: bool = False


@dataclass(frozen=True, slots=True)
class Assembly:
    """All pieces; ``whole_inputs`` names those whose inputs are not to be cut to 4 bits."""

    pieces: tuple[Piece, ...]
    whole_inputs: tuple[str, ...]
    notes: tuple[str, ...]


def assemble(spec: DrafterSpec, matches: Sequence[Match], tables: Tables) -> Assembly:
    """Put the output's tensors together; raises `CheckpointError` on one that cannot be stored."""
    kept = [match for match in matches if not match.rule.dropped]
    notes = _dropped(matches)
    packed = [match for match in kept if isinstance(match.tensor.source, Nvfp4)]
    experts = [match for match in kept if isinstance(match.tensor.source, Mxfp4)]
    pieces = [piece for match in packed for piece in _nvfp4(match, notes)]
    pieces += [piece for match in experts for piece in _plain(match, tables)]
    if spec.rope.factors is not None:
        data = np.array(spec.rope.factors, "<f4").tobytes()
        pieces.append(Piece("rope_freqs.weight", (len(spec.rope.factors),), Made("rotary factors", data, F32)))
    pieces += _foreign(spec, tables)
    rest = [match for match in kept if not isinstance(match.tensor.source, Nvfp4 | Mxfp4)]
    pieces += [piece for match in rest for piece in _plain(match, tables)]
    chosen = next((match.tensor for match in matches if match.rule.source == TARGET_TO_DRAFT), None)
    pieces += [_absolute(spec, match.tensor, chosen) for match in kept if match.rule.source == DRAFT_TO_TARGET]
    whole = sorted(match.rule.name for match in packed if match.tensor.whole_inputs)
    return Assembly(tuple(pieces), tuple(whole), (*tables.notes, *notes))


def _dropped(matches: Sequence[Match]) -> list[str]:
    """One note for each reason for which tensors are left out."""
    reasons = dict.fromkeys(match.rule.dropped for match in matches if match.rule.dropped)
    return [f"left out: {listed([m.tensor.name for m in matches if m.rule.dropped == why])}: {why}" for why in reasons]


def _foreign(spec: DrafterSpec, tables: Tables) -> Iterator[Piece]:
    """Tables that the checkpoint does not hold as they are written."""
    names = {HEAD: "output.weight", EMBEDDINGS: "token_embd.weight"}
    for rule, source in tables.sources.items():
        if rule not in tables.own:
            yield Piece(names[rule], (spec.vocab_size, spec.hidden_size), source)


def _plain(match: Match, tables: Tables) -> Iterator[Piece]:
    rule, tensor = match.rule, match.tensor
    if rule.source == DRAFT_TO_TARGET or (rule.source in (EMBEDDINGS, HEAD) and rule.source not in tables.own):
        return
    if tensor.source is None:
        raise CheckpointError(f"dtype of `{tensor.name}`", value=tensor.dtype, expected=" or ".join(FLOATS))
    yield Piece(rule.name, rule.shape, tensor.source, rule.rotary)


def _nvfp4(match: Match, notes: list[str]) -> Iterator[Piece]:
    """Blocks and, beside them, the scalars that are not 1."""
    rule, tensor = match.rule, match.tensor
    if tensor.source is None:
        return
    ending = rule.name.split(".", 2)[-1] if rule.name.startswith("blk.") else rule.name
    if ending not in SCALED:
        raise CheckpointError(f"`{tensor.name}` is NVFP4, but llama.cpp's dflash has no scale for `{rule.name}`")
    yield Piece(rule.name, rule.shape, tensor.source, rule.rotary)
    stem = rule.name.removesuffix(".weight")
    if tensor.scale is not None:
        yield Piece(f"{stem}.scale", (1,), Made(f"{tensor.name}_scale_2", tensor.scale, F32))
    if tensor.input_scale is not None and ending in INPUT_SCALED:
        yield Piece(f"{stem}.input_scale", (1,), Made(f"input scale of {tensor.name}", tensor.input_scale, F32))
    elif tensor.input_scale is not None:
        notes.append(f"the input scale of `{tensor.name}` was left out: llama.cpp has no place for it")


def _absolute(spec: DrafterSpec, tensor: Tensor, chosen: Tensor | None) -> Piece:
    """Token ids of the draft's rows. Stored are their distances from the row number, as speculators writes them."""
    if tensor.dtype not in INTEGERS:
        raise CheckpointError(f"dtype of `{tensor.name}`", value=tensor.dtype, expected=" or ".join(INTEGERS))
    offsets = np.frombuffer(read_span(tensor.span, tensor.name), INTEGERS[tensor.dtype]).astype(np.int64)
    limit = spec.vocab_size
    # Compared before the sum, which could wrap around.
    outside = np.flatnonzero((offsets < -limit) | (offsets >= limit))
    ids = offsets + np.arange(offsets.size, dtype=np.int64)
    outside = outside if outside.size else np.flatnonzero((ids < 0) | (ids >= limit))
    if outside.size:
        row = int(outside[0])
        raise CheckpointError(
            f"row {row} of `{tensor.name}`",
            value=f"{int(offsets[row])}, token {int(offsets[row]) + row}",
            expected=f"the distance to a token below {limit}",
        )
    if np.unique(ids).size != ids.size:
        raise CheckpointError(f"`{tensor.name}` names a token twice")
    if chosen is not None:
        _check_chosen(ids, tensor.name, chosen)
    return Piece("d2t", (ids.size,), Made(tensor.name, ids.astype("<i8").tobytes(), I64))


def _check_chosen(ids: NDArray[np.int64], name: str, chosen: Tensor) -> None:
    """``chosen`` marks the tokens of the draft: a second witness that ``name`` holds distances, not ids."""
    if chosen.dtype not in MARKS:
        raise CheckpointError(f"dtype of `{chosen.name}`", value=chosen.dtype, expected=" or ".join(MARKS))
    marked = np.flatnonzero(np.frombuffer(read_span(chosen.span, chosen.name), np.uint8))
    if not np.array_equal(np.sort(ids), marked):
        raise CheckpointError(
            f"`{name}` and `{chosen.name}` disagree on the tokens of the draft",
            value=f"{marked.size} marked, {ids.size} named",
            expected="the tokens that `d2t` gives, as distances from the row number",
        )
