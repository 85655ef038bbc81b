"""Whether a context's cache fits the machine, before libllama tries: a kernel that overcommits would kill the process.

Comes in: the target's header and a length. Goes out: nothing, or an error. Counts keys and values of full attention;
windows and recurrent layers need less.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import GGUFError, SessionError
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from dflash_gguf.gguf_header import GGUFHeader

_VALUE_BYTES: Final = 2
"""The cache is F16."""


def check_cache(header: GGUFHeader, n_ctx: int) -> None:
    """Raises SessionError when a cache of ``n_ctx`` tokens (0: the model's own) exceeds the machine's memory."""
    import llama_cpp

    n_ctx = n_ctx or header.integer(f"{header.string(Keys.ARCHITECTURE, '')}.context_length", 0)
    needed, there = n_ctx * _bytes_a_token(header), _memory()
    if there and needed > there and not llama_cpp.llama_supports_gpu_offload():
        raise SessionError(
            f"a context of {n_ctx} tokens needs about {needed / 1e9:.0f} GB for its cache",
            expected=f"at most the {there / 1e9:.0f} GB of this machine",
            remedy="ask for a smaller one with `-c` (`n_ctx`)",
        )


def _bytes_a_token(header: GGUFHeader) -> int:
    arch = header.string(Keys.ARCHITECTURE, "")
    n_embd, n_layers = header.integer(f"{arch}.embedding_length", 0), header.integer(f"{arch}.block_count", 0)
    try:
        n_heads = header.integer(f"{arch}.attention.head_count", 1)
        n_kv_heads = header.integer(f"{arch}.attention.head_count_kv", n_heads)
    except GGUFError:  # a list: the layers differ
        return 0
    head = header.integer(f"{arch}.attention.key_length", n_embd // max(1, n_heads))
    return 2 * n_layers * n_kv_heads * head * _VALUE_BYTES


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
