"""What a drafter's checkpoint accepts, drafting along held-out answers through libllama as a session does.

Comes in: a target, a checkpoint, examples. Goes out: counts. Nothing of PyTorch takes part.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.atomic import failures
from dflash_gguf.convert.api import convert
from dflash_gguf.runner.along import Along, Counts, Reader, added
from dflash_gguf.runner.assembly import opened
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.models import Model
from dflash_gguf.runner.session import read_pair
from dflash_gguf.runner.settings import Settings
from dflash_gguf.schema import BLOCK_LIMIT, Keys
from dflash_gguf.train.bf16 import widened

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from dflash_gguf.train.corpus import Corpus

MEASURED: Final = ".measured.gguf"
TYPE: Final = "BF16"
"""The type in which a drafter is measured: that of its checkpoint."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Of ``n_texts`` answers; ``counts`` are those of all, ``lengths`` the acceptance length of each."""

    n_texts: int
    counts: Counts
    lengths: tuple[float, ...]


def measure(
    target: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    held: Corpus,
    settings: Settings | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    read_features: bool = False,
) -> Measured:
    """Drafts along each answer of ``held``, from the features that it holds.

    ``read_features``: from those that ``target`` has there, where ``held`` has another file's. The drafter's GGUF lies
    in ``checkpoint`` until the end, which must be a folder to write to. Raises what `convert` and a session raise.
    """
    drafter = Path(checkpoint) / MEASURED
    convert(checkpoint, target, TYPE, drafter, force=True)
    found = []
    try:
        if progress is not None:
            progress(0, len(held))
        for counts in _along((Path(target), drafter), held, settings or Settings(), read_features=read_features):
            found.append(counts)
            if progress is not None:
                progress(len(found), len(held))
    finally:
        with failures(drafter):
            drafter.unlink(missing_ok=True)
    return Measured(len(found), added(found), tuple(counts.acceptance_length for counts in found))


def _along(paths: tuple[Path, Path], held: Corpus, settings: Settings, *, read_features: bool) -> Iterator[Counts]:
    """What came of each answer. ``paths``: target and drafter."""
    headers = read_pair(*paths)
    drafting = Drafting.read(*headers)
    block = headers[1].integer(Keys.BLOCK_SIZE, BLOCK_LIMIT) if headers[1] else 0
    settings = replace(settings, n_ctx=max(len(example.ids) for example in held) + block)
    with ExitStack() as stack:
        models = [opened(stack, Model(path, settings.placement)) for path in paths]
        reader = Reader.opened(stack, models[0], drafting, settings)
        along = Along.opened(stack, models[1], reader, drafting, settings)
        for example in held:
            ids = example.ids.tolist()
            features = reader.features(ids) if read_features else widened(example.features)
            yield along.draft(ids, features, example.n_prompt)
