"""What a Modelfile says, before it is spelt: one frozen value for both kinds of files.

Comes in: nothing. Goes out: `Content`, and the two kinds of files with what ollama does with each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from dflash_gguf.modelfile.versions import DFLASH2_MLX_NOTE, DFLASH2_NOTE, MIN_OLLAMA, MIN_SAFETENSORS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dflash_gguf.modelfile.parameters import Given, Parameters


@dataclass(frozen=True, slots=True)
class Lane:
    """One kind of files: the flag of ``ollama create``, the least version, and the types it can quantize to.

    ``types`` maps the spelling that ollama takes, in lower case, to the one that is written.
    """

    title: str
    flags: tuple[str, ...]
    least: str
    dflash2_note: str
    types: Mapping[str, str]


def _spellings(*names: str, **aliases: str) -> dict[str, str]:
    return {name.lower(): name for name in names} | aliases


GGUF: Final = Lane(
    "GGUF",
    (),
    MIN_OLLAMA,
    DFLASH2_NOTE,
    _spellings("F32", "F16", "BF16", "Q4_K_S", "Q4_K_M", "Q8_0", q4_k="Q4_K_M"),
)
SAFETENSORS: Final = Lane(
    "safetensors",
    ("--experimental",),
    MIN_SAFETENSORS,
    DFLASH2_MLX_NOTE,
    _spellings("int4", "int8", "nvfp4", "mxfp4", "mxfp8", q4="int4", fp4="int4", q8="int8", fp8="int8"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """A pair that was read: where it is, and what of the drafter a Modelfile depends on.

    ``target`` is a path, or the name of a model that ollama has (``from_model``).
    """

    lane: Lane
    target: str
    draft: Path
    from_model: bool
    kind: str
    block_size: int
    warnings: tuple[str, ...]


class Settings(TypedDict, total=False):
    """What else a Modelfile can say; see `render`."""

    system: str | None
    template: str | None
    licenses: Sequence[str]
    renderer: str | None
    parser: str | None
    parameters: Given | Sequence[str]
    requires: str | None
    quantize: str | None
    draft_quantize: str | None


@dataclass(frozen=True, slots=True)
class Content:
    """Everything that the Modelfile, the command and the API are told, checked."""

    source: Source
    depth: int
    requires: str
    noted: bool
    parameters: Parameters
    system: str | None
    template: str | None
    licenses: tuple[str, ...]
    renderer: str | None
    parser: str | None
    quantize: str | None
    draft_quantize: str | None

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of ``ollama create`` behind the file's name."""
        types = (("--quantize", self.quantize), ("--draft-quantize", self.draft_quantize))
        return (*self.source.lane.flags, *(word for pair in types if pair[1] for word in pair if word))
