"""What of llama_cpp's arguments has no counterpart here: refused by name, unless the value is one that changes nothing.

Comes in: arguments by name. Goes out: nothing, or an error for the first that cannot be honoured; and the values that
llama_cpp writes as numbers of ggml, as a session names them. Knows nothing of sessions.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import SessionError
from dflash_gguf.ggml_types import GGML_TYPES
from dflash_gguf.limits import checked
from dflash_gguf.runner.placement import SPLIT_MODES, TENSOR_SPLIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dflash_gguf.runner.models import FlashAttention


class RequestError(SessionError, ValueError):
    """An argument that cannot be honoured. A ValueError too, since programs written for llama_cpp catch that."""


@contextmanager
def as_request_errors() -> Iterator[None]:
    """Turns what a session says of an argument into a RequestError."""
    try:
        yield
    except RequestError:
        raise
    except SessionError as error:
        raise RequestError(str(error)) from None


_ROPE: Final = "the rotation is the one that the file states"
_LORA: Final = "adapters are not loaded: merge it into the target first"
_KIND: Final = "a session generates text, with a causal target"
_TEMPLATE: Final = (
    "messages go through the chat template of the file: leave it out, or render them and call create_completion"
)

CONSTRUCTOR: Final[dict[str, str]] = {
    "vocab_only": "a session needs the weights",
    "use_mlock": "weights are mapped or read, and not locked in memory",
    "kv_overrides": "what a file says is checked before it is loaded: change the file",
    "rope_scaling_type": _ROPE,
    "pooling_type": _KIND,
    "attention_type": _KIND,
    "rope_freq_base": _ROPE,
    "rope_freq_scale": _ROPE,
    "yarn_ext_factor": _ROPE,
    "yarn_attn_factor": _ROPE,
    "yarn_beta_fast": _ROPE,
    "yarn_beta_slow": _ROPE,
    "yarn_orig_ctx": _ROPE,
    "logits_all": "logits are read where a token is chosen, and logprobs are not given out",
    "embedding": _KIND,
    "offload_kqv": "the caches lie where their layers do",
    "op_offload": "libllama decides",
    "swa_full": "caches of sliding layers keep their window",
    "no_perf": "`timings` are part of every response",
    "lora_base": _LORA,
    "lora_scale": _LORA,
    "lora_path": _LORA,
    "numa": "it is a setting of the whole process: call llama_cpp.llama_numa_init yourself",
    "chat_format": _TEMPLATE,
    "chat_handler": _TEMPLATE,
    "draft_model": "a drafter needs more than the ids that its protocol passes: give `draft_model_path`",
    "tokenizer": "drafter and target share the tokenizer of the file",
    "spm_infill": "there is no infill",
}
"""Argument of ``llama_cpp.Llama`` -> why another value than its default there is refused."""

_NEUTRAL_TOO: Final[dict[str, tuple[Any, ...]]] = {
    "swa_full": (False,),
    "chat_format": ("chat_template.default",),  # what llama_cpp calls the template of the file
}

_HOOK: Final = "logits stay in the native core, out of reach of Python"
_TOOLS: Final = "calls of functions are not built yet"

_REQUEST: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "tfs_z": ((1.0,), "libllama has no tail-free sampling any more, and llama_cpp leaves it out in silence"),
    "logits_processor": ((None, []), _HOOK),
}
"""Argument of a request -> the values that change nothing, and why others are refused."""

COMPLETION: Final = _REQUEST | {
    "suffix": ((None,), "there is no infill"),
    "logprobs": ((None,), "logprobs are not given out yet"),
    "stopping_criteria": ((None, []), f"{_HOOK}: use `stop`"),
}
CHAT: Final = _REQUEST | {
    "functions": ((None, []), _TOOLS),
    "function_call": ((None, "none", "auto"), _TOOLS),
    "tools": ((None, []), _TOOLS),
    "tool_choice": ((None, "none", "auto"), _TOOLS),
    "logprobs": ((None, False), "logprobs are not given out yet"),
}


def check_constructor(given: Mapping[str, Any]) -> None:
    """Raises TypeError for a name that llama_cpp lacks too, RequestError for a value that is not the default there."""
    import llama_cpp

    known = inspect.signature(llama_cpp.Llama.__init__).parameters
    for name, value in given.items():
        if name not in CONSTRUCTOR:
            raise TypeError(f"Llama() got an unexpected keyword argument {name!r}")
        _check(name, value, (known[name].default, *_NEUTRAL_TOO.get(name, ())), CONSTRUCTOR[name])


def check_request(given: Mapping[str, Any], table: Mapping[str, tuple[tuple[Any, ...], str]]) -> None:
    """Raises RequestError for the first argument that would change the text and cannot be honoured."""
    for name, (neutral, why) in table.items():
        _check(name, given[name], neutral, why)


def check_threads(n_threads: int | None, n_threads_batch: int | None) -> None:
    """Raises RequestError when a prompt is to be read with other threads than the answer is written with."""
    if n_threads_batch:
        _check("n_threads_batch", n_threads_batch, (n_threads,), "prompt and answer take the same: give `n_threads`")


def token_limit(max_tokens: int | None, room: int) -> int:
    """``max_tokens``, of which None and all below 1 mean no limit but the ``room`` that the prompt leaves."""
    if max_tokens is None or (type(max_tokens) is int and max_tokens <= 0):
        return room
    return min(checked("max_tokens", max_tokens), room)


def split_mode(number: int) -> str:
    """A ``llama_cpp.LLAMA_SPLIT_MODE_*`` as a session names it; raises RequestError for any other number."""
    names = {value: name for name, value in SPLIT_MODES.items()} | {3: TENSOR_SPLIT}
    if number not in names:
        raise RequestError("`split_mode`", value=number, expected="one of llama_cpp.LLAMA_SPLIT_MODE_*")
    return names[number]


def cache_type(name: str, number: int | None) -> str:
    """A ``llama_cpp.GGML_TYPE_*``, or None for the default, as a session names it."""
    if number is None:
        return "f16"
    if number not in GGML_TYPES:
        raise RequestError(f"`{name}`", value=number, expected="one of llama_cpp.GGML_TYPE_*")
    return GGML_TYPES[number].name.lower()


def flash_attention(flash_attn: bool | None) -> FlashAttention:
    """llama_cpp's switch as a session names it; None leaves it to libllama."""
    if flash_attn is None:
        return "auto"
    return "on" if flash_attn else "off"


def _check(name: str, value: Any, neutral: tuple[Any, ...], why: str) -> None:
    if not any(value is one or (one is not None and value == one) for one in neutral):
        shown = value if isinstance(value, str | int | float | None) else type(value).__name__
        raise RequestError(f"`{name}` cannot be honoured", value=shown, expected=repr(neutral[0]), remedy=why)
