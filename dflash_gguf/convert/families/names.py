"""One name for one tensor, whatever prefix and spelling its authors chose.

Comes in: tensors under the names of their files. Goes out: the same under plain names, those that families' rules
use; what no drafter needs is left out with a note, and what is fused is split.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.sources import both, listed, rows_of
from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.convert.sources import Tensor
    from dflash_gguf.convert.spec import DrafterSpec

PREFIX: Final = re.compile(r"(?:model\.)?(?:language_model\.)?(?:model\.)?")
SPELLINGS: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"mtp\.\d+\.main_proj\.weight", "fc.weight"),
        (r"mtp\.\d+\.main_norm\.weight", "hidden_norm.weight"),
        (r"mtp\.\d+\.embed\.weight", "embed_tokens.weight"),
        (r"mtp\.\d+\.head\.weight", "lm_head.weight"),
        (r"mtp\.\d+\.(norm\.weight|hc_head_\w+|markov_head\..*|confidence_head\..*)", r"\1"),
        (r"mtp\.(\d+\..*)", r"layers.\1"),
        (r"encoder\.fc\.weight", "fc.weight"),
        (r"encoder\.output_norm_enc\.weight", "hidden_norm.weight"),
        (r"(?:markov_head\.)?markov_(w[12])(?:\.weight)?", r"markov_head.markov_\1.weight"),
        (r"confidence_proj\.(weight|bias)", r"confidence_head.proj.\1"),
        (r"(candidate_selector\.\w+_codebook)\.weight", r"\1"),
        (r"(layers\.\d+\.self_attn)\.(?:attention_sink_bias|sinks)(?:\.weight)?", r"\1.attention_sink_bias"),
        (r"(layers\.\d+\.layer_scalar)\.weight", r"\1"),
    )
)
"""Other spelling -> plain name. Sources: DeepSeek-V4, Meta's Muse assistant, ModelOpt, DeepSpec, MiMo."""
DROPPED: Final = (
    ("rotary_emb.inv_freq", "frequencies that follow from the config"),
    ("ffn.gate.tid2eid", "a table that only the target routes by"),
)
"""End of a tensor's name -> why it is left out."""
FUSED: Final = re.compile(r"(layers\.\d+)\.(mlp\.gate_up|self_attn\.qkv)_proj\.weight")


def plain_names(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Tensors under plain names, and notes on those that were left out."""
    plain: dict[str, Tensor] = {}
    notes: list[str] = []
    for ending, reason in DROPPED:
        dropped = [name for name in tensors if name.endswith(ending)]
        if dropped:
            notes.append(f"{listed(dropped)} left out: {reason}")
    for name, tensor in tensors.items():
        if name.endswith(tuple(ending for ending, _ in DROPPED)):
            continue
        bare = plain_name(name)
        if bare in plain:
            raise both(plain[bare], tensor)
        plain[bare] = tensor
    return plain, tuple(notes)


def plain_name(name: str) -> str:
    """The name that the rules use."""
    bare = PREFIX.sub("", name, count=1)
    for pattern, plain in SPELLINGS:
        if pattern.fullmatch(bare):
            return pattern.sub(plain, bare)
    return bare


def split_fused(tensors: Mapping[str, Tensor], spec: DrafterSpec) -> dict[str, Tensor]:
    """Gate above up, and query above key above value, each as tensors of their own."""
    key = spec.n_kv_heads * spec.head_dim
    parts = {
        "mlp.gate_up": (("mlp.gate", spec.feed_forward), ("mlp.up", spec.feed_forward)),
        "self_attn.qkv": (
            ("self_attn.q", spec.n_heads * spec.head_dim), ("self_attn.k", key), ("self_attn.v", key),
        ),
    }  # fmt: skip
    split = {name: tensor for name, tensor in tensors.items() if FUSED.fullmatch(name) is None}
    for name, tensor in tensors.items():
        fused = FUSED.fullmatch(name)
        if fused is None:
            continue
        pieces = parts[fused[2]]
        if tensor.shape != (sum(rows for _, rows in pieces), spec.hidden_size):
            value, rows = list(tensor.shape), sum(rows for _, rows in pieces)
            raise CheckpointError(f"shape of `{name}`", value=value, expected=f"{[rows, spec.hidden_size]}")
        first = 0
        for piece, rows in pieces:
            whole = f"{fused[1]}.{piece}_proj.weight"
            if whole in split:
                raise both(split[whole], tensor)
            split[whole] = rows_of(tensor, first, rows, tensor.name)
            first += rows
    return split
