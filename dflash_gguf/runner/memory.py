"""Whether the caches of a pair fit the machine, before libllama tries: some kernels would kill the process instead.

Comes in: headers and lengths. Goes out: nothing, or an error. Counts the keys and values of layers that see all,
and the recurrent states; of layers with a window, which need less, nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.hparams import Sizes, read_sizes
from dflash_gguf.contract.reader import Reader
from dflash_gguf.errors import SessionError
from dflash_gguf.facts import architecture
from dflash_gguf.ggml_types import BY_NAME
from dflash_gguf.runner import machine
from dflash_gguf.schema import ARCHITECTURE, Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader

_STATE_BYTES: Final = 4
"""Recurrent states are F32."""

_PERIODS: Final = {"gpt-oss": 2, "muse-glimmer": 4, "gemma4": 0, "mimo2": 0, ARCHITECTURE: 0}
"""Architectures some of whose layers slide -> every how many layers one does not, where the file does not say."""
_ONLY_WINDOWS: Final = frozenset({"deepseek4", "lfm2", "lfm2moe"})
"""Those all of whose layers slide when there is a window, or keep what lies before it compressed."""


@dataclass(frozen=True, slots=True)
class Cache:
    """What a context keeps: ``n_ctx`` positions of these types, and ``n_states`` recurrent states."""

    header: GGUFHeader
    n_ctx: int
    type_k: str
    type_v: str
    n_states: int


def check_memory(caches: Sequence[Cache]) -> None:
    """Raises SessionError when ``caches``, the target's first, exceed the machine's memory together.

    Where libllama can put them on a GPU, whose memory is not known here, nothing is judged.
    """
    import llama_cpp

    needed, there = sum(map(cache_bytes, caches)), machine.total()
    if there and needed > there and not llama_cpp.llama_supports_gpu_offload():
        raise SessionError(
            f"a context of {caches[0].n_ctx} tokens needs about {needed / 1e9:.1f} GB for its cache",
            expected=f"at most the {there / 1e9:.1f} GB of this machine",
            remedy="ask for a smaller one with `-c` (`n_ctx`)",
        )


def cache_bytes(cache: Cache) -> int:
    """Bytes of a cache, layers with a window left out."""
    return int(cache.n_ctx * _bytes_a_token(cache)) + cache.n_states * _bytes_a_state(cache.header)


def _bytes_a_token(cache: Cache) -> float:
    header = cache.header
    arch = architecture(header)
    reader = Reader(header, "target", "")
    sizes = read_sizes(reader, arch)
    latent = header.integer(f"{arch}.attention.key_length_mla", 0)  # the values are a part of the keys
    keys = (sizes.key_length or 0) * _width(cache.type_k)
    values = 0.0 if latent else (sizes.value_length or 0) * _width(cache.type_v)
    return sum(_whole_heads(reader, arch, sizes)) * (keys + values)


def _width(name: str) -> float:
    """Bytes of a value of a cache."""
    kind = BY_NAME[name.upper()]
    return kind.nbytes / kind.block


def _whole_heads(reader: Reader, arch: str, sizes: Sizes) -> list[int]:
    """Key heads of each layer that sees all."""
    heads = sizes.n_kv_heads or []
    window = reader.integer(f"{arch}.attention.sliding_window")
    if not window or arch not in {*_PERIODS, *_ONLY_WINDOWS}:
        return heads
    if arch in _ONLY_WINDOWS or Keys.HYPER_CONNECTIONS in reader.header.keys:
        return []
    key = f"{arch}.attention.sliding_window_pattern"
    value = reader.header.keys.get(key)
    if value is not None and value.type_text.startswith("array"):
        pattern = reader.booleans(key, len(heads)) or []
        return [count for count, slides in zip(heads, pattern, strict=False) if not slides]
    period = _PERIODS[arch] if value is None else reader.integer(key) or 0
    return heads[period - 1 :: period] if period else []


def _bytes_a_state(header: GGUFHeader) -> int:
    arch = architecture(header)

    def number(name: str) -> int:
        return header.integer(f"{arch}.{name}", 0)

    state = number("ssm.inner_size") * number("ssm.state_size")
    heads = number("attention.head_count") if f"{arch}.kda.head_dim" in header.keys else 0
    return number("block_count") * (state + heads * number("kda.head_dim") ** 2) * _STATE_BYTES
