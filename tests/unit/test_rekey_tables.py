"""Re-keying a file with a table of rows: it is read where the old file has it, whatever the new one's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import forks
import pytest
from faults import reduced
from gguf_parts import Parts

from dflash_gguf.errors import GGUFError
from dflash_gguf.pair import check
from dflash_gguf.rekeying.api import planned, rekey

if TYPE_CHECKING:
    from pathlib import Path

N_VOCAB = forks.SMALL["vocab"]


def fork_with(folder: Path, numbers: tuple[int, ...], *, first: bool) -> tuple[Path, Path]:
    """A native file whose ``d2t`` holds these numbers, its first tensor or its last, and buun's of it."""
    parts = reduced(*numbers)(Parts.of(forks.small_files()["native"]))
    rest = {name: tensor for name, tensor in parts.tensors.items() if name != "d2t"}
    table = {"d2t": parts.tensors["d2t"]}
    ordered = Parts(parts.keys, table | rest if first else rest | table)
    native = ordered.write(folder / "native.gguf")
    return native, forks.write_fork(native, folder / "fork.gguf", forks.STYLES["buun"])


@pytest.mark.parametrize("first", [True, False])
def test_a_sound_table_stays(first: bool, tmp_path: Path) -> None:
    native, fork = fork_with(tmp_path, tuple(range(0, N_VOCAB, 2)), first=first)
    new = rekey(fork, tmp_path / "new.gguf", forks.small_files()["target"]).path
    assert forks.tensor_bytes(new) == forks.tensor_bytes(native)
    assert check(forks.small_files()["target"], new).ok
    assert not planned(new).changed


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("wrong", [N_VOCAB, -1])
def test_a_row_that_is_not_there_is_refused(first: bool, wrong: int, tmp_path: Path) -> None:
    numbers = (*range(N_VOCAB - 1), wrong)
    for path in fork_with(tmp_path, numbers, first=first):
        with pytest.raises(GGUFError, match=rf"tensor `d2t` names a row .* 0 to 299 \(drafter {wrong}\)"):
            planned(path)
