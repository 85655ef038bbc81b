"""Drafters that exist and cannot be converted, as a table: what tells each, and why not.

Comes in: a checkpoint's label, config and tensor names. Goes out: an error for the first row that fits.
Source: what llama.cpp's ``dflash`` architecture can hold (src/models/dflash.cpp, 0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Refused:
    """One row: a part of the label, a projector, or a part of a tensor's name tells it."""

    title: str
    reason: str
    labels: tuple[str, ...] = ()
    projectors: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


UNKNOWN_LAYERS: Final = "llama.cpp's dflash does not know its layers"
REFUSED: Final = (
    Refused(
        "Laguna DFlash",
        "llama.cpp's dflash has neither its gate for each head nor its norm for each tap, and dropping them would "
        "change what it computes",
        labels=("DFlashLaguna",),
        marks=("aux_hidden_norms.", ".self_attn.g_proj.", ".self_attn.gate_proj."),
    ),
    Refused(
        "Domino",
        "llama.cpp's dflash has no recurrent network over the prefix of a block",
        labels=("Domino",),
        projectors=("domino",),
        marks=("prefix_gru.", "embed_proj."),
    ),
    Refused(
        "LiLiCorr",
        "llama.cpp's dflash has no place for its corrections",
        labels=("LiLiCorr",),
        projectors=("lilicorr",),
        marks=("lilicorr.",),
    ),
    Refused("JetSpec", "llama.cpp's dflash does not know its head", labels=("JetSpec",), projectors=("jetspec",)),
    Refused("DFlare", UNKNOWN_LAYERS, labels=("DFlare", "QwenDFlash")),
    Refused("DSpine", UNKNOWN_LAYERS, labels=("DSpine",)),
    Refused("DFlash with linear layers", UNKNOWN_LAYERS, labels=("DFlashLinear",)),
    Refused(
        "a Kimi K3 drafter",
        "llama.cpp's dflash has neither its latent attention nor layers without positions",
        labels=("K3DSpark", "K3DFlash"),
    ),
    Refused(
        "NeMo's DSpark for GLM 5.2",
        f"{UNKNOWN_LAYERS}; SpecForge's for the same target is Qwen3-shaped and converts",
        labels=("Glm5_2DSpark",),
    ),
    Refused("MiniMax M3 DSpark", UNKNOWN_LAYERS, labels=("MiniMaxM3DSpark",)),
    Refused(
        "gated Qwen3.5 DSpark",
        "llama.cpp's dflash has no gated queries, and its norms are not offset by one",
        labels=("Qwen35DSpark",),
    ),
    Refused(
        "a gated or recurrent Markov head",
        "llama.cpp's dflash adds two matrices and nothing else",
        marks=("markov_head.gate_proj", "markov_head.joint_proj", "markov_head.gru", "markov_head.rnn"),
    ),
    Refused(
        "early SpecForge",
        "its tensors are named as EAGLE's are; the drafters that SpecForge writes now convert",
        marks=("midlayer.", "logit_head."),
    ),
    Refused(
        "a drafter with biases in its attention (`attention_bias`)",
        "llama.cpp's dflash has no place for them",
        marks=("q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias", "qkv_proj.bias"),
    ),
)


def refuse_known(label: str, projector: str, names: Iterable[str]) -> None:
    """Raise `CheckpointError` when the drafter is one that is known not to fit."""
    listed = tuple(names)
    for row in REFUSED:
        found = next((name for name in listed for mark in row.marks if mark in name), None)
        told_by_label = any(part in label for part in row.labels)
        if told_by_label or projector in row.projectors or found is not None:
            told = f"tensor `{found}`" if found is not None else f"`{label or projector}`"
            raise CheckpointError(f"{row.title} cannot be converted ({told}): {row.reason}")
