"""Drafter files as forks of llama.cpp write them, made from a converted one by renaming what it holds.

Comes in: a ``dflash`` GGUF. Goes out: a fork's. gguf-py reads and writes; no code of the package takes part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import gguf
import scratch
import tiny

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UINT32, FLOAT32, STRING = gguf.GGUFValueType.UINT32, gguf.GGUFValueType.FLOAT32, gguf.GGUFValueType.STRING
MASK = "tokenizer.ggml.mask_token_id"
TAPS = "dflash.target_layers"


@dataclass(frozen=True)
class Style:
    """How a fork names things: upstream's key -> its own, ``keys`` and ``tensors`` as far as they differ.

    ``tap`` is added to each tap; ``vocabulary``: it keeps the tokenizer.
    """

    architecture: str
    keys: Mapping[str, str]
    tensors: Mapping[str, str]
    drop: tuple[str, ...] = ()
    extra: Mapping[str, tuple[Any, gguf.GGUFValueType]] = field(default_factory=dict)
    tap: int = -1
    vocabulary: bool = False


def _nested(*names: str, inside: str = "dflash.") -> dict[str, str]:
    return {f"dflash.{name}": f"{{arch}}.{inside}{name}" for name in names}


_TAPS_AND_MASK = {TAPS: "{arch}.dflash.target_layer_ids", MASK: "{arch}.dflash.mask_token_id"}
_BUUN = {"fc.weight": "dflash_fc.weight", "enc.output_norm.weight": "dflash_hidden_norm.weight"}
_LUCE = {
    "fc.weight": "dflash.fc.weight",
    "enc.output_norm.weight": "dflash.hidden_norm.weight",
    "markov_w1.weight": "dflash.dspark.markov.w1",
    "markov_w2.weight": "dflash.dspark.markov.w2",
}
_PULSAR = {
    "selector_predecessor.weight": "selector_pred",
    "selector_successor.weight": "selector_succ",
    "selector_hidden.weight": "selector_hproj.weight",
    "conf_proj.weight": "confidence_proj.weight",
    "ffn_norm.weight": "post_attention_norm.weight",
}
_PRISM = {
    "fc.weight": "dspark.fc.weight",
    "enc.output_norm.weight": "dspark.hidden_norm.weight",
    "markov_w1.weight": "dspark.markov_head_a.weight",
    "markov_w2.weight": "dspark.markov_head_b.weight",
    "conf_proj.weight": "dspark.confidence_head.weight",
    "conf_proj.bias": "dspark.confidence_head.bias",
}

STYLES = {
    "buun": Style(
        "dflash-draft",
        _TAPS_AND_MASK | _nested("block_size"),
        _BUUN | {"ffn_norm.weight": "post_attention_norm.weight"},
        drop=("dflash.attention.causal",),
        extra={"dflash-draft.dflash.n_target_features": (1536, UINT32)},
        vocabulary=True,
    ),
    "pulsar": Style(
        "dflash-draft",
        _TAPS_AND_MASK
        | _nested("block_size")
        | _nested("conv_group_size", "selector_rank", "selector_top_k", inside="dflash2.")
        | {"dflash.conv_kernel_size": "{arch}.dflash2.conv_taps"},
        _BUUN | _PULSAR,
        drop=(
            "dflash.attention.causal",
            "dflash.attention.value_length",
            "dflash.attention.layer_norm_rms_epsilon",
            "dflash.context_length",
            "dflash.sample_from_anchor",
            "dflash.has_confidence_head",
        ),
    ),
    "lucebox": Style(
        "qwen35-dflash-draft",
        _TAPS_AND_MASK | _nested("block_size"),
        _LUCE,
        drop=("dflash.attention.causal", "dflash.sample_from_anchor", "dflash.has_confidence_head"),
        extra={
            "qwen35-dflash-draft.vocab_size": (512, UINT32),
            "qwen35-dflash-draft.dflash.n_target_layers": (3, UINT32),
        },
    ),
    "prism": Style(
        "dspark",
        {TAPS: "{arch}.dspark.target_layers", MASK: "{arch}.dspark.mask_token_id"}
        | _nested("block_size", inside="dspark."),
        _PRISM,
        drop=("dflash.attention.causal", "dflash.sample_from_anchor", "dflash.has_confidence_head"),
        extra={
            "tokenizer.ggml.model": ("none", STRING),
            "dspark.vocab_size": (512, UINT32),
            "dspark.dspark.markov_rank": (32, UINT32),
        },
    ),
}


def write_fork(source: Path, out: Path, style: Style) -> Path:
    """Write ``source`` as ``style`` has it; every tensor's bytes stay."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, style.architecture)
    for name, value in reader.fields.items():
        key = _key(name, style)
        if key is not None:
            taps = [tap + style.tap for tap in value.contents()] if name == TAPS else value.contents()
            sub_type = value.types[-1] if len(value.types) > 1 else None
            writer.add_key_value(key, taps, value.types[0], sub_type=sub_type)
    for key, (value, kind) in style.extra.items():
        writer.add_key_value(key, value, kind)
    for tensor in reader.tensors:
        writer.add_tensor(_tensor(tensor.name, style), tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _key(name: str, style: Style) -> str | None:
    if name.startswith("GGUF.") or name == "general.architecture" or name in style.drop:
        return None
    if name in style.keys:
        return style.keys[name].format(arch=style.architecture)
    if name.startswith("tokenizer."):
        return name if style.vocabulary else None
    return name.replace("dflash.", f"{style.architecture}.", 1) if name.startswith("dflash.") else name


def _tensor(name: str, style: Style) -> str:
    if not name.startswith("blk."):
        return style.tensors.get(name, name)
    _, layer, rest = name.split(".", 2)
    return f"blk.{layer}.{style.tensors.get(rest, rest)}"


def tensor_bytes(path: Path) -> list[bytes]:
    """The data of each tensor, in the file's order."""
    return [tensor.data.tobytes() for tensor in gguf.GGUFReader(path).tensors]


SMALL = {"hidden": 64, "ffn": 64, "heads": 2, "kv_heads": 1, "head_dim": 32, "vocab": 300}
"""Sizes at which a file takes a few kB."""


def small_drafter(folder: Path, name: str = "drafter.gguf", **options: Any) -> Path:
    """A plain DFlash file with a window and the taps [1, 3], unless ``options`` say otherwise."""
    usual = {"kind": "dflash", "window": 9, "taps": (1, 3), "rank": 16}
    return tiny.write_drafter(folder / name, **(usual | SMALL | options))


@cache
def small_files() -> dict[str, Path]:
    """A native file whose mask token is 7, two forks' of it, and their target, whose mask token is 3."""
    folder = scratch.folder("forks")
    native = small_drafter(folder, mask=7)
    return {
        "native": native,
        "buun": write_fork(native, folder / "buun.gguf", STYLES["buun"]),
        "lucebox": write_fork(native, folder / "lucebox.gguf", STYLES["lucebox"]),
        "target": tiny.write_target(
            folder / "target.gguf", extra_keys={"tokenizer.ggml.mask_token_id": 3}, layers=5, **SMALL
        ),
    }
