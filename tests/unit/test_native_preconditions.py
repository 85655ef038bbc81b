"""The table of libllama's preconditions names only what exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TABLE = Path(__file__).resolve().parents[2] / "docs" / "native-preconditions.md"
ROWS = [
    line.strip().strip("|").split(" | ") for line in TABLE.read_text("utf-8").splitlines() if line.startswith("| ")
][1:]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[-1])})


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
