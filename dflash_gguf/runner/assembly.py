"""Models become a loop: the contexts in the order in which libllama needs them, and the native core on top.

Comes in: loaded models and what the drafter's file says. Goes out: a loop, whose contexts a stack closes. Knows nothing
of prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from dflash_gguf.facts import architecture
from dflash_gguf.limits import checked
from dflash_gguf.runner.bounds import AUTO
from dflash_gguf.runner.exact import compare, sample_ids
from dflash_gguf.runner.memory import Cache
from dflash_gguf.runner.models import ContextSizes, Model, ModelContext
from dflash_gguf.runner.vocabulary import Vocabulary

if TYPE_CHECKING:
    from contextlib import ExitStack

    from dflash_gguf._core import LlamaDrafter, Loop
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.drafting import Drafting
    from dflash_gguf.runner.exact import Widths
    from dflash_gguf.runner.settings import Settings

_Resource = TypeVar("_Resource", Model, ModelContext)

MARKS: Final = 4
"""Recurrent states that the core keeps to go back to (cpp/context.cpp)."""

CALIBRATION: Final = 1.0
"""Seconds for timing passes at the start; the narrowest and the widest are timed however long they take."""

DRAFT_UBATCH: Final = 64
"""Feature rows that a drafter pass takes. Its compute buffer holds logits for every row: a target's 512 would cost
half a gigabyte at a vocabulary of 250,000, and a wider pass is hardly faster."""


def opened(stack: ExitStack, resource: _Resource) -> _Resource:
    """``resource``, which ``stack`` closes."""
    stack.callback(resource.close)
    return resource


@dataclass(frozen=True, slots=True)
class Opened:
    """``widths``: what was found of passes of several tokens; None when nobody asked for exactness."""

    loop: Loop
    widths: Widths | None


def open_loop(
    stack: ExitStack,
    target: Model,
    draft: Model | None,
    drafting: Drafting,
    settings: Settings,
    draft_rope_freq_base: float = 0.0,
) -> Opened:
    """A loop on new contexts. ``draft_rope_freq_base`` 0: what the drafter's file says.

    Raises SessionError when libllama refuses, when the target's state cannot be wound back, or when exactness is asked
    for and cannot be had.
    """
    from dflash_gguf import _core

    context = opened(stack, ModelContext(target, target_sizes(drafting, settings)))
    drafter = None
    if draft is not None:
        context.check_rollback(target, drafting.n_max)
        sizes = draft_sizes(drafting, settings, context.n_ctx, draft_rope_freq_base)
        drafter = new_drafter(opened(stack, ModelContext(draft, sizes, context)), drafting, sizes.n_ctx)
    core = _core.LlamaTarget(context.address, settings.n_ctx or context.n_ctx, drafting.layers, n_outputs(drafting))
    widths = None
    if settings.exact:
        widths = compare(core, sample_ids(Vocabulary(target)), n_outputs(drafting), settings.rows(drafting))
    n_max, n_min, p_min = settings.limits(drafting, None if widths is None else widths.verify)
    rule = getattr(_core.DraftRule, settings.rule(drafting))
    loop = _core.Loop(core, drafter, n_max, rule, settings.depth == AUTO, n_min, p_min)
    loop.calibrate(CALIBRATION)
    return Opened(loop, widths)


def check_settings(drafting: Drafting, settings: Settings, draft: GGUFHeader | None) -> None:
    """Raises SessionError for the first setting that is wrong, before anything is loaded."""
    import llama_cpp

    settings.limits(drafting)
    settings.rule(drafting)
    for sizes in (target_sizes(drafting, settings), draft_sizes(drafting, settings, settings.n_ctx)):
        sizes.check()
    placements = [settings.placement, *([] if draft is None else [settings.draft_placement(draft)])]
    for placement in placements:
        placement.apply(llama_cpp.llama_model_default_params())


def target_sizes(drafting: Drafting, settings: Settings) -> ContextSizes:
    """The target's context; each number is checked."""
    return ContextSizes(
        n_ctx=checked("n_ctx", settings.n_ctx),
        n_ubatch=settings.rows(drafting),
        n_outputs=n_outputs(drafting),
        n_threads=settings.threads(),
        flash_attention=settings.flash_attention,
        type_k=settings.type_k,
        type_v=settings.type_v,
    )


def draft_sizes(drafting: Drafting, settings: Settings, n_ctx: int, rope_freq_base: float = 0.0) -> ContextSizes:
    """The drafter's context beside a target's of ``n_ctx`` positions; each number is checked."""
    if settings.n_ctx_draft is not None:
        n_ctx = min(n_ctx, checked("n_ctx_draft", settings.n_ctx_draft))
    return ContextSizes(
        n_ctx=n_ctx,
        n_ubatch=max(n_outputs(drafting), min(settings.rows(drafting), DRAFT_UBATCH)),
        n_outputs=n_outputs(drafting),
        n_threads=settings.draft_threads(),
        flash_attention=settings.flash_attention,
        rope_freq_base=rope_freq_base,
        type_k=settings.type_k_draft,
        type_v=settings.type_v_draft,
    )


def caches(drafting: Drafting, settings: Settings, target: GGUFHeader, draft: GGUFHeader | None) -> list[Cache]:
    """What both contexts will keep in memory, the target's first."""
    sizes = target_sizes(drafting, settings)
    n_ctx = sizes.n_ctx or target.integer(f"{architecture(target)}.context_length", 0)
    found = [Cache(target, n_ctx, sizes.type_k, sizes.type_v, sizes.n_outputs + MARKS)]
    if draft is not None:
        sizes = draft_sizes(drafting, settings, n_ctx)
        found.append(Cache(draft, sizes.n_ctx, sizes.type_k, sizes.type_v, 0))
    return found


def n_outputs(drafting: Drafting) -> int:
    """Rows of a pass that ask for logits: the newest token's and those of its drafts."""
    return drafting.n_max + 1


def new_drafter(context: ModelContext, drafting: Drafting, n_ctx: int) -> LlamaDrafter:
    """The core's drafter in a context of ``n_ctx`` positions."""
    from dflash_gguf import _core

    kind: _core.Kind = getattr(_core.Kind, drafting.kind or "")
    drafter = _core.LlamaDrafter(context.address, kind, drafting.anchor_first, n_ctx, drafting.confidence_head)
    if drafting.causal is not None:
        import llama_cpp

        llama_cpp.llama_set_causal_attn(context.address, drafting.causal)
    return drafter
