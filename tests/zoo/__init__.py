"""The zoo: every published family of drafters as a tiny checkpoint, and the targets that they fit.

Comes in: a family's name. Goes out: a folder as its authors publish it, only smaller, every weight drawn from a
seed. ``FAMILIES`` can be converted, ``REFUSED`` cannot.
"""

# ruff: noqa: A002 - `type` is what GGUF calls it

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zoo import deepseek4, dflash, dflash2, dspark, refused, targets
from zoo.files import Content, Stored, write_content
from zoo.parts import Row
from zoo.targets import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "FAMILIES",
    "REFUSED",
    "ROWS",
    "TARGETS",
    "Content",
    "Row",
    "Stored",
    "content",
    "write_checkpoint",
    "write_content",
    "write_target_folder",
    "write_target_gguf",
]

FAMILIES = {row.name: row for row in (*dflash.ROWS, *dflash2.ROWS, *dspark.ROWS, *deepseek4.ROWS)}
REFUSED = {row.name: row for row in refused.ROWS}
ROWS = FAMILIES | REFUSED


def content(name: str, *, seed: int = 1, **dims: Any) -> Content:
    """A family's config, tensors and other files; ``dims`` are fields of `tiny.Dims`."""
    row = ROWS[name]
    return row.build(replace(row.dims, **dims), seed)


def write_checkpoint(name: str, parent: Path, *, seed: int = 1, **dims: Any) -> Path:
    """Write a family's folder, under the name of its published repository, into ``parent``."""
    return write_content(parent / ROWS[name].folder, content(name, seed=seed, **dims))


def write_target_folder(name: str, parent: Path, **dims: Any) -> Path:
    """Write the Hugging Face folder of the target that family ``name`` fits into ``parent``."""
    row = ROWS[name]
    return targets.write_folder(row.target, parent / TARGETS[row.target].folder, replace(row.dims, **dims))


def write_target_gguf(
    name: str,
    path: Path,
    *,
    type: str = "BF16",
    arch: str | None = None,
    options: dict[str, Any] | None = None,
    **dims: Any,
) -> Path:
    """Write the GGUF of the target that family ``name`` fits; ``arch="qwen3"`` makes one that libllama runs."""
    row = ROWS[name]
    return targets.write_gguf(row.target, path, replace(row.dims, **dims), type=type, arch=arch, **(options or {}))
