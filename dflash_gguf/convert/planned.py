"""What a planned file is made of: frozen values, no decisions.

Comes in: nothing. Goes out: `Plan` and `PlannedTensor`. Whoever decides is `convert.plan` for a checkpoint and
`quantize.gguf_plan` for a GGUF.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from dflash_gguf.convert.encode import pad
from dflash_gguf.ggml_types import tensor_bytes, type_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dflash_gguf.convert.encode import KeyValue
    from dflash_gguf.convert.sources import Source, Span
    from dflash_gguf.files import File


@dataclass(frozen=True, slots=True)
class Deinterleave:
    """Reorder the values that rotary position pairs up: in each head, the even ones first, then the odd."""

    head_dim: int


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """One tensor of the output; ``shape`` in ggml order, ``offset`` from the start of the tensor data.

    ``stored`` is its type in the unquantized file that llama-quantize would be given, ``type`` its final one, and
    ``wanted`` the one that it would have if its rows were made of whole blocks. ``importance``: float32 [n_matrices,
    n_per_row], how much each column matters.
    """

    name: str
    source: Source
    shape: tuple[int, ...]
    transform: Deinterleave | None
    stored: int
    type: int
    wanted: int
    offset: int = 0
    importance: NDArray[np.float32] | None = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes in the output, without padding."""
        return tensor_bytes(self.type, self.shape)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A tensor whose rows are not made of whole blocks of the type that it should have."""

    tensor: str
    n_per_row: int
    wanted: str
    type: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The output file; ``header`` is everything before the tensor data, padded.

    ``kind`` is the drafter's, ``quant`` the name of its type or mix, ``title`` its target's name. ``notes`` are what
    the user should know; nothing else is dropped or guessed.
    """

    kind: str
    quant: str
    title: str
    keys: tuple[KeyValue, ...]
    tensors: tuple[PlannedTensor, ...]
    header: bytes = field(repr=False)
    notes: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole file."""
        last = self.tensors[-1]
        return len(self.header) + last.offset + pad(last.nbytes)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every place that is read for the tensors, here or elsewhere, once."""
        return tuple(dict.fromkeys(span for tensor in self.tensors for span in tensor.source.spans))

    @property
    def files(self) -> frozenset[File]:
        """Every file that is read for the tensors, here or elsewhere."""
        return frozenset(span.file for span in self.spans)

    @property
    def n_weights(self) -> int:
        """Weights in all tensors."""
        return sum(prod(tensor.shape) for tensor in self.tensors)

    @property
    def bits_per_weight(self) -> float:
        """Bits of tensor data for each weight."""
        return 8 * sum(tensor.nbytes for tensor in self.tensors) / self.n_weights

    @property
    def tensor_types(self) -> dict[str, int]:
        """Name of each type that is written -> how many tensors have it."""
        return dict(Counter(type_name(tensor.type) for tensor in self.tensors))

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """Every tensor that does not have the type that it should, for the length of its rows."""
        return tuple(
            Fallback(tensor.name, tensor.shape[0], type_name(tensor.wanted), type_name(tensor.type))
            for tensor in self.tensors
            if tensor.type != tensor.wanted
        )
