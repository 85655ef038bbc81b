"""JSON that someone else wrote: bounded, without duplicate names, and an object at the top.

Comes in: bytes or a path. Goes out: a dict. Knows nothing of what the names mean.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import CheckpointError
from dflash_gguf.files import regular_size

if TYPE_CHECKING:
    from pathlib import Path

FILE_LIMIT: Final = 64 << 20


def parse_object(text: bytes, what: str) -> dict[str, Any]:
    """Parse one JSON object; raises `CheckpointError` naming ``what`` when it is anything else."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except _DuplicateNameError as error:
        raise CheckpointError(f"{what} names `{error}` twice") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{what} is not JSON: {_reason(error)}") from None
    if not isinstance(value, dict):
        raise CheckpointError(what, value=type(value).__name__, expected="a JSON object")
    return value


def load_object(path: Path) -> dict[str, Any]:
    """Read and parse the JSON object in ``path``."""
    try:
        size = regular_size(path)
        if size > FILE_LIMIT:
            raise CheckpointError(f"`{path}`", value=f"{size} bytes", expected=f"at most {FILE_LIMIT}")
        text = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}") from None
    return parse_object(text, f"`{path}`")


class _DuplicateNameError(Exception):
    """A name that appears twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _DuplicateNameError(ascii(name)[1:-1])
        found[name] = value
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return ascii(str(error))[1:-1].lower()
