"""What libllama demands of a target's file, with a drafter or without.

Comes in: the header of any model but a drafter. Goes out: every finding. Reads no weights: of DeepSeek-V4 the tables of
numbers. Faults for which libllama merely refuses a file are its own to tell; these are the ones that would end the
process.
Source: llama.cpp src/llama-model.cpp, src/models and ggml/src (0.5.0).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.architectures import GATINGS, check_architecture
from dflash_gguf.contract.hparams import LENGTH, Sizes, read_sizes
from dflash_gguf.contract.reader import Bounds, Reader
from dflash_gguf.contract.shards import check_alignments, check_numbers, other_shards
from dflash_gguf.contract.tables import TensorData, check_tables
from dflash_gguf.contract.tensors import MATRIX, VECTOR, check_factors
from dflash_gguf.contract.vocabulary import check_vocabulary
from dflash_gguf.facts import architecture
from dflash_gguf.ggml_types import BY_NAME, type_name

if TYPE_CHECKING:
    from dflash_gguf.findings import Finding
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.gguf_parser import TensorInfo

GATING: Final = "expert_gating_func"
DOWNLOAD_AGAIN: Final = "download the file again, or convert the model again with llama.cpp's own converter"

ADDED: Final = re.compile(
    r"(_norm\.weight|norm\.weight|\.bias|\.scale|conv\.weight|conv1d\w*\.weight|rope_f\w+\.weight|sinks\.weight|ssm_[ad]"
    r"|hc_\w*(base|scale)\.weight)$"
)
"""Tensors that are added or multiplied value by value, or convolved: F32, whatever their shape."""

A_MATRIX: Final = "ffn_gate_inp_shexp.weight"
"""A matrix of one row."""

NUMBERS: Final = re.compile(r"ffn_gate_tid2eid\.weight$")
"""Tables of numbers."""
INDEX: Final = frozenset({BY_NAME["I32"].id})

COUNTS: Final = ("expert_shared_count", "leading_dense_block_count", "hash_layer_count", "interleave_moe_layer_step")
LENGTHS: Final = ("feed_forward_length", "expert_feed_forward_length")


def target_findings(header: GGUFHeader) -> tuple[Finding, ...]:
    """Everything for which libllama would abort on this file and its further shards."""
    reader = Reader(header, "target", DOWNLOAD_AGAIN, other_shards(header))
    arch = architecture(header)
    sizes = read_sizes(reader, arch)
    check_vocabulary(reader)
    _widths(reader, arch, sizes)
    check_architecture(reader, arch, sizes)
    _types(reader)
    check_factors(reader)
    check_alignments(reader)
    check_numbers(reader)
    for part in reader.parts:
        names = [name for name in part.tensors if NUMBERS.search(name)]
        check_tables(reader, TensorData.of(part), names, sizes.n_experts or None)
    return tuple(reader.findings)


def _widths(reader: Reader, arch: str, sizes: Sizes) -> None:
    for name in LENGTHS:
        reader.a_layer(f"{arch}.{name}", sizes.n_layers or 1, Bounds(0, LENGTH.most))
    for name in COUNTS:
        reader.integer(f"{arch}.{name}", Bounds(0, LENGTH.most))
    reader.integer(f"{arch}.{GATING}", GATINGS)


def _types(reader: Reader) -> None:
    """Notes tensors of a type that ggml cannot compute with: one finding a type, not one a tensor."""
    wrong: dict[tuple[int, str], list[str]] = {}
    for info in reader.tensors.values():
        needed, types = _needed(info)
        if info.type not in types:
            wrong.setdefault((info.type, needed), []).append(info.name)
    for (kind, needed), names in wrong.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        reader.fault(f"tensor `{ascii(names[0])[1:-1]}`{more} cannot be computed with: {needed}", type_name(kind))


def _needed(info: TensorInfo) -> tuple[str, frozenset[int]]:
    if NUMBERS.search(info.name):
        return "I32 is needed", INDEX
    if info.name.endswith(A_MATRIX):
        return "a float or quantized type is needed", MATRIX
    if sum(size > 1 for size in info.shape) <= 1 or ADDED.search(info.name):
        return "F32 is needed", VECTOR
    return "a float or quantized type is needed", MATRIX
