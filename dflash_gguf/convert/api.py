"""Conversion as one call: a checkpoint and a target in, of this machine or of the hub, a drafter's GGUF out.

The steps are `locate`, `load_checkpoint`, `unpack`, `recognise`, `resolve_spec`, `assemble`, `build_plan` and
`write_plan`, each a function of those before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

from dflash_gguf.atomic import check_out
from dflash_gguf.contract.drafter import drafter_findings
from dflash_gguf.convert.assemble import Assembly, assemble
from dflash_gguf.convert.checkpoint import load_checkpoint
from dflash_gguf.convert.config import Config
from dflash_gguf.convert.families import match_tensors, recognise, see
from dflash_gguf.convert.families.backbone import EMBEDDINGS, HEAD
from dflash_gguf.convert.families.deepseek4 import EMBEDDED
from dflash_gguf.convert.families.dialects import dialect_of, label_of
from dflash_gguf.convert.families.names import plain_names, split_fused
from dflash_gguf.convert.fetch import fetched, with_weights
from dflash_gguf.convert.general import Weights, general_keys
from dflash_gguf.convert.inputs import Inputs, Named, locate
from dflash_gguf.convert.mask_embedding import NAME as MASK_EMBEDDING
from dflash_gguf.convert.mask_embedding import read_mask_embedding
from dflash_gguf.convert.overrides import NOTHING, Overrides
from dflash_gguf.convert.packing import unpack
from dflash_gguf.convert.plan import build_plan
from dflash_gguf.convert.sources import listed
from dflash_gguf.convert.spec import DrafterSpec, resolve_spec
from dflash_gguf.convert.tables import decide_tables
from dflash_gguf.convert.write import write_plan
from dflash_gguf.errors import CheckpointError, QuantizeError
from dflash_gguf.facts import DFLASH, DFLASH2, DrafterFacts
from dflash_gguf.findings import errors_of, sentences
from dflash_gguf.gguf_header import PlannedFile, read_header
from dflash_gguf.limits import checked
from dflash_gguf.pair import compared
from dflash_gguf.quantize.quants import COPY
from dflash_gguf.quantize.recipe import QuantizeOptions, Recipe
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from dflash_gguf.convert.checkpoint import Checkpoint
    from dflash_gguf.convert.families import Family, Match
    from dflash_gguf.convert.planned import Fallback, Plan
    from dflash_gguf.convert.target import Target

EXPERTS: Final = "_exps."
"""In the names of tensors that hold one matrix an expert."""


@dataclass(frozen=True, slots=True)
class Result:
    """What `convert` wrote: ``tensor_types`` counts the types, ``notes`` say what the user should know.

    ``fallbacks`` are the tensors whose rows do not fit the blocks of the type that they should have. ``drafter`` and
    ``target`` are what was converted for what, a repository's with its commit.
    """

    path: Path
    quant: str
    n_bytes: int
    n_weights: int
    bits_per_weight: float
    tensor_types: Mapping[str, int]
    notes: tuple[str, ...]
    fallbacks: tuple[Fallback, ...]
    drafter: Named
    target: Named


def plan(
    checkpoint: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    quant: str | None = None,
    *,
    overrides: Overrides = NOTHING,
    **options: Unpack[QuantizeOptions],
) -> Plan:
    """Decide the whole output file and write nothing.

    ``checkpoint`` is a folder with ``config.json`` and safetensors, or ``ORG/REPO[@REVISION]`` on the hub; ``target``
    the GGUF or the Hugging Face folder of the model that the drafter was trained for, or its ``ORG/REPO`` or
    ``ORG/REPO-GGUF[:TYPE]``, of which only headers are read, and the two large tables where the drafter needs them.
    Without it the drafter's own words name it. Of the hub's files no weights are read. ``quant`` is a type by
    llama-quantize's name, by default Q4_K_M. ``overrides`` win over the config. Raises `CheckpointError`,
    `GGUFError`, `PairError`, `HubError` or `QuantizeError`.
    """
    recipe = recipe_of(quant, **options)
    inputs = locate(checkpoint, target)
    return planned(inputs, recipe, overrides, weights=not inputs.remote)


def recipe_of(quant: str | None, **options: Unpack[QuantizeOptions]) -> Recipe:
    """What is asked of the new file; raises `QuantizeError` for what no checkpoint can become."""
    recipe = Recipe.of(quant, **options)
    if recipe.quant == COPY:
        raise QuantizeError("COPY copies the tensors of a GGUF; a checkpoint is to become one", remedy="choose a type")
    return recipe


def planned(inputs: Inputs, recipe: Recipe, overrides: Overrides, *, weights: bool) -> Plan:
    """`plan` for what was located; without ``weights`` a table is not compared with the target's."""
    source = load_checkpoint(inputs.folder, EMBEDDED, inputs.shards)
    spec, assembly, model = _assembled(source, inputs.target, overrides, weights=weights)
    general, card_notes = general_keys(
        source.folder, _weights(spec, assembly), called=inputs.called, origin=inputs.origin
    )
    decided = build_plan(spec, assembly, model, recipe, general=general, notes=card_notes)
    return replace(decided, notes=(*inputs.notes, *decided.notes, *_check_file(decided, source.folder)))


