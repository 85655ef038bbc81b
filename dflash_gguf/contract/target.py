"""What libllama demands of a target's file, with a drafter or without.

Comes in: the header of any model but a drafter. Goes out: every finding. Reads no weights. Faults for which libllama
merely refuses a file are its own to tell; these are the ones that would end the process.
Source: llama.cpp src/llama-model.cpp, src/models and ggml/src (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.hparams import LENGTH, Sizes, read_sizes
from dflash_gguf.contract.reader import COUNT, Bounds, Reader
from dflash_gguf.contract.tensors import MATRIX, VECTOR
from dflash_gguf.contract.vocabulary import check_vocabulary
from dflash_gguf.facts import architecture
from dflash_gguf.ggml_types import type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_gguf.findings import Finding
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.gguf_parser import TensorInfo

DOWNLOAD_AGAIN: Final = "download the file again, or convert the model again with llama.cpp's own converter"

ADDED: Final = ("_norm.weight", ".bias", ".scale", "conv.weight", "conv1d.weight", "rope_freqs.weight", "sinks.weight")
"""Endings of tensors that are added or multiplied value by value, or convolved: F32, whatever their shape."""

SMALL_COUNTS: Final = (
    "expert_shared_count", "leading_dense_block_count", "ssm.conv_kernel", "ssm.group_count", "ssm.inner_size",
    "ssm.state_size", "ssm.time_step_rank", "shortconv.l_cache", "interleave_moe_layer_step",
)  # fmt: skip
"""Counts that libllama divides by or makes shapes of."""


def target_findings(header: GGUFHeader) -> tuple[Finding, ...]:
    """Everything for which libllama would abort on this file."""
    reader = Reader(header, "target", DOWNLOAD_AGAIN)
    arch = architecture(header)
    sizes = read_sizes(reader, arch)
    check_vocabulary(reader)
    for rule in RULES:
        rule(reader, arch, sizes)
    return tuple(reader.findings)


def _widths(reader: Reader, arch: str, sizes: Sizes) -> None:
    n_layers = sizes.n_layers or 1
    reader.a_layer(f"{arch}.feed_forward_length", n_layers, Bounds(0, LENGTH.most))
    reader.a_layer(f"{arch}.expert_feed_forward_length", n_layers, Bounds(0, LENGTH.most))
    for name in SMALL_COUNTS:
        reader.integer(f"{arch}.{name}", Bounds(0, LENGTH.most))


def _rope(reader: Reader, arch: str, sizes: Sizes) -> None:
    for suffix, longest in (("", sizes.key_length), ("_swa", None)):
        key = f"{arch}.rope.dimension_count{suffix}"
        turned = reader.integer(key)
        limit = longest or LENGTH.most
        if turned is not None and (turned < 2 or turned % 2 or turned > limit):
            reader.fault(f"`{key}` is not an even number from 2 to {limit}", turned)
    key = f"{arch}.rope.dimension_sections"
    if key in reader.header.keys:
        reader.integers(key, None, Bounds(0, LENGTH.most))


def _window(reader: Reader, arch: str, sizes: Sizes) -> None:
    reader.integer(f"{arch}.attention.sliding_window", COUNT)
    key = f"{arch}.attention.sliding_window_pattern"
    value = reader.header.keys.get(key)
    if value is not None and value.type_text.startswith("array") and sizes.n_layers is not None:
        reader.booleans(key, sizes.n_layers)


def _types(reader: Reader, _arch: str, _sizes: Sizes) -> None:
    """One finding for each type that is wrong, not one a tensor."""
    wrong: dict[tuple[int, bool], list[str]] = {}
    for info in reader.header.tensors.values():
        added = _is_added(info)
        if info.type not in (VECTOR if added else MATRIX):
            wrong.setdefault((info.type, added), []).append(info.name)
    for (kind, added), names in wrong.items():
        allowed = "F32 is needed" if added else "a float or quantized type is needed"
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        reader.fault(f"tensor `{ascii(names[0])[1:-1]}`{more} cannot be computed with: {allowed}", type_name(kind))


def _is_added(info: TensorInfo) -> bool:
    return sum(size > 1 for size in info.shape) <= 1 or info.name.endswith(ADDED)


RULES: Final[tuple[Callable[[Reader, str, Sizes], None], ...]] = (_widths, _rope, _window, _types)
"""Each notes what is wrong with one matter."""
