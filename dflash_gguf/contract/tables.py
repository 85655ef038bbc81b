"""Tables of numbers that ggml takes for rows: each must be there.

Comes in: where the data of tensors lies. Goes out: findings in a reader. Reads those tables, which are small, and no
weights.
Source: llama.cpp ggml/src/ggml-cpu/ops.cpp, ``set_rows``, and ``mul_mat_id`` in ggml-cpu.c (0.5.0): a row that is not
there ends the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from dflash_gguf.ggml_types import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from dflash_gguf.contract.reader import Reader
    from dflash_gguf.gguf_header import GGUFHeader

WIDTHS: Final = {BY_NAME["I64"].id: 8, BY_NAME["I32"].id: 4}
"""Types of numbers -> bytes of one."""

CHUNK: Final = 1 << 20
NUMBERS_LIMIT: Final = 1 << 24
"""More than a published vocabulary of 262,144 tokens with 64 experts for each."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor's type, and where its data lies in a file."""

    type: int
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class TensorData:
    """A file that holds tensors' data, by name; ``path`` None: no file has it yet."""

    path: Path | None
    tensors: Mapping[str, Stored]

    @classmethod
    def of(cls, header: GGUFHeader) -> Self:
        """The data of the very file that the header was read from."""
        places = {
            info.name: Stored(info.type, header.data_offset + info.offset, info.nbytes)
            for info in header.tensors.values()
            if info.type in WIDTHS
        }
        return cls(header.path, places)


def check_tables(reader: Reader, data: TensorData, names: Iterable[str], limit: int | None) -> None:
    """Notes the first number of each of ``names`` that is not below ``limit``."""
    if limit is None or data.path is None:
        return
    for name in names:
        stored = data.tensors.get(name)
        if stored is not None and stored.type in WIDTHS:
            if stored.nbytes > NUMBERS_LIMIT * WIDTHS[stored.type]:
                reader.fault(f"tensor `{name}` has more than {NUMBERS_LIMIT} numbers", f"{stored.nbytes} bytes")
                continue
            wrong = _first_outside(data.path, stored, limit)
            if wrong is not None:
                reader.fault(f"tensor `{name}` names a row that is not within 0 to {limit - 1}", wrong)


def _first_outside(path: Path, stored: Stored, limit: int) -> int | None:
    width = WIDTHS[stored.type]
    with path.open("rb") as file:
        file.seek(stored.start)
        left = stored.nbytes
        while left > 0 and (data := file.read(min(left, CHUNK))):
            left -= len(data)
            numbers = memoryview(data[: len(data) // width * width]).cast("q" if width == 8 else "i")
            if min(numbers, default=0) < 0 or max(numbers, default=0) >= limit:
                return next(number for number in numbers if not 0 <= number < limit)
    return None
