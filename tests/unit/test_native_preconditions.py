"""The table of libllama's preconditions names only what exists, here and in llama.cpp.

The second is looked up where ``DFLASH_LLAMA_CPP`` names the tree of llama.cpp 0.5.0.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

import pytest
from native_lines import FOLDERS, LINES

TABLE = Path(__file__).resolve().parents[2] / "docs" / "native-preconditions.md"
ROWS = [
    line.strip().strip("|").split(" | ") for line in TABLE.read_text("utf-8").splitlines() if line.startswith("| ")
][1:]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[-1])})
QUOTED = [
    f"{name}:{number}"
    for row in ROWS
    for name, numbers in re.findall(r"([\w-]+\.(?:cpp|c)):(\d+(?:, \d+)*)", row[0])
    for number in numbers.split(", ")
]
TREE = os.environ.get("DFLASH_LLAMA_CPP")


def test_every_row_has_four_columns_and_names_a_check_or_says_that_there_is_none() -> None:
    assert len(ROWS) > 50
    for row in ROWS:
        assert len(row) == 4, row
        assert "`" in row[-1] or row[-1].strip().startswith("not asked: "), row


@pytest.mark.parametrize("name", NAMES)
def test_a_check_that_is_named_exists(name: str) -> None:
    module, _, rest = name.rpartition(".")
    while module:
        try:
            found = importlib.import_module(f"dflash_gguf.{module}")
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}"
    for part in rest.split("."):
        found = getattr(found, part)
    assert callable(found)


def test_every_line_that_is_quoted_is_known() -> None:
    assert set(QUOTED) == set(LINES)


@pytest.mark.skipif(TREE is None, reason="DFLASH_LLAMA_CPP names no tree of llama.cpp")
@pytest.mark.parametrize("place", sorted(LINES))
def test_a_line_that_is_quoted_says_so(place: str) -> None:
    name, _, number = place.partition(":")
    file = next(path for folder in FOLDERS if (path := Path(TREE, folder, name)).is_file())
    assert file.read_text("utf-8").split("\n")[int(number) - 1].strip().startswith(LINES[place])
