"""Where the rows of a tensor come from, as frozen values; nothing is read here.

Comes in: places in files, or values made on the spot. Goes out: sources, each a sequence of rows of one ggml type.
``rows.py`` reads them. Knows nothing of families or names.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import CheckpointError
from dflash_gguf.files import File, opened
from dflash_gguf.ggml_types import BF16, BY_NAME, F16, F32

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

I64: Final = BY_NAME["I64"].id
Q8_0: Final = BY_NAME["Q8_0"].id
NVFP4: Final = BY_NAME["NVFP4"].id
MXFP4: Final = BY_NAME["MXFP4"].id

FLOATS: Final = {"F32": F32, "F16": F16, "BF16": BF16}
KEPT: Final = frozenset({I64, NVFP4, MXFP4})
"""Types that reach the output as they are: whole numbers, and blocks whose repacking is exact."""
FP8: Final = ("F8_E4M3", "F8_E5M2")
NVFP4_GROUP: Final = 16
MXFP4_GROUP: Final = 32
STEP: Final = 4 << 20
FAR_STEP: Final = 32 << 20
"""Bytes that are compared at once, of files here and elsewhere."""
SHOWN: Final = 8
"""Names that a message lists before it only counts."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file, here or elsewhere."""

    file: File
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows that lie in a file as they are."""

    name: str
    span: Span
    type: int

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every place that is read."""
        return (self.span,)


@dataclass(frozen=True, slots=True)
class Scales:
    """Factors of an FP8 matrix: ``dtype`` and ``shape`` as stored, each for ``block`` rows and columns."""

    span: Span
    dtype: str
    shape: tuple[int, int]
    block: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Fp8:
    """FP8 values and their factors, read as F32."""

    name: str
    span: Span
    dtype: str
    scales: Scales
    type: int = F32

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every place that is read."""
        return (self.span, self.scales.span)


@dataclass(frozen=True, slots=True)
class Nvfp4:
    """ModelOpt's packed NVFP4, repacked into ggml's blocks without a change of value."""

    name: str
    span: Span
    scales: Span
    type: int = NVFP4

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every place that is read."""
        return (self.span, self.scales)


@dataclass(frozen=True, slots=True)
class Mxfp4:
    """Packed MXFP4 matrices of several experts, one after the other, repacked without a change of value."""

    name: str
    experts: tuple[tuple[Span, Span], ...]
    type: int = MXFP4

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every place that is read."""
        return tuple(span for pair in self.experts for span in pair)


@dataclass(frozen=True, slots=True)
class Made:
    """Values that no file holds."""

    name: str
    data: bytes
    type: int

    @property
    def spans(self) -> tuple[Span, ...]:
        """No place is read."""
        return ()


@dataclass(frozen=True, slots=True)
class Patched:
    """Another source with one row replaced by the floats of ``values`` (F32)."""

    base: Stored
    row: int
    values: bytes

    @property
    def name(self) -> str:
        """The name of the source that is patched."""
        return self.base.name

    @property
    def type(self) -> int:
        """The rows come out as floats."""
        return self.base.type if self.base.type in FLOATS.values() else F32

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every place that is read."""
        return self.base.spans


Source = Stored | Fp8 | Nvfp4 | Mxfp4 | Made | Patched


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as its authors mean it, ``shape`` in PyTorch order.

    ``source`` is None when its dtype holds no weights; ``scale`` and ``input_scale`` are the F32 scalars that
    NVFP4 keeps beside its blocks, None when they are 1; ``whole_inputs``: its inputs are not to be cut to 4 bits.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    span: Span
    source: Source | None
    scale: bytes | None = None
    input_scale: bytes | None = None
    whole_inputs: bool = False


def read_span(span: Span, name: str, limit: int = 1 << 27) -> bytes:
    """The bytes of a small span; raises `CheckpointError` when they are too many or cannot be read."""
    if span.nbytes > limit:
        raise CheckpointError(f"bytes of `{name}`", value=span.nbytes, expected=f"at most {limit}")
    try:
        with opened(span.file) as file:
            data = file.read(span.offset, span.nbytes)
    except OSError as error:
        raise CheckpointError(f"`{span.file}` cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) != span.nbytes:
        raise CheckpointError(f"`{span.file}` ends inside tensor `{name}`")
    return data


def moved(source: Any, to: Callable[[Span], Span]) -> Any:
    """The same source with each of its spans replaced by what ``to`` makes of it."""
    if isinstance(source, Span):
        return to(source)
    if isinstance(source, tuple):
        return tuple(moved(item, to) for item in source)
    if not is_dataclass(source) or isinstance(source, type):
        return source
    return replace(source, **{field.name: moved(getattr(source, field.name), to) for field in fields(source)})


def rows_of(tensor: Tensor, first: int, count: int, name: str) -> Tensor:
    """``count`` rows of a fused matrix from row ``first`` on, as a tensor of its own."""
    if not isinstance(tensor.source, Stored):
        raise CheckpointError(f"the rows of `{tensor.name}` cannot be split", value=tensor.dtype, expected="floats")
    width = tensor.span.nbytes // tensor.shape[0]
    span = Span(tensor.span.file, tensor.span.offset + first * width, count * width)
    return Tensor(name, tensor.dtype, (count, *tensor.shape[1:]), span, Stored(tensor.name, span, tensor.source.type))


def same_bytes(one: Stored, other: Stored) -> bool:
    """Whether two tensors in files hold the very same bytes of the same type."""
    step = STEP if all(isinstance(source.span.file, Path) for source in (one, other)) else FAR_STEP
    if one.type != other.type or one.span.nbytes != other.span.nbytes:
        return False
    for start in range(0, one.span.nbytes, step):
        length = min(step, one.span.nbytes - start)
        pieces = [
            read_span(Span(source.span.file, source.span.offset + start, length), source.name)
            for source in (one, other)
        ]
        if pieces[0] != pieces[1]:
            return False
    return True


def both(one: Tensor, other: Tensor) -> CheckpointError:
    """The error that two tensors of the checkpoint would become one."""
    return CheckpointError(f"the checkpoint holds both `{one.name}` and `{other.name}`", expected="one")


def listed(names: Sequence[str]) -> str:
    """The first few of several names, for a message."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + more
