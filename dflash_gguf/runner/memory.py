"""Whether the caches of a pair fit the machine, before libllama tries: some kernels would kill the process instead.

Comes in: the headers and a length. Goes out: nothing, or an error. Counts the keys and values of layers that see all,
and the recurrent states; of a model with windows, which need less, nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.hparams import read_sizes
from dflash_gguf.contract.reader import Reader
from dflash_gguf.errors import SessionError
from dflash_gguf.facts import architecture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader

_VALUE_BYTES: Final = 2
"""The cache is F16."""
_STATE_BYTES: Final = 4
"""Recurrent states are F32."""


def check_memory(headers: Sequence[GGUFHeader], n_ctx: int, n_states: int) -> None:
    """Raises SessionError when caches of ``n_ctx`` tokens (0: the target's own) exceed the machine's memory.

    ``headers``: the target's and, with a drafter, its own; ``n_states``: recurrent states that are kept to wind back.
    """
    import llama_cpp

    n_ctx = n_ctx or headers[0].integer(f"{architecture(headers[0])}.context_length", 0)
    needed = sum(n_ctx * _bytes_a_token(header) + n_states * _bytes_a_state(header) for header in headers)
    there = _memory()
    if there and needed > there and not llama_cpp.llama_supports_gpu_offload():
        raise SessionError(
            f"a context of {n_ctx} tokens needs about {needed / 1e9:.0f} GB for its cache",
            expected=f"at most the {there / 1e9:.0f} GB of this machine",
            remedy="ask for a smaller one with `-c` (`n_ctx`)",
        )


def _bytes_a_token(header: GGUFHeader) -> int:
    arch = architecture(header)
    if header.integer(f"{arch}.attention.sliding_window", 0):
        return 0
    sizes = read_sizes(Reader(header, "target", ""), arch)
    heads = sum(sizes.n_kv_heads or [0])
    return heads * ((sizes.key_length or 0) + (sizes.value_length or 0)) * _VALUE_BYTES


def _bytes_a_state(header: GGUFHeader) -> int:
    arch = architecture(header)
    inner, state = (header.integer(f"{arch}.ssm.{name}", 0) for name in ("inner_size", "state_size"))
    return header.integer(f"{arch}.block_count", 0) * inner * state * _STATE_BYTES


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
