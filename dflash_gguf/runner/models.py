"""Models and contexts in libllama, through llama_cpp's ctypes view.

Comes in: paths and sizes. Goes out: addresses that the native core takes. Knows nothing of the loop.
Every call goes through ``ctypes.CDLL``, which releases the GIL.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from dflash_gguf.errors import SessionError, brief
from dflash_gguf.ggml_types import BY_NAME
from dflash_gguf.runner.exact import note_context
from dflash_gguf.runner.interrupts import held_back
from dflash_gguf.runner.placement import EVERYWHERE, LOAD_MODES, Placement
from dflash_gguf.runtimes import CACHE_TYPES, QUANTIZED_CACHES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dflash_gguf._core import Activations

FlashAttention = Literal["auto", "on", "off"]

FLASH_ATTENTION: Final[dict[str, int]] = {"auto": -1, "off": 0, "on": 1}
"""Option -> llama_flash_attn_type."""

CONTEXT_STEP: Final = 256
"""libllama rounds a context up to this, but the largest batch down to what was asked for."""

_LOG_HINT: Final = "libllama's log has the reason: see it with `-v`, or with dflash_gguf.log_to(logger)"


@dataclass(frozen=True, slots=True)
class ContextSizes:
    """What a context is built for, in tokens.

    ``n_outputs``: rows of a pass that may ask for logits; a recurrent state can be wound back over all but one of them.
    ``rope_freq_base`` 0: the model's own. ``type_k`` and ``type_v`` are those of the cache. ``n_states``: how many
    states back; None: as said. ``n_seq`` sequences have ``n_ctx`` tokens each, in a cache of their own.
    """

    n_ctx: int
    n_ubatch: int
    n_outputs: int
    n_threads: int
    flash_attention: FlashAttention = "auto"
    rope_freq_base: float = 0.0
    type_k: str = "f16"
    type_v: str = "f16"
    n_states: int | None = None
    n_seq: int = 1

    def check(self) -> None:
        """Raises SessionError for a word that is none of its option's."""
        for name, value, words in (
            ("flash_attention", self.flash_attention, tuple(FLASH_ATTENTION)),
            ("type_k", self.type_k, CACHE_TYPES),
            ("type_v", self.type_v, CACHE_TYPES),
        ):
            if value not in words:
                what = f"`{name}`" if name == "flash_attention" else f"`{name}` of a cache"
                raise SessionError(what, value=brief(value), expected=f"one of {', '.join(words)}")
        if self.type_v in QUANTIZED_CACHES and self.flash_attention == "off":
            raise SessionError(
                "a quantized cache of values", value=self.type_v, expected="flash attention", remedy="turn it on"
            )


class Model:
    """A model in libllama; ``address`` is its ``llama_model *``. Freed by ``close()``."""

    def __init__(
        self,
        path: Path,
        placement: Placement = EVERYWHERE,
        overrides: Mapping[str, int] | None = None,
        *,
        beside: Path | None = None,
        dry: bool = False,
    ) -> None:
        """Loads ``path``; ``overrides`` stand in for keys of the file. Raises SessionError when libllama refuses.

        ``beside`` holds more tensors: a second shard.

        ``dry``: the header alone. Such a model, and its contexts, take no memory but can say how much they would.
        """
        import llama_cpp

        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        kept = placement.apply(params)
        if overrides:
            params.kv_overrides = _overrides(overrides)
        if dry:
            params.no_alloc, params.load_mode = True, LOAD_MODES[False]  # nothing is mapped either
        self.path = path
        self.dry = dry
        with held_back() as interrupt:
            params.progress_callback = llama_cpp.llama_progress_callback(lambda *_: not interrupt.pending)
            self.address: Any = _load(path, beside, params)
        del kept
        if not self.address:
            raise SessionError(f"libllama could not load `{path}`", remedy=_LOG_HINT)

    def close(self) -> None:
        """Frees the model. Its contexts must have been closed."""
        if self.address:
            import llama_cpp

            llama_cpp.llama_model_free(self.address)
            self.address = None


def _load(path: Path, beside: Path | None, params: Any) -> Any:
    import llama_cpp

    if beside is None:
        return llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
    paths = (ctypes.c_char_p * 2)(os.fsencode(path), os.fsencode(beside))
    return llama_cpp.llama_model_load_from_splits(paths, len(paths), params)


def _overrides(values: Mapping[str, int]) -> Any:
    """An array that ends with an empty key."""
    import llama_cpp

    array = (llama_cpp.llama_model_kv_override * (len(values) + 1))()
    for row, (key, value) in zip(array, values.items(), strict=False):
        row.tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT
        row.key = key.encode()
        row.value.val_i64 = value
    return array


class ModelContext:
    """A context of a model; ``address`` is its ``llama_context *``. Freed by ``close()``."""

    def __init__(
        self,
        model: Model,
        sizes: ContextSizes,
        other: ModelContext | None = None,
        activations: Activations | None = None,
    ) -> None:
        """``other`` is the target's context, which a drafter borrows embeddings and head from.

        ``activations`` sees every pass, and must be kept as long as the context.
        """
        import llama_cpp

        params = llama_cpp.llama_context_default_params()
        params.n_ctx = -(-sizes.n_ctx // CONTEXT_STEP) * CONTEXT_STEP * sizes.n_seq
        params.n_batch = params.n_ubatch = sizes.n_ubatch
        params.n_seq_max = sizes.n_seq
        params.n_outputs_max = sizes.n_outputs
        params.n_rs_seq = sizes.n_outputs - 1 if sizes.n_states is None else sizes.n_states
        params.n_threads = params.n_threads_batch = sizes.n_threads
        sizes.check()
        if not model.dry:
            note_context()
        params.flash_attn_type = FLASH_ATTENTION[sizes.flash_attention]
        params.rope_freq_base = sizes.rope_freq_base
        params.type_k, params.type_v = (BY_NAME[name.upper()].id for name in (sizes.type_k, sizes.type_v))
        params.swa_full = False
        params.ctx_other = other.address if other else None
        if activations is not None:
            params.cb_eval = ctypes.cast(activations.callback, llama_cpp.ggml_backend_sched_eval_callback)
            params.cb_eval_user_data = activations.address
        with held_back():
            self.address: Any = llama_cpp.llama_init_from_model(model.address, params)
        if not self.address:
            raise SessionError(
                f"libllama could not make a context of {sizes.n_ctx} tokens for `{model.path.name}`",
                remedy=f"try a smaller context; {_LOG_HINT}",
            )

    @property
    def n_ctx(self) -> int:
        """Positions that fit, as libllama rounded them."""
        import llama_cpp

        return int(llama_cpp.llama_n_ctx(self.address))

    def check_rollback(self, model: Model, n_tokens: int) -> None:
        """Raises SessionError when the model's recurrent state can be wound back, but not over ``n_tokens``.

        One that cannot be wound back at all is saved before each pass instead.
        """
        import llama_cpp

        recurrent = llama_cpp.llama_model_is_recurrent(model.address) or llama_cpp.llama_model_is_hybrid(model.address)
        if recurrent and 0 < llama_cpp.llama_n_rs_seq(self.address) < n_tokens:
            raise SessionError(
                f"`{model.path.name}` keeps a recurrent state that libllama cannot wind back over {n_tokens} tokens",
                remedy="run it without a drafter",
            )

    def close(self) -> None:
        """Frees the context."""
        if self.address:
            import llama_cpp

            llama_cpp.llama_free(self.address)
            self.address = None
