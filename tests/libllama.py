"""Bare libllama by llama_cpp's ctypes functions: load, decode, read logits. Knows nothing of this package."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any, Self

import llama_cpp
import numpy as np
from llama_cpp._logger import set_verbose

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FLOATS = ctypes.POINTER(ctypes.c_float)


class Model:
    """A loaded GGUF and one context on it. State: the context's cache."""

    def __init__(self, path: str | Path, *, other: Model | None = None, **params: Any) -> None:
        set_verbose(False)
        llama_cpp.llama_backend_init()
        defaults = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), defaults)
        if not self.model:
            msg = f"libllama did not load {path}"
            raise ValueError(msg)
        settings = llama_cpp.llama_context_default_params()
        chosen = {"n_ctx": 512, "n_threads": 1, "n_threads_batch": 1} | params
        for name, value in chosen.items():
            setattr(settings, name, value)
        if other is not None:
            settings.ctx_other = other.context
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def decode(self, tokens: llama_cpp.llama_batch) -> None:
        """Run one batch; raises ValueError when libllama refuses it."""
        status = llama_cpp.llama_decode(self.context, tokens)
        if status != 0:
            msg = f"llama_decode returned {status}"
            raise ValueError(msg)

    def logits(self, row: int = -1) -> np.ndarray:
        """float32 [n_vocab] of an output row of the last batch."""
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, row), (self.n_vocab,)).copy()

    def tokenize(self, text: str) -> list[int]:
        """Ids of ``text``, special tokens parsed, nothing added that the file does not ask for."""
        data = text.encode()
        buffer = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), buffer, len(buffer), True, True)
        return list(buffer[:count])

    def piece(self, token: int) -> bytes:
        """The bytes of one token, special ones shown."""
        buffer = ctypes.create_string_buffer(64)
        size = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[:size]

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """``count`` best tokens after ``prompt``, one a pass, from an empty cache."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        out: list[int] = []
        feed, first = list(prompt), 0
        while len(out) < count:
            self.decode(batch(feed, first=first))
            first += len(feed)
            feed = [int(self.logits().argmax())]
            out += feed
        return out


_ARGUMENTS = {"P13llama_context": ctypes.c_void_p, "j": ctypes.c_uint32, "b": ctypes.c_bool}


def cpp_function(name: str, signature: str, restype: Any = None) -> Any:
    """A function that libllama exports with C++ linkage, by its Itanium-mangled argument list."""
    function = getattr(llama_cpp.llama_cpp._lib, f"_Z{len(name)}{name}{signature}")
    pieces = re.findall("|".join(_ARGUMENTS), signature)
    function.restype, function.argtypes = restype, [_ARGUMENTS[piece] for piece in pieces]
    return function


def batch(rows: Sequence[int] | np.ndarray, *, first: int, outputs: bool | None = None) -> llama_cpp.llama_batch:
    """One sequence of token ids, or of float rows, at positions ``first`` on.

    ``outputs``: logits for every row, for none, or (None) for the last row.
    The rows' memory lives as long as the batch.
    """
    n = len(rows)
    out = llama_cpp.llama_batch()
    out.n_tokens = n
    if isinstance(rows, np.ndarray):
        data = np.ascontiguousarray(rows, np.float32)
        out.embd = data.ctypes.data_as(FLOATS)
    else:
        data = (llama_cpp.llama_token * n)(*rows)
        out.token = data
    ids = (llama_cpp.llama_seq_id * 1)(0)
    flags = [outputs] * n if outputs is not None else [False] * (n - 1) + [True]
    out.pos = (llama_cpp.llama_pos * n)(*range(first, first + n))
    out.n_seq_id = (ctypes.c_int32 * n)(*[1] * n)
    out.seq_id = (ctypes.POINTER(llama_cpp.llama_seq_id) * n)(*[ids] * n)
    out.logits = (ctypes.c_int8 * n)(*flags)
    out.keep = (data, ids)
    return out
