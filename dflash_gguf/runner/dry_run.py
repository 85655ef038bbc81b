"""What libllama would allocate for a model and its context, asked of libllama itself.

Comes in: a model loaded `dry`, the sizes of its context. Goes out: bytes for each device. Weights, caches and buffers
of passes are only counted, but recurrent states are allocated even so: two contexts of few of them tell what each
more takes, and where all would take much, the buffers of passes are those of few.
Source: llama.cpp src/llama-context.cpp, ``memory_breakdown``; src/llama-memory-recurrent.cpp (0.5.0).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dflash_gguf.runner import machine
from dflash_gguf.runner.assembly import MARKS, opened
from dflash_gguf.runner.models import CONTEXT_STEP, ModelContext

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from dflash_gguf.runner.models import ContextSizes, Model

HOST: Final = "CPU"
"""The machine's own memory, whichever backend allocates it."""

STATES_PART: Final = 8
"""All states are allocated for a moment when they take no more than this part of the free memory."""

Row = tuple[str, int, int, int]
"""A device, empty where passes read host memory as it is; bytes of weights, of the context's memory, and of passes."""


@dataclass(frozen=True, slots=True)
class Capture:
    """What passes leave beside logits: the inputs of ``layers``, or with ``lattice`` the drafter's rows."""

    layers: Sequence[int] = ()
    lattice: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """``rows`` of a context that holds one state and ``n_back`` to go back to; ``a_state``: bytes of one, by row.

    ``n_states``: how many the session's own context will hold; ``n_copies``: how many the native core may keep beside.
    """

    context: ModelContext
    rows: tuple[Row, ...]
    a_state: tuple[int, ...]
    n_back: int
    n_states: int
    n_copies: int

    @property
    def state_bytes(self) -> int:
        """Bytes of one recurrent state of all layers."""
        return sum(self.a_state)


def measure(
    stack: ExitStack,
    model: Model,
    sizes: ContextSizes,
    capture: Capture,
    beside: ModelContext | None = None,
) -> Measured:
    """Asks libllama. ``beside`` is the target's context, for a drafter's."""
    import llama_cpp

    def context_of(n_back: int) -> ModelContext:
        return opened(stack, ModelContext(model, replace(sizes, n_states=n_back), beside))

    n_back = min(1, sizes.n_outputs - 1)
    context = context_of(n_back)
    rows = _rows(context, capture)
    a_state = _grown(rows, _rows(context_of(n_back + 1), capture))
    recurrent = llama_cpp.llama_model_is_recurrent(model.address) or llama_cpp.llama_model_is_hybrid(model.address)
    if recurrent and not any(a_state):  # it keeps none to go back to: what is left of its memory without the caches
        wider = opened(stack, ModelContext(model, replace(sizes, n_ctx=context.n_ctx + CONTEXT_STEP), beside))
        steps = context.n_ctx // CONTEXT_STEP
        a_step = _grown(rows, _rows(wider, capture))
        a_state = tuple(row[2] - steps * step for row, step in zip(rows, a_step, strict=True))
        return Measured(context, rows, a_state, 0, 1, MARKS + 1)
    if n_back < sizes.n_outputs - 1 and sizes.n_outputs * sum(a_state) <= machine.free() // STATES_PART:
        n_back = sizes.n_outputs - 1
        rows = _rows(context_of(n_back), capture)
    return Measured(context, rows, a_state, n_back, sizes.n_outputs, MARKS if recurrent else 0)


def _grown(rows: Sequence[Row], more: Sequence[Row]) -> tuple[int, ...]:
    """By how much the memory of contexts grew."""
    return tuple(wide[2] - narrow[2] for narrow, wide in zip(rows, more, strict=True))


def _rows(context: ModelContext, capture: Capture) -> tuple[Row, ...]:
    from dflash_gguf import _core

    address = int(ctypes.cast(context.address, ctypes.c_void_p).value or 0)
    return tuple(sorted(_core.memory_breakdown(address, list(capture.layers), capture.lattice)))
