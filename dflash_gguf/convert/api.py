"""Conversion as one call: a checkpoint's folder and a target's GGUF in, a drafter's GGUF out.

The steps are `load_checkpoint`, `resolve_spec`, `build_plan` and `write_plan`, each a function of the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_gguf.convert.checkpoint import load_checkpoint
from dflash_gguf.convert.config import Config
from dflash_gguf.convert.families import Match, match_tensors, plain_names, recognise
from dflash_gguf.convert.families.backbone import EMBEDDINGS, FIRST_QUERY_NORM, HEAD
from dflash_gguf.convert.general import general_keys
from dflash_gguf.convert.plan import Plan, build_plan
from dflash_gguf.convert.spec import DrafterSpec, resolve_spec
from dflash_gguf.convert.target import Target, load_target
from dflash_gguf.convert.write import check_out, write_plan
from dflash_gguf.errors import CheckpointError
from dflash_gguf.pair import DrafterFacts, PairReport, compare
from dflash_gguf.quantize.kernels import default_threads
from dflash_gguf.quantize.mix import DEFAULT_QUANT, resolve_quant

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from dflash_gguf.convert.checkpoint import Checkpoint
    from dflash_gguf.convert.safetensors_header import TensorEntry


@dataclass(frozen=True, slots=True)
class Result:
    """What `convert` wrote: ``tensor_types`` counts the types, ``notes`` say what the user should know."""

    path: Path
    quant: str
    n_bytes: int
    n_weights: int
    bits_per_weight: float
    tensor_types: Mapping[str, int]
    notes: tuple[str, ...]


def plan(checkpoint: str | os.PathLike[str], target: str | os.PathLike[str], quant: str = DEFAULT_QUANT) -> Plan:
    """Decide the whole output file and write nothing.

    ``checkpoint`` is a folder with ``config.json`` and safetensors, ``target`` the GGUF of the model that the
    drafter was trained for; only its header is read. Raises `CheckpointError`, `GGUFError`, `PairError` or
    `QuantizeError`.
    """
    kind = resolve_quant(quant)
    source = load_checkpoint(checkpoint)
    family = recognise(source)
    entries = plain_names(source)
    spec = resolve_spec(Config(source.config), family.kind, _head_dim(entries), selector=family.selector)
    matches = match_tensors(family, entries, family.rules(spec))
    model = load_target(target)
    _check_pair(source, spec, model)
    kept, notes = _kept(spec, matches, model)
    n_weights = sum(prod(match.rule.shape) for match in kept)
    general, card_notes = general_keys(source.folder, n_weights)
    return build_plan(spec, kept, model, kind, general=general, notes=notes + card_notes)


def convert(
    checkpoint: str | os.PathLike[str],
    target: str | os.PathLike[str],
    quant: str = DEFAULT_QUANT,
    out: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Convert a drafter and write it to ``out`` (default: ``dflash-<Target>-<TYPE>.gguf`` right here).

    ``progress`` is called with bytes written and bytes in all. Raises what `plan` raises, and `OutputError`.
    """
    decided = plan(checkpoint, target, quant)
    path = Path(out) if out is not None else Path(f"dflash-{decided.title}-{decided.quant.name}.gguf")
    path = path.absolute()
    check_out(path, {Path(target), *(tensor.source.file for tensor in decided.tensors)}, force=force)
    threads = n_threads or default_threads()
    n_bytes = write_plan(decided, path, force=force, n_threads=threads, progress=progress)
    return Result(
        path=path,
        quant=decided.quant.name,
        n_bytes=n_bytes,
        n_weights=decided.n_weights,
        bits_per_weight=decided.bits_per_weight,
        tensor_types=decided.tensor_types,
        notes=decided.notes,
    )


def _head_dim(entries: Mapping[str, TensorEntry]) -> int:
    entry = entries.get(FIRST_QUERY_NORM)
    if entry is None or len(entry.shape) != 1:
        raise CheckpointError(f"the checkpoint has no vector `{FIRST_QUERY_NORM}`")
    return entry.shape[0]


def _check_pair(source: Checkpoint, spec: DrafterSpec, target: Target) -> None:
    facts = DrafterFacts(
        kind=spec.kind,
        hidden_size=spec.hidden_size,
        target_layers=spec.target_layers,
        block_size=spec.block_size,
        mask_token_id=spec.mask_token_id,
        vocab_size=spec.vocab_size,
    )
    findings = compare(target.header, facts)
    PairReport(target.header.name, str(source.folder), findings, facts).raise_if_bad()


def _kept(spec: DrafterSpec, matches: tuple[Match, ...], target: Target) -> tuple[tuple[Match, ...], tuple[str, ...]]:
    """The tensors to write, and a note on each that the config tells to leave out."""
    sources = {match.rule.source for match in matches}
    notes: tuple[str, ...] = ()
    if EMBEDDINGS in sources and not spec.keep_embeddings:
        matches = tuple(match for match in matches if match.rule.source != EMBEDDINGS)
        notes = (f"`{EMBEDDINGS}` was left out: `has_embed_tokens` is false",)
    elif EMBEDDINGS in sources and HEAD not in sources and not target.tied:
        # llama.cpp src/models/dflash.cpp ties the head to the drafter's own embeddings then.
        raise CheckpointError(
            f"the checkpoint has `{EMBEDDINGS}` but no `{HEAD}`, and the target has a head of its own",
            remedy="add the target's head to the checkpoint",
        )
    return matches, notes
