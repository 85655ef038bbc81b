"""What forks of llama.cpp call the things of a drafter, as tables: one row a name, each with where it was seen.

Comes in: nothing. Goes out: architectures, keys and tensor names, theirs and upstream's.

Sources, read in the named repositories: spiritbuun/buun-llama-cpp (src/models/dflash_draft.cpp and
gemma4_dflash_draft.cpp), Anbeeld/beellama.cpp (scripts/convert-dflash-draft-to-upstream.py), Luce-Org/lucebox (its
draft loader and converters), PrismML-Eng/llama.cpp (gguf-py/gguf/scripts/gguf_dspark_to_dflash.py, and pull request
127), FearL0rd/pulsar (scripts/convert-dspark-draft.py), chynggi/gigatoken-llama.cpp (convert_dflash_draft_gguf.py).

Taps. All four architectures store the checkpoint's ids, which count outputs, from 0; llama.cpp counts the layers'
inputs, one more. That is sure: published files of ``dflash-draft`` hold the very [1, 16, 31, 46, 61] of their
checkpoint, the converters copy the list, and PrismML's script turns it into [2, 17, 32, 47, 62]. What is not sure is
``dflash.target_layer_ids`` under the architecture ``dflash``: the branch of llama.cpp's pull request 22105 wrote
checkpoint ids there and added one as it ran, while beellama's script renames such a list without adding one. So it
is asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from dflash_gguf.schema import ARCHITECTURE, Keys

Taps = Literal["raw", "shifted"]
"""``raw``: ids as in a checkpoint, of outputs. ``shifted``: llama.cpp's, of inputs, one more."""


@dataclass(frozen=True, slots=True)
class Fork:
    """``taps`` is how its lists of layers are meant; ``scales_embeddings``: its targets multiply their embeddings."""

    architecture: str
    writer: str
    taps: Taps
    scales_embeddings: bool = False


FORKS: Final = {
    fork.architecture: fork
    for fork in (
        Fork("dflash-draft", "buun-llama-cpp, beellama.cpp or pulsar", "raw"),
        Fork("qwen35-dflash-draft", "lucebox", "raw"),
        Fork("gemma4-dflash-draft", "lucebox", "raw", scales_embeddings=True),
        Fork("dspark", "PrismML's llama.cpp, before DSpark was merged", "raw"),
    )
}

SUFFIX: Final = "-dflash-draft"
"""How forks name the architectures of drafters; llama.cpp loads only ``dflash``."""


def is_drafter(architecture: str) -> bool:
    """Whether a file of this architecture is a drafter's, upstream's or a fork's."""
    return architecture == ARCHITECTURE or architecture in FORKS or architecture.endswith(SUFFIX)


NESTED: Final = ("dflash.", "dflash2.", "dspark.")
"""What stands between the architecture and a name: ``dflash-draft.dflash.*`` (buun-llama-cpp, lucebox),
``dflash-draft.dflash2.*`` (pulsar), ``dspark.dspark.*`` (PrismML)."""

KEYS: Final[dict[str, str]] = {
    "target_layer_ids": Keys.TARGET_LAYERS,  # buun-llama-cpp, lucebox; pull request 22105
    "mask_token_id": Keys.MASK_TOKEN_ID,  # all of them
    "conv_taps": Keys.CONV_KERNEL_SIZE,  # pulsar
    "logit_softcap": Keys.SOFTCAP,  # lucebox's first converter for Gemma
    "sliding_window": Keys.SLIDING_WINDOW,  # the same
}
"""A fork's name, bare -> upstream's key. All other names are upstream's own."""

TYPES: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            Keys.BLOCK_COUNT,
            Keys.CONTEXT_LENGTH,
            Keys.EMBEDDING_LENGTH,
            Keys.FEED_FORWARD_LENGTH,
            Keys.HEAD_COUNT,
            Keys.HEAD_COUNT_KV,
            Keys.KEY_LENGTH,
            Keys.VALUE_LENGTH,
            Keys.SLIDING_WINDOW,
            Keys.ROPE_DIMENSION_COUNT,
            Keys.BLOCK_SIZE,
            Keys.CONV_KERNEL_SIZE,
            Keys.CONV_GROUP_SIZE,
            Keys.SELECTOR_RANK,
            Keys.SELECTOR_TOP_K,
            Keys.MASK_TOKEN_ID,
            "dflash.rope.scaling.original_context_length",
        ),
        "uint32",
    ),
    **dict.fromkeys(
        (
            Keys.RMS_EPS,
            Keys.ATTENTION_SCALE,
            Keys.VALUE_SCALE,
            Keys.ROPE_FREQ_BASE,
            Keys.LOGIT_SCALE,
            Keys.SOFTCAP,
            Keys.EMBEDDING_SCALE,
            "dflash.rope.scaling.factor",
            "dflash.rope.scaling.attn_factor",
            "dflash.rope.scaling.yarn_ext_factor",
            "dflash.rope.scaling.yarn_attn_factor",
            "dflash.rope.scaling.yarn_beta_fast",
            "dflash.rope.scaling.yarn_beta_slow",
        ),
        "float32",
    ),
    **dict.fromkeys((Keys.CAUSAL, Keys.SAMPLE_FROM_ANCHOR, Keys.HAS_CONFIDENCE_HEAD), "bool"),
    **dict.fromkeys((Keys.HIDDEN_ACTIVATION, "dflash.rope.scaling.type"), "string"),
    **dict.fromkeys((Keys.TARGET_LAYERS, Keys.ROPE_DIMENSION_SECTIONS), "array[int32]"),
    Keys.SLIDING_WINDOW_PATTERN: "array[bool]",
}
"""Every key that llama.cpp reads of a Qwen3-shaped drafter -> the type that it reads. Source: src/models/dflash.cpp."""

