"""What quantizing cost: how far a file's weights are from those that it was made of.

Comes in: a drafter's GGUF and its source, a GGUF of the same tensors or a checkpoint. Goes out: a frozen record for
each tensor, and sums by type. Both are read a few rows at a time and compared as F32, so that memory stays bounded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dflash_gguf.convert.open_files import OpenFiles
from dflash_gguf.convert.readers import reader
from dflash_gguf.convert.rows import RowMaker, Slab
from dflash_gguf.errors import GGUFError
from dflash_gguf.file_text import listed
from dflash_gguf.ggml_types import BY_NAME, F32, tensor_bytes, trimmed, type_name
from dflash_gguf.gguf_header import read_header
from dflash_gguf.quantize.gguf_plan import stored_tensors

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from dflash_gguf.convert.planned import PlannedTensor
    from dflash_gguf.gguf_header import GGUFHeader

VALUES: Final = 1 << 18
"""Weights of each side that are held at a time."""
NUMBERS: Final = frozenset(BY_NAME[name].id for name in ("I8", "I16", "I32", "I64", "F64"))
"""Types of tables, not of weights."""
OTHER: Final = "compare it with the file or checkpoint that it was made of"


@dataclass(frozen=True, slots=True)
class Sums:
    """Of pairs of values: squares of both, their products, squares of their differences, the largest difference."""

    n: int = 0
    ours: float = 0.0
    theirs: float = 0.0
    products: float = 0.0
    differences: float = 0.0
    largest: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.n + other.n,
            self.ours + other.ours,
            self.theirs + other.theirs,
            self.products + other.products,
            self.differences + other.differences,
            max(self.largest, other.largest),
        )

    @property
    def rmse(self) -> float:
        """Root of the mean square difference."""
        return sqrt(self.differences / self.n) if self.n else 0.0

    @property
    def relative(self) -> float:
        """The same in parts of the root mean square of the source's values."""
        return sqrt(self.differences / self.theirs) if self.theirs else 0.0

    @property
    def cosine(self) -> float:
        """Of the angle between both, taken as vectors; 1 where both are zero."""
        scale = sqrt(self.ours * self.theirs)
        return self.products / scale if scale else 1.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one tensor, or of all of one type (``tensors`` of them)."""

    name: str
    type: str
    source_type: str
    tensors: int
    n_bytes: int
    n_weights: int
    rmse: float
    relative_rmse: float
    cosine: float
    largest: float
    sums: Sums = field(repr=False)


@dataclass(frozen=True, slots=True)
class Against:
    """Each tensor that holds weights, and each type; ``skipped`` hold whole numbers."""

    file: str
    source: str
    tensors: tuple[Cost, ...]
    types: tuple[Cost, ...]
    skipped: tuple[str, ...]


def against(
    file: str | os.PathLike[str],
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Against:
    """Compare; ``source`` is a GGUF, or a checkpoint's folder, which is read as `convert` reads it for ``target``.

    ``progress`` gets weights done and weights in all. Raises `GGUFError` when the two do not have the same tensors, and
    whatever reading the source raises.
    """
    header = read_header(file)
    ours, theirs = _of_gguf(header), _source(source, target)
    _check_names(header.name, ours, str(source), theirs)
    skipped = tuple(name for name, tensor in ours.items() if tensor.stored in NUMBERS)
    names = [name for name in ours if name not in skipped]
    done, total, found = 0, sum(prod(ours[name].shape) for name in names), []
    with OpenFiles() as files:
        for name in names:
            sums = _compared(ours[name], theirs[name], files)
            found.append(_cost(name, ours[name], theirs[name], sums))
            done += sums.n
            if progress is not None:
                progress(done, total)
    return Against(header.name, str(source), tuple(found), tuple(_by_type(found)), skipped)


def as_dict(found: Against) -> dict[str, Any]:
    """A comparison as plain JSON values."""
    return {
        "file": found.file,
        "source": found.source,
        "types": [_plain(cost) for cost in found.types],
        "tensors": [_plain(cost) for cost in found.tensors],
        "skipped": list(found.skipped),
    }


def _plain(cost: Cost) -> dict[str, Any]:
    return {name: value for name, value in asdict(cost).items() if name != "sums"}


def _of_gguf(header: GGUFHeader) -> dict[str, PlannedTensor]:
    return {tensor.name: tensor for tensor in stored_tensors(header)}


def _source(source: str | os.PathLike[str], target: str | os.PathLike[str] | None) -> dict[str, PlannedTensor]:
    """The source's tensors under their names in a GGUF."""
    if not Path(source).is_dir():
        return _of_gguf(read_header(source))
    from dflash_gguf.convert.api import plan

    return {tensor.name: tensor for tensor in plan(source, target, "F32").tensors}


