"""Models become a loop: the contexts in the order in which libllama needs them, and the native core on top.

Comes in: loaded models and what the drafter's file says. Goes out: a loop, whose contexts a stack closes. Knows nothing
of prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from dflash_gguf.limits import checked
from dflash_gguf.runner.models import ContextSizes, FlashAttention, Model, ModelContext
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from contextlib import ExitStack

    from dflash_gguf._core import LlamaDrafter, Loop
    from dflash_gguf.runner.drafting import Drafting

_Resource = TypeVar("_Resource", Model, ModelContext)

DRAFT_UBATCH: Final = 64
"""Feature rows that a drafter pass takes. Its compute buffer holds logits for every row: a target's 512 would cost
half a gigabyte at a vocabulary of 250,000, and a wider pass is hardly faster."""


def opened(stack: ExitStack, resource: _Resource) -> _Resource:
    """``resource``, which ``stack`` closes."""
    stack.callback(resource.close)
    return resource


def sizes_for(
    drafting: Drafting, n_ctx: int, n_ubatch: int, n_threads: int | None, flash_attention: FlashAttention
) -> ContextSizes:
    """The target's context; each number is checked. ``n_threads`` None: the physical cores."""
    return ContextSizes(
        n_ctx=checked("n_ctx", n_ctx),
        # More rows than a recurrent state is wound back over.
        n_ubatch=max(checked("n_ubatch", n_ubatch), drafting.n_max + 2),
        n_outputs=drafting.n_max + 1,
        n_threads=checked("n_threads", physical_cores() if n_threads is None else n_threads),
        flash_attention=flash_attention,
    )


def open_loop(
    stack: ExitStack,
    target: Model,
    draft: Model | None,
    drafting: Drafting,
    sizes: ContextSizes,
    n_max: int,
    draft_rope_freq_base: float = 0.0,
) -> Loop:
    """A loop on new contexts. ``draft_rope_freq_base`` 0: what the drafter's file says.

    Raises SessionError when libllama refuses, or when the target's state cannot be wound back.
    """
    from dflash_gguf import _core

    context = opened(stack, ModelContext(target, sizes))
    drafter = None
    if draft is not None:
        context.check_rollback(target, drafting.n_max)
        draft_context = opened(stack, _draft_context(draft, sizes, context, draft_rope_freq_base))
        drafter = _new_drafter(draft_context, drafting)
    n_ctx = sizes.n_ctx or context.n_ctx
    return _core.Loop(_core.LlamaTarget(context.address, n_ctx, drafting.layers, sizes.n_outputs), drafter, n_max)


def _draft_context(model: Model, target: ContextSizes, context: ModelContext, rope_freq_base: float) -> ModelContext:
    sizes = ContextSizes(
        n_ctx=context.n_ctx,
        n_ubatch=max(target.n_outputs, min(target.n_ubatch, DRAFT_UBATCH)),
        n_outputs=target.n_outputs,
        n_threads=target.n_threads,
        flash_attention=target.flash_attention,
        rope_freq_base=rope_freq_base,
    )
    return ModelContext(model, sizes, context)


def _new_drafter(context: ModelContext, drafting: Drafting) -> LlamaDrafter:
    from dflash_gguf import _core

    kind: _core.Kind = getattr(_core.Kind, drafting.kind or "")
    drafter = _core.LlamaDrafter(context.address, kind, drafting.anchor_first)
    if drafting.causal is not None:
        import llama_cpp

        llama_cpp.llama_set_causal_attn(context.address, drafting.causal)
    return drafter
