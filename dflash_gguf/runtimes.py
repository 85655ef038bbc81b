"""What a program that is to load a drafter must know: by llama.cpp's build, and by the cache that it is told to use.

Comes in: a drafter's header, a build number, types of a cache. Goes out: findings. Asks no installed program.
Source: llama.cpp pull requests 22105, 27816, 28000 and 25823.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.facts import DFLASH2, drafter_kind
from dflash_gguf.findings import Finding
from dflash_gguf.ggml_types import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dflash_gguf.gguf_header import GGUFHeader

FLOAT_CACHES: Final = ("f32", "f16", "bf16")
QUANTIZED_CACHES: Final = ("q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
CACHE_TYPES: Final = FLOAT_CACHES + QUANTIZED_CACHES
"""The types of a cache, by the names that llama.cpp's options take."""


def _is_dflash2(header: GGUFHeader) -> bool:
    return drafter_kind(header.tensors) == DFLASH2


def _has_nvfp4(header: GGUFHeader) -> bool:
    return any(info.type == BY_NAME["NVFP4"].id for info in header.tensors.values())


NEEDS: Final[tuple[tuple[str, int, Callable[[GGUFHeader], bool]], ...]] = (
    ("a drafter of the architecture `dflash`", 10242, lambda _: True),
    ("DFlash 2", 10665, _is_dflash2),
    ("NVFP4 in a drafter, of whose scales older builds lose some", 10729, _has_nvfp4),
)
"""What a file holds, the oldest build of llama.cpp known to run it, and how to tell."""


def runtime_findings(header: GGUFHeader, build: int) -> Iterator[Finding]:
    """What ``build`` of llama.cpp is too old for; builds are numbered as in its releases, ``b10665``."""
    for what, least, holds in NEEDS:
        if build < least and holds(header):
            remedy = f"use llama.cpp b{least} or newer"
            told = f"llama.cpp b{build} is too old for {what}, which needs b{least}"
            yield Finding("error", told, None, drafter_kind(header.tensors), remedy)


def cache_findings(*types: str) -> Iterator[Finding]:
    """What the types of the drafter's cache of keys and of values cost."""
    quantized = [name for name in types if name in QUANTIZED_CACHES]
    if quantized:
        what = (
            "the drafter's cache is quantized, by which it may accept less; llama.cpp before 2026-07-17 accepts next "
            "to nothing then, and the installed 0.5.0 is later"
        )
        remedy = "leave it at f16: with a window it is small"
        yield Finding("warning", what, None, ", ".join(dict.fromkeys(quantized)), remedy)
