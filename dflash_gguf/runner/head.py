"""A copy of the target's head for its drafter, in a type that the CPU multiplies fast by a few rows.

Comes in: the headers of a pair, the settings. Goes out: a small GGUF that libllama takes for the drafter's second
shard. Loads nothing native but the quantizer.

A drafter without a head multiplies each row of a block by its target's, which is most of its work. What it proposes
need not be exact, so that a copy in Q4_0, whose repacked products are the fastest that ggml has at such widths, does.
Source: llama.cpp src/models/dflash.cpp, src/llama-model-loader.cpp, ggml/src/ggml-cpu/repack.cpp (0.5.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Final

from dflash_gguf import atomic
from dflash_gguf.errors import CheckpointError, OutputError, QuantizeError, SessionError, brief
from dflash_gguf.facts import HEAD, OWN_HEADS
from dflash_gguf.ggml_types import BY_NAME, tensor_bytes
from dflash_gguf.runner.bounds import AUTO, COPY, DRAFT_HEADS, TARGET
from dflash_gguf.runner.models import Model
from dflash_gguf.shards import SPLIT_COUNT, SPLIT_NUMBER, SPLIT_TENSORS, shards_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.convert.target import TargetTensor
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.settings import Settings

TYPE: Final = BY_NAME["Q4_0"]
SLOWER: Final = frozenset(
    BY_NAME[name].id
    for name in ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_1", "IQ4_XS", "Q3_K")
)
"""Types whose products with 2 to 8 rows took 1.1 to 6 times as long as Q4_0's (AVX-512, 2 cores; docs/depth.md)."""
WEIGHTS: Final = range(1 << 22, 1 << 29)
"""Heads of other sizes are not copied unasked: small ones stay in the processor's cache, and of a large one the copy
takes a second or more, and a third of a gigabyte."""
SCALE: Final = "output.scale"


@dataclass(frozen=True, slots=True)
class HeadCopy:
    """``source`` is the head, or the embedding table where that is the head; ``n_tensors`` those of the drafter."""

    source: TargetTensor
    n_tensors: int

    @property
    def nbytes(self) -> int:
        """Bytes of the copy."""
        return tensor_bytes(TYPE.id, self.source.shape)

    @property
    def overrides(self) -> Mapping[str, int]:
        """What the drafter's file does not say, and the first of two shards must."""
        return {SPLIT_NUMBER: 0, SPLIT_COUNT: 2, SPLIT_TENSORS: self.n_tensors + 1}

    def write(self, folder: Path, n_threads: int) -> Path:
        """The second shard, as a file in ``folder``.

        Raises OutputError when it cannot be written, and QuantizeError when the head holds what is no number.
        """
        from dflash_gguf.convert.encode import encode_header, scalar
        from dflash_gguf.convert.planned import PlannedTensor
        from dflash_gguf.convert.sources import Span, Stored
        from dflash_gguf.convert.write import write_tensors

        place = self.source
        source = Stored(place.name, Span(place.file, place.offset, place.nbytes), place.type)
        tensor = PlannedTensor(HEAD, source, place.shape, None, TYPE.id, TYPE.id, TYPE.id)
        keys = [scalar(SPLIT_NUMBER, "uint16", 1), scalar(SPLIT_COUNT, "uint16", 2)]
        header = encode_header(keys, [(HEAD, place.shape, TYPE.id, 0)])
        path = folder / "head.gguf"
        with atomic.failures(path), path.open("xb", buffering=0) as file:
            write_tensors(file.fileno(), path, header, [tensor], n_threads)
        return path


def head_copy(target: GGUFHeader, draft: GGUFHeader | None, settings: Settings) -> HeadCopy | None:
    """The copy that the drafter is to have; None where it uses its own head or its target's.

    Raises SessionError for a word that is no choice, or when a copy is asked for and cannot be made.
    """
    choice = settings.draft_head
    if choice not in DRAFT_HEADS:
        raise SessionError("`draft_head`", value=brief(choice), expected=f"one of {', '.join(DRAFT_HEADS)}")
    if draft is None or choice == TARGET:
        return None
    found = _possible(target, draft)
    if isinstance(found, HeadCopy):
        return found if choice == COPY or (_on_cpu(settings) and _pays(found)) else None
    if choice == COPY:
        raise SessionError(f"the target's head cannot be copied for the drafter: {found}", remedy=f"leave it at {AUTO}")
    return None


def _possible(target: GGUFHeader, draft: GGUFHeader) -> HeadCopy | str:
    """A copy, or why there can be none."""
    from dflash_gguf.convert.target_gguf import tables

    if OWN_HEADS & draft.tensors.keys():
        return "the drafter has one of its own"
    if draft.integer(SPLIT_COUNT, 1) > 1:
        return "the drafter's file is split"
    shards = shards_of(Path(target.name), target)
    if any(SCALE in header.tensors for _, header in shards):
        return f"it is scaled by `{SCALE}`"
    found = tables(shards)
    source = found.get(HEAD) or next(iter(found.values()), None)
    if source is None:
        return "the target's file has none"
    if len(source.shape) != 2 or source.shape[0] % TYPE.block:
        return f"its rows of {source.shape[0]} are no multiple of {TYPE.block}"
    return HeadCopy(source, len(draft.tensors))


def _on_cpu(settings: Settings) -> bool:
    """Whether both models run on a CPU for which ggml repacks."""
    import llama_cpp

    has = set(re.findall(r"(\w+) = 1", llama_cpp.llama_print_system_info().decode()))
    repacks = "REPACK" in has and ("AVX2" in has or {"NEON", "DOTPROD"} <= has)
    return settings.placement.on_cpu and repacks


def _pays(copy: HeadCopy) -> bool:
    return copy.source.type in SLOWER and prod(copy.source.shape) in WEIGHTS


def open_drafter(draft: GGUFHeader, copy: HeadCopy | None, settings: Settings) -> tuple[Model, tuple[str, ...]]:
    """The drafter, with the copy as its head, and warnings: where nobody asked for the copy it can do without.

    Raises SessionError when libllama refuses, and what `HeadCopy.write` raises of a copy that was asked for.
    """
    path, placement = Path(draft.name), settings.draft_placement(draft)
    if copy is None:
        return Model(path, placement), ()
    try:
        with atomic.failures(Path(gettempdir())), TemporaryDirectory(prefix="dflash-gguf-") as folder:
            beside = copy.write(Path(folder), settings.threads())
            return Model(path, placement, copy.overrides, beside=beside), ()
    except (OutputError, QuantizeError, CheckpointError) as error:
        if settings.draft_head == COPY:
            raise
        return Model(path, placement), (f"the drafter uses its target's own head, which is slower: {error}",)
