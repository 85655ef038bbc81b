"""Quantized checkpoints: which stored tensors are one weight, and in which scheme.

Comes in: a checkpoint. Goes out: its tensors as their authors mean them: FP8 with its factors, NVFP4 with its
scales; every other packing is refused by name. The tensors decide, not the config: drafts inherit configs from
quantized targets. Source: llama.cpp conversion/base.py (0.5.0).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from dflash_gguf.convert.sources import (
    FLOATS,
    FP8,
    NVFP4_GROUP,
    Fp8,
    Nvfp4,
    Scales,
    Source,
    Span,
    Stored,
    Tensor,
    listed,
    read_span,
)
from dflash_gguf.convert.strict_json import load_object
from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.convert.checkpoint import Checkpoint
    from dflash_gguf.convert.safetensors_header import TensorEntry

REFUSED: Final[tuple[tuple[str, str], ...]] = (
    (".qweight", "GPTQ or AWQ"),
    (".qzeros", "GPTQ or AWQ"),
    (".g_idx", "GPTQ"),
    (".weight_packed", "compressed-tensors"),
    (".weight_shape", "compressed-tensors"),
    (".weight_zero_point", "compressed-tensors"),
    (".weight_global_scale", "compressed-tensors"),
    (".absmax", "bitsandbytes"),
    (".SCB", "bitsandbytes int8"),
    (".weight_qzero", "packed integers"),
)
"""End of a tensor's name -> the scheme that writes it, none of which llama.cpp's dflash can hold exactly."""
FACTORS: Final = (".weight_scale_inv", ".weight_scale", ".scale", ".qscale_weight")
"""Ends of the names under which an FP8 matrix's factors lie."""
SECOND: Final = ".weight_scale_2"
INPUT: Final = ".input_scale"
"""Ends of the names of NVFP4's two scalars."""
UNUSED: Final = (".input_scale", ".activation_scale", "_activation_scale", ".qscale_act", ".k_scale", ".v_scale")
"""Scales of activations and caches, which have no place in a drafter's file."""
PREFIX: Final = "model."
"""Before a module's name on either side, or on one of the two."""
SIDE_FILE: Final = "hf_quant_config.json"
DEFAULT_BLOCK: Final = (128, 128)
"""DeepSeek's FP8 block, used where the config names none."""
TRIVIAL: Final = 1e-6