def _check_names(
    file: str, ours: Mapping[str, PlannedTensor], source: str, theirs: Mapping[str, PlannedTensor]
) -> None:
    for one, other, here, there in ((ours, theirs, file, source), (theirs, ours, source, file)):
        alone = [name for name in one if name not in other]
        if alone:
            raise GGUFError(f"`{there}` lacks tensors of `{here}`: {listed(alone, '`')}", remedy=OTHER)
    for name, tensor in ours.items():
        if trimmed(tensor.shape) != trimmed(theirs[name].shape):
            raise GGUFError(
                f"the shape of `{name}` in `{file}`",
                value=str(list(tensor.shape)),
                expected=f"{list(theirs[name].shape)}, as in `{source}`",
                remedy=OTHER,
            )


def _compared(ours: PlannedTensor, theirs: PlannedTensor, files: OpenFiles) -> Sums:
    """Both a few rows at a time, as F32."""
    n_per_row, n_rows = ours.shape[0], prod(ours.shape[1:])
    unit = theirs.transform.head_dim if theirs.transform is not None else 1
    step = max(1, VALUES // (n_per_row * unit)) * unit
    sides = [(replace(side, type=F32), reader(side.source, n_per_row, files)) for side in (ours, theirs)]
    makers, sums = (RowMaker(1), RowMaker(1)), Sums()
    for first in range(0, n_rows, step):
        rows = min(step, n_rows - first)
        values = [
            np.frombuffer(maker.make(Slab(tensor, read, first, rows, 0, None)), "<f4").astype(np.float64)
            for maker, (tensor, read) in zip(makers, sides, strict=True)
        ]
        sums += _sums(*values)
    return sums


def _sums(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Sums:
    apart = ours - theirs
    largest = float(np.abs(apart).max(initial=0.0))
    return Sums(
        ours.size, float(ours @ ours), float(theirs @ theirs), float(ours @ theirs), float(apart @ apart), largest
    )


def _cost(name: str, ours: PlannedTensor, theirs: PlannedTensor, sums: Sums) -> Cost:
    nbytes = tensor_bytes(ours.stored, ours.shape)
    return _record(name, type_name(ours.stored), type_name(theirs.source.type), 1, nbytes, sums)


def _by_type(costs: Iterable[Cost]) -> Iterator[Cost]:
    """Sums over the tensors of each type of the file, the largest first."""
    groups: dict[str, list[Cost]] = {}
    for cost in costs:
        groups.setdefault(cost.type, []).append(cost)
    for kind, group in sorted(groups.items(), key=lambda pair: -sum(cost.n_bytes for cost in pair[1])):
        total = sum((cost.sums for cost in group), Sums())
        sources = ", ".join(sorted({cost.source_type for cost in group}))
        yield _record("", kind, sources, len(group), sum(cost.n_bytes for cost in group), total)


def _record(name: str, kind: str, source: str, tensors: int, n_bytes: int, sums: Sums) -> Cost:
    return Cost(name, kind, source, tensors, n_bytes, sums.n, sums.rmse, sums.relative, sums.cosine, sums.largest, sums)