ALSO_READ: Final = {
    "array[int32]": {"array[uint32]"},
    "array[bool]": {"array[int32]", "array[uint32]"},
    "uint32": {"array[int32]", "array[uint32]"},
}
"""Other types that its loader takes in their place (a number may be given for each layer)."""

UNLIKE: Final[dict[str, str]] = {
    "confidence_bias": "keeps the bias of its confidence head in a key",  # pulsar
    "log_snr_conditioning": "conditions its embeddings on noise",  # PrismML
    "domino.enabled": "has Domino's heads",  # lucebox
}
"""Keys which say, when they are neither 0 nor false, that the drafter computes what llama.cpp's does not."""


@dataclass(frozen=True, slots=True)
class TensorName:
    """A pattern that a fork's whole name matches, and upstream's name, with the pattern's groups."""

    pattern: re.Pattern[str]
    upstream: str


TENSORS: Final = tuple(
    TensorName(re.compile(pattern), upstream)
    for pattern, upstream in (
        # buun-llama-cpp: dflash_; lucebox: dflash.; PrismML: dspark.
        (r"(?:dflash_|dflash\.|dspark\.)fc\.(weight|scale|input_scale)", r"fc.\1"),
        # beellama.cpp knows the bare name too.
        (r"(?:dflash_|dflash\.|dspark\.|)hidden_norm\.weight", "enc.output_norm.weight"),
        # PrismML
        (r"dspark\.markov_head_a\.weight", "markov_w1.weight"),
        (r"dspark\.markov_head_b\.weight", "markov_w2.weight"),
        # lucebox
        (r"dflash\.dspark\.markov\.w([12])(?:\.weight)?", r"markov_w\1.weight"),
        # PrismML, lucebox, pulsar
        (r"(?:dspark\.confidence_head|dflash\.dspark\.confidence|confidence_proj)\.(weight|bias)", r"conf_proj.\1"),
        # pulsar
        (r"selector_pred(?:\.weight)?", "selector_predecessor.weight"),
        (r"selector_succ(?:\.weight)?", "selector_successor.weight"),
        (r"selector_hproj(?:\.weight)?", "selector_hidden.weight"),
        # Upstream's own, with and without the ending that it gives to matrices alone.
        (r"selector_(predecessor|successor|hidden)", r"selector_\1.weight"),
        (r"blk\.(\d+)\.(attn|ffn)_conv_base\.weight", r"blk.\1.\2_conv_base"),
        (r"blk\.(\d+)\.(attn|ffn)_conv_proj", r"blk.\1.\2_conv_proj.weight"),
    )
)

LAYER_NORM: Final = TensorName(re.compile(r"blk\.(\d+)\.post_attention_norm\.weight"), r"blk.\1.ffn_norm.weight")
"""In buun-llama-cpp, beellama.cpp and pulsar the norm before the feed-forward part, in a layer without ``ffn_norm``.
Upstream has both names, for different things."""

FEATURES: Final = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (r"dflash\.aux_hidden_norm\.\d+\.weight|enc\.aux_norm\.weight", "a norm for each tap (Laguna's)"),
        (r"blk\.\d+\.attn_gate\.weight", "gates on its attention (Laguna's)"),
        (r"(?:dspark\.)?log_snr_fc[12]\.(?:weight|bias)", "embeddings conditioned on noise"),
        (r"dflash\.domino\..*", "Domino's heads"),
        (r"blk\.\d+\.ssm_.*", "recurrent layers"),
    )
)
"""Tensors of what forks can run and llama.cpp cannot."""

BEELLAMA_MARK: Final = "dflash.n_target_features"
"""A key that upstream never wrote; beellama's script leaves it in a file of architecture ``dflash``."""


def bare(key: str, architecture: str) -> str | None:
    """A key's name without the architecture and what is nested in it; None when the key is no model's."""
    if not key.startswith(f"{architecture}."):
        return None
    name = key.removeprefix(f"{architecture}.")
    for prefix in NESTED:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def upstream_key(name: str) -> str:
    """Upstream's key for a bare name."""
    return KEYS.get(name, f"{ARCHITECTURE}.{name}")
