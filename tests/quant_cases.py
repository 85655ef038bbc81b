"""Drafters and importance matrices that llama-quantize was asked to quantize, made on the spot.

Comes in: a case. Goes out: files. Used by the generator of the golden digests and by the tests that hold this package
to them; the files are gguf-py's, so nothing of the package takes part.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import tiny

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOOKED_UP = ("selector_predecessor.weight", "selector_successor.weight", "markov_w1.weight")

NAMES = (
    "F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0",
    "IQ4_NL", "IQ4_XS", "MXFP4_MOE", "Q3_K_L", "Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS", "Q2_K",
    "Q2_K_S", "Q2_0", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "TQ2_0", "TQ1_0", "IQ1_M", "IQ1_S", "Q1_0", "Q3_K",
    "Q4_K", "Q5_K",
)  # fmt: skip
"""What llama-quantize 0.5.0 offers beside COPY."""


@dataclass(frozen=True, slots=True)
class Case:
    """A drafter; ``stored`` is the type of its unquantized file, ``own``: it has embeddings (1) and a head (2)."""

    dims: Mapping[str, Any]
    stored: str = "BF16"
    own: int = 0
    digests: tuple[str, ...] = NAMES
    matrices: tuple[bool, ...] = (False, True)


LAYERS_8 = {"kind": "dflash", "layers": 8, "hidden": 256, "ffn": 256, "heads": 4, "kv_heads": 1, "taps": (0,)}
CASES = {
    "blocks of 256": Case(
        {
            "kind": "dflash",
            "layers": 3,
            "hidden": 256,
            "ffn": 256,
            "heads": 4,
            "kv_heads": 1,
            "taps": (0,),
            "vocab": 320,
        }
    ),
    "blocks of 32": Case(
        {
            "kind": "dflash2",
            "layers": 3,
            "hidden": 288,
            "ffn": 352,
            "heads": 3,
            "kv_heads": 3,
            "head_dim": 32,
            "taps": (0,),
            "vocab": 320,
            "rank": 32,
        }
    ),
    "no blocks": Case(
        {
            "kind": "dspark",
            "layers": 3,
            "hidden": 80,
            "ffn": 112,
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 20,
            "taps": (0, 1),
            "vocab": 320,
            "rank": 24,
        },
        stored="F32",
    ),
    "8 layers": Case(LAYERS_8, digests=("Q4_0", "Q5_0", "Q8_0", "Q4_K_M", "IQ4_XS", "IQ4_NL")),
    "8 layers, few queries": Case(LAYERS_8 | {"kv_heads": 2}, digests=("Q4_0", "Q4_K_M")),
    "embeddings": Case(LAYERS_8 | {"layers": 3, "vocab": 320}, own=1, digests=("Q4_0",)),
    "embeddings and head": Case(LAYERS_8 | {"layers": 3, "vocab": 320}, own=2, digests=("Q4_0",)),
}

OPTIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "pure": ("blocks of 256", "Q4_K_M", ("--pure",)),
    "pure, other rows": ("blocks of 32", "Q4_K_M", ("--pure",)),
    "one tensor": ("blocks of 256", "Q4_K_M", ("--tensor-type", r"blk\.1\.ATTN_V=q5_0")),
    "the first pattern counts": (
        "blocks of 32", "Q4_0", ("--tensor-type", "ffn=q8_0", "--tensor-type", "ffn_down=f16"),
    ),
    "a pattern beside the counts": ("8 layers", "Q4_K_M", ("--tensor-type", r"blk\.0\.ffn_down=q4_1")),
    "pure and a pattern": ("blocks of 256", "Q4_K_S", ("--pure", "--tensor-type", "attn_(q|k)=iq4_nl")),
    "head": ("embeddings and head", "Q4_K_M", ("--output-tensor-type", "q5_1", "--token-embedding-type", "f16")),
    "tied head": ("embeddings", "Q4_K_M", ("--output-tensor-type", "q5_1")),
    "head as it is": ("embeddings and head", "Q4_K_M", ("--leave-output-tensor",)),
    "head of a plain file": ("embeddings and head", "F16", ("--output-tensor-type", "q8_0")),
}  # fmt: skip
"""Case, type and options of llama-quantize; a mixture counts its tensors, so that an option may change the others."""


def write_source(path: Path, case: Case) -> Path:
    """The unquantized GGUF: the values that the checkpoint holds, its vectors too."""
    return tiny.write_drafter(path, type=case.stored, tensors=_values(case), **case.dims)


def write_checkpoint(folder: Path, case: Case) -> Path:
    """The same weights as safetensors."""
    names = {"token_embd.weight": "embed_tokens.weight", "output.weight": "lm_head.weight"}
    own = {names[name]: array for name, array in _own(case).items()}
    return tiny.write_checkpoint(folder, dtype=case.stored, tensors=own, **case.dims)


def _values(case: Case) -> dict[str, np.ndarray]:
    arrays = {tiny.gguf_name(name): a for name, a in tiny.drafter_arrays(tiny.Dims(**case.dims)).items()} | _own(case)
    return {name: tiny.stored_values(array, case.stored) for name, array in arrays.items()}


def _own(case: Case) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    shape = (case.dims.get("vocab", 512), case.dims["hidden"])
    names = ("token_embd.weight", "output.weight")[: case.own]
    return {name: rng.standard_normal(shape).astype(np.float32) for name in names}


@dataclass(frozen=True, slots=True)
class Sums:
    """What an importance matrix has of one tensor: sums of squares, float32 [n_matrices, n_per_row], and counts."""

    sums: np.ndarray = field(repr=False)
    counts: tuple[int, ...] = (37,)


def sums_of(case: Case) -> dict[str, Sums]:
    """Made-up statistics of every matrix that something is multiplied with."""
    rng = np.random.default_rng(9)
    arrays, found = _values(case), {}
    for name in sorted(arrays):
        if arrays[name].ndim == 2 and name.endswith("weight") and name not in LOOKED_UP:
            squares = np.square(rng.standard_normal((1, arrays[name].shape[1])))
            found[name] = Sums((squares * 37 * 3).astype(np.float32))
    return found


def write_matrix(path: Path, entries: Mapping[str, Sums], *, legacy: bool = False) -> Path:
    """As llama-imatrix writes it: a GGUF, or the older form."""
    if legacy:
        path.write_bytes(_legacy(entries))
        return path
    writer = gguf.GGUFWriter(path, "")
    writer.kv_data[0].clear()
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", ["text.txt"])
    writer.add_uint32("imatrix.chunk_count", 5)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, entry in entries.items():
        writer.add_tensor(f"{name}.in_sum2", entry.sums)
        writer.add_tensor(f"{name}.counts", np.array(entry.counts, np.float32)[:, None])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _legacy(entries: Mapping[str, Sums]) -> bytes:
    parts = [struct.pack("<i", len(entries))]
    for name, entry in entries.items():
        raw, calls = name.encode(), 3
        values = entry.sums / np.array(entry.counts, np.float32)[:, None] * calls
        parts += [struct.pack("<i", len(raw)), raw, struct.pack("<ii", calls, values.size)]
        parts.append(values.astype("<f4").tobytes())
    return b"".join([*parts, struct.pack("<ii", 7, 8), b"text.txt"])


def described(path: Path) -> dict[str, Any]:
    """Types of a file's tensors, and one digest over names, types and bytes, in its order."""
    from dflash_gguf.ggml_types import type_name
    from dflash_gguf.gguf_header import read_header

    header, digest = read_header(path), hashlib.sha256()
    data = path.read_bytes()
    for info in header.tensors.values():
        start = header.data_offset + info.offset
        digest.update(f"{info.name} {info.shape} {type_name(info.type)}\n".encode())
        digest.update(data[start : start + info.nbytes])
    types = [f"{info.name} {type_name(info.type)}" for info in header.tensors.values()]
    return {"types": types, "sha256": digest.hexdigest()[:32], "keys": list(header.keys)}


def by_type(types: list[str]) -> str:
    """``Q4_K: fc attn_q ffn_down[0 1]; Q6_K: ffn_down[2]``: layers are told where they differ; F32 is left out."""
    found: dict[str, dict[str, list[str]]] = {}
    layers: set[str] = set()
    for row in types:
        name, kind = row.removeprefix("blk.").split()
        layer, _, rest = name.removesuffix(".weight").rpartition(".")
        layers |= {layer} - {""}
        found.setdefault(kind, {}).setdefault(rest, []).append(layer)
    del found["F32"]
    texts = []
    for kind, names in found.items():
        words = [
            name if where == [""] or set(where) == layers else f"{name}[{' '.join(where)}]"
            for name, where in names.items()
        ]
        texts.append(f"{kind}: {' '.join(words)}")
    return "; ".join(texts)
