"""What hyper-connections, several streams beside one another, demand: of DeepSeek-V4, and of a drafter with its layers.

Comes in: a reader of a header, its architecture and sizes. Goes out: findings in the reader.
Source: llama.cpp src/models/deepseek4.cpp, whose helpers src/models/dflash.cpp uses too (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.hparams import LENGTH, PAIR, WINDOW, Sizes
from dflash_gguf.contract.reader import Bounds

if TYPE_CHECKING:
    from dflash_gguf.contract.reader import Reader

STREAMS: Final = Bounds(4, 4)
ITERATIONS: Final = Bounds(1, 32)
"""Where the backend has no operation for it, each makes 9 nodes twice a layer; 32 nodes are planned for each tensor, of
which a layer has 24 or more. Published models have 20."""


def check_streams(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Notes what the streams, their mixing, and the one head of keys and values forbid."""
    reader.integer(f"{arch}.hyper_connection.count", STREAMS, required=True)
    reader.integer(f"{arch}.hyper_connection.sinkhorn_iterations", ITERATIONS, required=True)
    reader.integer(f"{arch}.attention.sliding_window", WINDOW, required=True)
    key = f"{arch}.attention.output_group_count"
    groups = reader.integer(key, LENGTH, required=True)
    wrong = [heads for heads in sizes.n_heads or [] if groups and heads % groups]
    if wrong:
        reader.fault(f"`{key}` does not divide the {wrong[0]} heads", groups)
    shared = [heads for heads in sizes.n_kv_heads or [] if heads != 1]
    if shared:
        reader.fault("layers do not all share one head of keys and values", shared[0])
    if sizes.key_length and sizes.key_length % PAIR:
        reader.fault("heads have an odd length, whose rest cannot be turned back", sizes.key_length)