def unpack(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Tensors by name in the checkpoint's order, and notes on what was left out.

    Raises `CheckpointError` on a packing that cannot be read, or whose parts do not fit each other.
    """
    _refuse_packed(checkpoint)
    block = _block(checkpoint.config)
    algorithms = Algorithms.read(checkpoint)
    tensors: dict[str, Tensor] = {}
    parts: set[str] = set()
    for name, entry in checkpoint.tensors.items():
        tensor, others = _weight(name, entry, checkpoint.tensors, block, algorithms)
        tensors[tensor.name] = tensor
        parts |= set(others)
    unused = [name for name in tensors if name.endswith(UNUSED) and name not in parts]
    kept = {name: tensor for name, tensor in tensors.items() if name not in parts and name not in unused}
    return kept, (f"scales of activations were left out: {listed(unused)}",) if unused else ()


@dataclass(frozen=True, slots=True)
class Algorithms:
    """ModelOpt's word on how each layer was quantized: one for all, and those of single modules."""

    default: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self:
        """From ``quantization_config``, and ``hf_quant_config.json`` for what that leaves open."""
        stated = _table(checkpoint.config.get("quantization_config"))
        side = checkpoint.folder / SIDE_FILE
        if not (stated.get("quant_algo") and stated.get("quantized_layers")) and side.is_file():
            stated = stated | _table(load_object(side).get("quantization"))
        modules = _table(stated.get("quantized_layers"))
        named = {name: _table(row).get("quant_algo") for name, row in modules.items()}
        default = stated.get("quant_algo")
        return cls(
            default if isinstance(default, str) else "",
            {name.removeprefix(PREFIX): value for name, value in named.items() if isinstance(value, str)},
        )

    def of(self, name: str) -> str:
        """The algorithm of a tensor: of its module, or of the nearest module around it."""
        module = name.removesuffix(".weight").removeprefix(PREFIX)
        while module:
            if module in self.modules:
                return self.modules[module]
            module = module.rpartition(".")[0]
        return self.default


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _weight(
    name: str, entry: TensorEntry, entries: Mapping[str, TensorEntry], block: tuple[int, int], algorithms: Algorithms
) -> tuple[Tensor, tuple[str, ...]]:
    """The tensor whose main part is ``name``, with the names of its other parts."""
    scale = name.removesuffix(".weight") + ".weight_scale"
    if name.endswith(".weight") and entry.dtype == "U8" and scale in entries:
        return _nvfp4(name, entry, scale, entries, algorithms)
    if entry.dtype in FP8 and name.endswith(".weight"):
        return _fp8(name, entry, entries, block)
    return _plain(name, entry), ()


def _plain(name: str, entry: TensorEntry) -> Tensor:
    span = Span(entry.file, entry.offset, entry.nbytes)
    source: Source | None = Stored(name, span, FLOATS[entry.dtype]) if entry.dtype in FLOATS else None
    return Tensor(name, entry.dtype, entry.shape, span, source)


def _refuse_packed(checkpoint: Checkpoint) -> None:
    scheme = _scheme(checkpoint.config)
    for name in checkpoint.tensors:
        found = next((title for end, title in REFUSED if name.endswith(end)), None) or _whole_numbers(checkpoint, name)
        if found is not None:
            raise CheckpointError(
                f"tensor `{name}` is packed by a scheme that cannot be converted",
                value=scheme or found,
                expected="F32, F16, BF16, FP8 or NVFP4 weights",
                remedy="convert the drafter that its authors published unquantized",
            )


def _whole_numbers(checkpoint: Checkpoint, name: str) -> str | None:
    """What int8 weights with a scale are, which nothing in their names tells."""
    scaled = f"{name}_scale" in checkpoint.tensors
    return "compressed-tensors (int8)" if checkpoint.tensors[name].dtype == "I8" and scaled else None


def _scheme(config: Mapping[str, Any]) -> str:
    stated = config.get("quantization_config")
    if not isinstance(stated, dict):
        return ""
    parts = [stated.get(key) for key in ("quant_method", "format", "quant_algo")]
    groups = [name for name in _table(stated.get("config_groups")) if isinstance(name, str)]
    text = " ".join(ascii(part)[1:-1][:40] for part in parts if isinstance(part, str))
    return f"{text} ({', '.join(ascii(name)[1:-1][:40] for name in groups[:8])})" if len(groups) > 1 else text


def _block(config: Mapping[str, Any]) -> tuple[int, int]:
    stated = config.get("quantization_config")
    block = stated.get("weight_block_size") if isinstance(stated, dict) else None
    if block is None:
        return DEFAULT_BLOCK
    if not isinstance(block, list) or len(block) != 2 or not all(type(n) is int and 0 < n < 1 << 20 for n in block):
        raise CheckpointError(
            "`quantization_config.weight_block_size`", value=ascii(block)[:80], expected="two positive integers"
        )
    return (block[0], block[1])


def _fp8(
    name: str, entry: TensorEntry, entries: Mapping[str, TensorEntry], block: tuple[int, int]
) -> tuple[Tensor, tuple[str, ...]]:
    stem = name.removesuffix(".weight")
    parts = [stem + end for end in FACTORS if stem + end in entries]
    if len(parts) != 1 or len(entry.shape) != 2:
        value = " and ".join(f"`{part}`" for part in parts) or "no factors"
        raise CheckpointError(f"FP8 tensor `{name}`", value=value, expected=f"a matrix with one `{stem}.weight_scale`")
    factors = entries[parts[0]]
    shape, size = _scale_shape(name, entry.shape, factors, block)
    span = Span(entry.file, entry.offset, entry.nbytes)
    place = Span(factors.file, factors.offset, factors.nbytes)
    source = Fp8(name, span, entry.dtype, Scales(place, factors.dtype, shape, size))
    return Tensor(name, entry.dtype, entry.shape, span, source), tuple(parts)


def _scale_shape(
    name: str, shape: tuple[int, ...], factors: TensorEntry, block: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """The factors as a grid, and the rows and columns that each cell covers."""
    rows, columns = shape
    grids = {
        (): ((1, 1), (rows, columns)),
        (1,): ((1, 1), (rows, columns)),
        (rows,): ((rows, 1), (1, columns)),
        (rows, 1): ((rows, 1), (1, columns)),
        (1, 1): ((1, 1), (rows, columns)),
    }
    blocks = (-(-rows // block[0]), -(-columns // block[1]))
    found = (blocks, block) if factors.shape == blocks else grids.get(factors.shape)
    if found is None or factors.dtype not in (*FLOATS, "F8_E8M0"):
        raise CheckpointError(
            f"the factors of FP8 tensor `{name}`",
            value=f"{factors.dtype} {list(factors.shape)}",
            expected=f"one for the tensor, for each row, or for each {block[0]} x {block[1]} block",
        )
    return found


def _nvfp4(
    name: str, entry: TensorEntry, scale: str, entries: Mapping[str, TensorEntry], algorithms: Algorithms
) -> tuple[Tensor, tuple[str, ...]]:
    factors, base = entries[scale], name.removesuffix(".weight")
    rows, half = entry.shape if len(entry.shape) == 2 else (0, 0)
    columns = 2 * half
    if factors.dtype != "F8_E4M3" or factors.shape != (rows, columns // NVFP4_GROUP) or columns % 64 or not rows:
        raise CheckpointError(
            f"packed tensor `{name}` of {list(entry.shape)} with {factors.dtype} scales of {list(factors.shape)}",
            expected="NVFP4: rows of a multiple of 64 values, an F8_E4M3 scale for each 16",
        )
    if base + SECOND not in entries:
        raise CheckpointError(
            f"NVFP4 tensor `{name}` has no `{base + SECOND}`", expected="the factor of the whole tensor"
        )
    second, inputs = _scalar(base + SECOND, entries), _scalar(base + INPUT, entries)
    span = Span(entry.file, entry.offset, entry.nbytes)
    source = Nvfp4(name, span, Span(factors.file, factors.offset, factors.nbytes))
    # llama.cpp conversion/base.py: such weights must not be multiplied with 4-bit activations.
    whole_inputs = algorithms.of(name) == "W4A16_NVFP4"
    tensor = Tensor(name, "NVFP4", (rows, columns), span, source, second, inputs, whole_inputs)
    return tensor, tuple(part for part in (scale, base + SECOND, base + INPUT) if part in entries)


def _scalar(name: str, entries: Mapping[str, TensorEntry]) -> bytes | None:
    """An F32 scalar; None when there is none, or it is 1."""
    entry = entries.get(name)
    if entry is None:
        return None
    if entry.dtype not in FLOATS or entry.shape not in ((), (1,)):
        raise CheckpointError(f"`{name}`", value=f"{entry.dtype} {list(entry.shape)}", expected="one float")
    value = as_floats(read_span(Span(entry.file, entry.offset, entry.nbytes), name), entry.dtype)[0]
    if not 0 < value < float("inf"):
        raise CheckpointError(f"`{name}`", value=float(value), expected="a positive number")
    return None if abs(float(value) - 1) < TRIVIAL else struct.pack("<f", value)


def as_floats(data: bytes, dtype: str) -> np.ndarray:
    """float32 values of F32, F16, BF16 or F8_E8M0 bytes."""
    if dtype == "F8_E8M0":
        # 255 is not a number; it becomes one here, and is refused where the product is stored.
        exponents = np.frombuffer(data, np.uint8).astype(np.int32)
        return np.where(exponents == 255, np.float32("nan"), np.ldexp(np.float32(1), np.minimum(exponents, 254) - 127))
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32)
