"""Tables of numbers that ggml takes for rows: each must be there.

Comes in: a header whose name is its path. Goes out: findings in a reader. Reads those tables, which are
small, and no weights.
Source: llama.cpp ggml/src/ggml-cpu/ops.cpp, ``set_rows``, and ``mul_mat_id`` in ggml-cpu.c (0.5.0): a row that is not
there ends the process.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.ggml_types import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dflash_gguf.contract.reader import Reader
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.gguf_parser import TensorInfo

WIDTHS: Final = {BY_NAME["I64"].id: 8, BY_NAME["I32"].id: 4}
"""Types of numbers -> bytes of one."""

CHUNK: Final = 1 << 20


def check_tables(reader: Reader, header: GGUFHeader, names: Iterable[str], limit: int | None) -> None:
    """Notes the first number of each of ``names`` that is not below ``limit``; ``header`` is of the file or a shard."""
    path = Path(header.name)
    if limit is None or not path.is_file():
        return
    for name in names:
        info = header.tensors.get(name)
        if info is not None and info.type in WIDTHS:
            wrong = _first_outside(path, header, info, limit)
            if wrong is not None:
                reader.fault(f"tensor `{name}` names a row that is not within 0 to {limit - 1}", wrong)


def _first_outside(path: Path, header: GGUFHeader, info: TensorInfo, limit: int) -> int | None:
    width = WIDTHS[info.type]
    with path.open("rb") as file:
        file.seek(header.data_offset + info.offset)
        left = info.nbytes
        while left > 0 and (data := file.read(min(left, CHUNK))):
            left -= len(data)
            numbers = memoryview(data[: len(data) // width * width]).cast("q" if width == 8 else "i")
            wrong = next((number for number in numbers if not 0 <= number < limit), None)
            if wrong is not None:
                return wrong
    return None