def convert(
    checkpoint: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    quant: str | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    overrides: Overrides = NOTHING,
    force: bool = False,
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[QuantizeOptions],
) -> Result:
    """Convert a drafter and write it to ``out`` (default: ``dflash-<Target>-<TYPE>.gguf`` right here).

    ``quant`` and ``options``: as in `plan`. Weights on the hub are downloaded once all else was found in order.
    ``progress`` is called with bytes written and bytes in all. Raises what `plan` raises, and `OutputError`.
    """
    if out is not None:
        check_out(Path(out).absolute(), force=force)
    recipe = recipe_of(quant, **options)
    inputs = locate(checkpoint, target)
    return convert_located(
        inputs, recipe, out, overrides=overrides, force=force, n_threads=n_threads, progress=progress
    )


def convert_located(
    inputs: Inputs,
    recipe: Recipe,
    out: str | os.PathLike[str] | None,
    *,
    overrides: Overrides,
    force: bool,
    n_threads: int | None,
    progress: Callable[[int, int], None] | None,
) -> Result:
    """`convert` for what was located."""
    threads = checked("n_threads", physical_cores() if n_threads is None else n_threads)
    decided = planned(inputs, recipe, overrides, weights=not inputs.remote)
    path = Path(out) if out is not None else Path(f"dflash-{decided.title}-{decided.quant}.gguf")
    path = path.absolute()
    check_out(
        path, inputs.paths | recipe.files | {file for file in decided.files if isinstance(file, Path)}, force=force
    )
    if inputs.remote:
        inputs = with_weights(inputs, decided)
        decided = planned(inputs, recipe, overrides, weights=True)
    with fetched(decided, path, progress) as (here, onward):
        n_bytes = write_plan(here, path, force=force, n_threads=threads, progress=onward)
    return Result(
        path=path,
        quant=decided.quant,
        n_bytes=n_bytes,
        n_weights=decided.n_weights,
        bits_per_weight=decided.bits_per_weight,
        tensor_types=decided.tensor_types,
        notes=decided.notes,
        fallbacks=decided.fallbacks,
        drafter=inputs.drafter,
        target=inputs.named,
    )


