"""A target and its drafter, and requests one after another.

Comes in: two GGUF files, then prompts. Goes out: events. What is carried between rounds is written down in
cpp/session.hpp: the newest token, and two caches that end just before it.
"""

from __future__ import annotations

import operator
import threading
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dflash_gguf.errors import SessionError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.limits import checked
from dflash_gguf.runner import chat
from dflash_gguf.runner.assembly import open_loop, opened, sizes_for
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.generation import Event, Finished, Generation, Round, Text
from dflash_gguf.runner.memory import check_memory
from dflash_gguf.runner.models import FlashAttention, Model
from dflash_gguf.runner.vocabulary import TextStream, Vocabulary

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from dflash_gguf._core import Loop
    from dflash_gguf.runner.stats import RunStats

__all__ = ["Event", "Finished", "Round", "Session", "Text"]


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
        sizes = sizes_for(drafting, n_ctx, n_ubatch, n_threads, flash_attention)
        checked("n_gpu_layers", n_gpu_layers)
        headers = [self._header, *([] if draft is None else [read_header(draft)])]
        check_memory(headers, n_ctx, sizes.n_outputs)
        n_max = drafting.n_max if spec_draft_n_max is None else checked("spec_draft_n_max", spec_draft_n_max)
        self.stats: RunStats | None = None
        self.drafter: str | None = drafting.title
        self._lock = threading.RLock()
        self._current: Generation | None = None
        with ExitStack() as stack:
            target_model = opened(stack, Model(Path(target), n_gpu_layers))
            draft_model = None if draft is None else opened(stack, Model(Path(draft), n_gpu_layers))
            self._loop: Loop | None = open_loop(stack, target_model, draft_model, drafting, sizes, n_max)
            self._vocabulary = Vocabulary(target_model)
            # Frees what was opened even when nobody closes the session.
            self._free = weakref.finalize(self, stack.pop_all().close)

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

    def token_text(self, token: int) -> str:
        """Text of one token, special ones shown; bytes that are no whole character are replaced."""
        self._open_loop()
        return self._vocabulary.piece(token, special=True).decode("utf-8", "replace")

    def generate(self, prompt: str | Sequence[int], *, max_tokens: int = -1, raw: bool = False) -> Iterator[Event]:
        """Yields Round and Text events and, last, Finished. The choice is greedy.

        ``prompt`` is text (see ``tokenize``) or token ids; ``max_tokens`` below 0 means until the context is full.
        A consumer that stops early leaves the session ready for the next request, and ``stats`` holds what was
        counted until then. A new request ends the one before it.
        """
        ids = self.tokenize(prompt, raw=raw) if isinstance(prompt, str) else _ids(prompt)
        checked("max_tokens", max_tokens)
        generation = Generation(self._open_loop(), self._vocabulary.is_end, max_tokens, self.drafter)
        self._current = generation
        events = generation.events(ids, TextStream(self._vocabulary.text_bytes))
        try:
            while (event := self._next(generation, events)) is not None:
                yield event
        finally:
            self._settle(generation)

    @property
    def newest_token(self) -> int:
        """The newest token of the last request: an end token when it stopped there; -1 before the first."""
        return self._open_loop().last

    def newest_logits(self) -> NDArray[np.float32]:
        """The logits that the newest token of the last request was chosen from: float32 [n_vocab]."""
        with self._lock:
            return self._open_loop().last_logits()

    def close(self) -> None:
        """Frees the contexts and models once a running pass is over. A second call does nothing."""
        with self._lock:
            self._loop = self._current = None
            self._free()

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
        # Looked at before the lock is taken: an abandoned generator may be collected while another request holds it.
        if self._current is not generation:
            return
        with self._lock:
            generation.settle()
            self.stats = generation.summary()


def _ids(prompt: Sequence[int]) -> list[int]:
    if isinstance(prompt, bytes | bytearray):
        raise SessionError("a prompt of bytes", expected="text, or token ids", remedy="decode it first")
    try:
        return [operator.index(token) for token in prompt]
    except TypeError:
        raise SessionError("the prompt", value=type(prompt).__name__, expected="text, or token ids") from None
