"""A target and its drafter, and requests one after another.

Comes in: two GGUF files, then prompts. Goes out: events. What is carried between rounds is written down in
cpp/session.hpp: the newest token, and two caches that end just before it.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from dflash_gguf.errors import SessionError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.runner import chat
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.generation import Event, Finished, Generation, Round, Text
from dflash_gguf.runner.models import ContextSizes, FlashAttention, Model, ModelContext
from dflash_gguf.runner.threads import physical_cores
from dflash_gguf.runner.vocabulary import TextStream, Vocabulary

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from dflash_gguf._core import LlamaDrafter, Loop
    from dflash_gguf.runner.stats import RunStats

__all__ = ["Event", "Finished", "Round", "Session", "Text"]

_Resource = TypeVar("_Resource", Model, ModelContext)

DRAFT_UBATCH: Final = 64
"""Feature rows that a drafter pass takes. Its compute buffer holds logits for every row: a target's 512 would cost
half a gigabyte at a vocabulary of 250,000, and a wider pass is hardly faster."""


class Session:
    """Owns both models, in the order in which libllama needs them, and runs one request at a time.

    ``target`` and ``draft`` are GGUF files; without ``draft`` the target decodes alone and captures nothing.
    ``n_ctx`` is in tokens, 0 means the target's own; ``n_ubatch`` rows go through the target in one pass;
    ``n_gpu_layers`` below 0 means all; ``spec_draft_n_max`` caps the tokens drafted a round (default: what a
    block holds, which is also the most there can be).

    Raises PairError naming every mismatch before anything native is loaded, SessionError when libllama refuses.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        draft: str | os.PathLike[str] | None = None,
        *,
        n_ctx: int = 4096,
        n_ubatch: int = 512,
        n_threads: int | None = None,
        n_gpu_layers: int = -1,
        spec_draft_n_max: int | None = None,
        flash_attention: FlashAttention = "auto",
    ) -> None:
        self._header = read_header(target)
        drafting = Drafting.read(self._header, draft)
        sizes = ContextSizes(
            n_ctx=_at_least("n_ctx", n_ctx, 0),
            n_ubatch=max(_at_least("n_ubatch", n_ubatch, 1), drafting.n_max + 1),
            n_outputs=drafting.n_max + 1,
            n_threads=_at_least("n_threads", n_threads or physical_cores(), 1),
            flash_attention=flash_attention,
        )
        n_max = drafting.n_max if spec_draft_n_max is None else _at_least("spec_draft_n_max", spec_draft_n_max, 1)
        self.stats: RunStats | None = None
        self.drafter: str | None = drafting.title
        self._lock = threading.Lock()
        self._current: Generation | None = None
        with ExitStack() as stack:
            target_model = _opened(stack, Model(Path(target), n_gpu_layers))
            target_context = _opened(stack, ModelContext(target_model, sizes))
            drafter = None
            if draft is not None:
                draft_model = _opened(stack, Model(Path(draft), n_gpu_layers))
                draft_context = _opened(stack, _draft_context(draft_model, sizes, target_context))
                drafter = _new_drafter(draft_context, drafting)
            self._loop: Loop | None = _new_loop(target_context, drafting.layers, sizes, drafter, n_max)
            self._vocabulary = Vocabulary(target_model)
            self._closing = stack.pop_all()

    @property
    def n_max(self) -> int:
        """Tokens drafted a round at the most; 0 without a drafter."""
        return self._open_loop().n_max

    def tokenize(self, prompt: str, *, raw: bool = False) -> list[int]:
        """Token ids of a prompt: as the user's message in the target's chat template, or as it is with ``raw``."""
        self._open_loop()
        if raw:
            return self._vocabulary.tokenize(prompt, add_special=True, parse_special=True)
        text = chat.render(self._header, self._vocabulary, [{"role": "user", "content": prompt}])
        return chat.tokenize_prompt(self._vocabulary, text)

    def generate(self, prompt: str | Sequence[int], *, max_tokens: int = -1, raw: bool = False) -> Iterator[Event]:
        """Yields Round and Text events and, last, Finished. The choice is greedy.

        ``prompt`` is text (see ``tokenize``) or token ids; ``max_tokens`` below 0 means until the context is full.
        A consumer that stops early leaves the session ready for the next request, and ``stats`` holds what was
        counted until then. A new request ends the one before it.
        """
        ids = self.tokenize(prompt, raw=raw) if isinstance(prompt, str) else list(prompt)
        generation = Generation(self._open_loop(), self._vocabulary.is_end, max_tokens, self.drafter)
        self._current = generation
        events = generation.events(ids, TextStream(self._vocabulary))
        try:
            while (event := self._next(generation, events)) is not None:
                yield event
        finally:
            self._settle(generation)

    def top_tokens(self, ids: Sequence[int], n: int) -> list[tuple[int, float]]:
        """The ``n`` best next tokens after ``ids`` with their logits, best first: how close a choice was."""
        import numpy as np

        self._current = None
        with self._lock:
            generation = Generation(self._open_loop(), self._vocabulary.is_end)
            logits = generation.next_logits(ids)
        best = np.argsort(-logits, kind="stable")[:n]
        return [(int(i), float(logits[i])) for i in best]

    def close(self) -> None:
        """Frees the contexts and models once a running pass is over. A second call does nothing."""
        with self._lock:
            self._loop = self._current = None
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_loop(self) -> Loop:
        if self._loop is None:
            raise SessionError("the session is closed", remedy="open another")
        return self._loop

    def _next(self, generation: Generation, events: Iterator[Event]) -> Event | None:
        with self._lock:
            if self._current is not generation:
                raise SessionError("the request is over: the session was closed, or has begun another request")
            return next(events, None)

    def _settle(self, generation: Generation) -> None:
        with self._lock:
            if self._current is generation:
                generation.settle()
                self.stats = generation.summary()


def _opened(stack: ExitStack, resource: _Resource) -> _Resource:
    stack.callback(resource.close)
    return resource


def _at_least(name: str, value: int, least: int) -> int:
    if value < least:
        raise SessionError(f"`{name}` is too small", value=value, expected=f"{least} or more")
    return value


def _draft_context(model: Model, target: ContextSizes, target_context: ModelContext) -> ModelContext:
    sizes = ContextSizes(
        n_ctx=target_context.n_ctx,
        n_ubatch=max(target.n_outputs, min(target.n_ubatch, DRAFT_UBATCH)),
        n_outputs=target.n_outputs,
        n_threads=target.n_threads,
        flash_attention=target.flash_attention,
    )
    return ModelContext(model, sizes, target_context)


def _new_drafter(context: ModelContext, drafting: Drafting) -> LlamaDrafter:
    from dflash_gguf import _core

    kind: _core.Kind = getattr(_core.Kind, drafting.kind or "")
    return _core.LlamaDrafter(context.address, kind, drafting.anchor_first)


def _new_loop(
    context: ModelContext, layers: Sequence[int], sizes: ContextSizes, drafter: LlamaDrafter | None, n_max: int
) -> Loop:
    from dflash_gguf import _core

    return _core.Loop(_core.LlamaTarget(context.address, layers, sizes.n_outputs), drafter, n_max)