def _assembled(
    source: Checkpoint, target: Target, overrides: Overrides, *, weights: bool
) -> tuple[DrafterSpec, Assembly, Target]:
    """The drafter in normal form and all its tensors, checked against the target."""
    packed, packing_notes = unpack(source)
    tensors, name_notes = plain_names(packed)
    config = Config(source.config, overrides)
    family = recognise(config, tensors)
    dialect, dialect_notes = dialect_of(source.config)
    dialect_notes += _other_label(config, family)
    config = replace(config, places=family.layout.places)
    spec = resolve_spec(config, family, dialect, see(family, tensors), target.facts)
    tensors = split_fused(family.layout.prepare(tensors), spec)
    matches = match_tensors(family, tensors, family.rules(spec))
    if spec.rope.factors is not None and target.mrope:
        # llama.cpp src/models/dflash.cpp hands no factors to its rotation by sections.
        raise CheckpointError(f"rotary factors (llama3 scaling) together with the position sections of `{target.name}`")
    pair_notes = _check_pair(source, spec, target, matches) + _other_depth(config, target)
    by_rule = {match.rule.source: match for match in matches}
    mask = source.folder / MASK_EMBEDDING
    read = read_mask_embedding(mask) if mask.is_file() else None
    tables = decide_tables(config, spec, by_rule, read, target, weights=weights)
    assembly = assemble(spec, matches, tables)
    unread: tuple[str, ...] = (f"not read: {listed(source.unread)}",) if source.unread else ()
    if keys := config.unread():
        unread += (f"keys of `dflash_config` that are not read: {listed([ascii(key)[1:-1][:80] for key in keys])}",)
    notes = (
        *unread,
        *_lost_mask(config, mask, by_rule),
        *dialect_notes,
        *pair_notes,
        *packing_notes,
        *name_notes,
        *assembly.notes,
    )
    return spec, replace(assembly, notes=notes), target


def _lost_mask(config: Config, mask: Path, by_rule: Mapping[str, Match]) -> tuple[str, ...]:
    """MiMo's drafters are published with a mask embedding; no key of their config promises it."""
    if mask.is_file() or EMBEDDINGS in by_rule or config.optional_number("backbone_rotary_base") is None:
        return ()
    what = f"there is no `{mask.name}`, which MiMo's drafters are published with"
    return (f"{what}: without it the mask token has the target's own, untrained row, and fewer drafts are accepted",)


def _other_label(config: Config, family: Family) -> tuple[str, ...]:
    label = label_of(config.values)
    if "DFlash2" not in label or family.kind == DFLASH2:
        return ()
    return (f"`architectures` says {label}, but neither tensors nor config are DFlash 2's: read as {family.title}",)


def _weights(spec: DrafterSpec, assembly: Assembly) -> Weights:
    counts = [(piece.name, prod(piece.shape), piece.shape[0]) for piece in assembly.pieces]
    active = sum(size // experts if EXPERTS in name else size for name, size, experts in counts)
    return Weights(sum(size for _, size, _ in counts), active, spec.stages.n_experts if spec.stages else 0)


def _check_pair(source: Checkpoint, spec: DrafterSpec, target: Target, matches: tuple[Match, ...]) -> tuple[str, ...]:
    """Notes on what does not forbid the conversion; raises `PairError` on the rest."""
    sources = {match.rule.source for match in matches}
    facts = DrafterFacts(
        kind=spec.kind,
        hidden_size=spec.hidden_size,
        target_layers=spec.target_layers,
        block_size=spec.block_size,
        mask_token_id=spec.mask_token_id,
        vocab_size=spec.vocab_size,
        padding_may_differ=spec.kind == DFLASH and not sources & {EMBEDDINGS, HEAD},
    )
    return compared(target.facts, facts, target.name, str(source.folder))


def _check_file(decided: Plan, folder: Path) -> tuple[str, ...]:
    """Warnings of libllama's contract about the planned file; raises `CheckpointError` on its errors."""
    findings = drafter_findings(read_header(PlannedFile(decided.header, decided.n_bytes, str(folder))))
    errors = errors_of(findings)
    if errors:
        raise CheckpointError(f"llama.cpp would not load what `{folder}` becomes: {sentences(errors)}")
    return tuple(map(str, findings))


def _other_depth(config: Config, target: Target) -> tuple[str, ...]:
    meant, n_layers = config.optional_integer("num_target_layers", 0), target.facts.n_layers
    if meant is None or n_layers is None or meant == n_layers:
        return ()
    return (f"the config speaks of a target of {meant} layers, this one has {n_layers}",)
