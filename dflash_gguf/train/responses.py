"""The target answers prompts, many at once: a pass holds the next token of every answer, and the prompts of new ones.

Comes in: prompts and a GGUF target. Goes out: token ids, each answer as soon as it ends. Knows nothing of files.
"""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dflash_gguf.errors import SessionError, TemplateError, TrainError
from dflash_gguf.facts import architecture, target_facts
from dflash_gguf.runner import chat, machine
from dflash_gguf.runner.assembly import opened, target_sizes
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.memory import Cache, cache_bytes
from dflash_gguf.runner.models import Model, ModelContext
from dflash_gguf.runner.vocabulary import Vocabulary
from dflash_gguf.train.answers import Answer
from dflash_gguf.train.settings import FEWEST_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dflash_gguf._core import Sampler
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.models import ContextSizes
    from dflash_gguf.train.prompts import Prompt
    from dflash_gguf.train.settings import CorpusSettings

_CACHES_PART: Final = 4
"""The caches of all answers take no more than this part of the free memory, where one alone does not."""

_ALONE: Final = frozenset({"minimax-01"})
"""Architectures whose passes libllama 0.5.0 builds for one sequence: of several it ends the process (ggml_add in
src/models/minimax-01.cpp). All others of `TAP_TARGETS` were tried."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt as token ids; ``number`` counts prompts, by which the noise is keyed."""

    number: int
    ids: tuple[int, ...]
    where: str


def respond(
    target: Path, header: GGUFHeader, prompts: Mapping[int, Prompt], settings: CorpusSettings
) -> Iterator[Answer]:
    """An answer to each of ``prompts`` (by number), in the order in which they end.

    Raises SessionError when libllama refuses, TrainError for a prompt that cannot be asked.
    """
    with ExitStack() as stack:
        model = opened(stack, Model(target, settings.session.placement))
        vocabulary = Vocabulary(model)
        asked = [_asked(header, vocabulary, number, prompt, settings) for number, prompt in prompts.items()]
        sizes = _sizes(header, asked, settings)
        context = opened(stack, ModelContext(model, sizes))
        yield from _Writer(model, context, vocabulary, sizes, settings).answers(asked)


def prompt_lengths(
    target: Path, header: GGUFHeader, prompts: Sequence[Prompt], settings: CorpusSettings
) -> tuple[int, ...]:
    """Tokens of each prompt in the chat template; no weights are loaded for it.

    Raises SessionError when libllama refuses, TrainError for a prompt that cannot be asked.
    """
    with ExitStack() as stack:
        vocabulary = Vocabulary(opened(stack, Model(target, settings.session.placement, dry=True)))
        return tuple(len(_asked(header, vocabulary, *row, settings).ids) for row in enumerate(prompts))


def end_tokens(target: Path, header: GGUFHeader, settings: CorpusSettings) -> frozenset[int]:
    """Tokens at which libllama ends a text; no weights are loaded for it. Raises SessionError when it refuses."""
    with ExitStack() as stack:
        vocabulary = Vocabulary(opened(stack, Model(target, settings.session.placement, dry=True)))
        return frozenset(filter(vocabulary.is_end, range(target_facts(header).vocab_size or 0)))


def _asked(header: GGUFHeader, vocabulary: Vocabulary, number: int, prompt: Prompt, settings: CorpusSettings) -> Asked:
    messages = [{"role": role, "content": content} for role, content in prompt.messages]
    try:
        text = chat.render(header, vocabulary, messages)
    except TemplateError as error:  # its own remedies are options that `train` has not
        raise TrainError(
            f"{prompt.where} cannot be asked: {error.what}", remedy="leave it out, or give the file of a chat model"
        ) from None
    ids = tuple(chat.tokenize_prompt(vocabulary, text))
    if len(ids) > settings.n_ctx - FEWEST_TOKENS:
        raise TrainError(
            f"{prompt.where}: tokens of the prompt",
            value=len(ids),
            expected=f"at most {settings.n_ctx - FEWEST_TOKENS}",
            remedy="leave it out, or ask for a larger context",
        )
    return Asked(number, ids, prompt.where)


def _sizes(header: GGUFHeader, asked: Sequence[Asked], settings: CorpusSettings) -> ContextSizes:
    """A context of as many sequences as there is memory for, each long enough for the longest."""
    longest = min(settings.n_ctx, max(len(prompt.ids) for prompt in asked) + settings.max_tokens)
    sizes = target_sizes(Drafting(), replace(settings.session, n_ctx=longest))
    n_seq = at_once(header, longest, settings, len(asked))
    return replace(sizes, n_seq=n_seq, n_outputs=n_seq, n_ubatch=max(sizes.n_ubatch, n_seq), n_states=0)


def at_once(header: GGUFHeader, length: int, settings: CorpusSettings, n_prompts: int) -> int:
    """How many answers are written at once, each of up to ``length`` tokens with its prompt."""
    if architecture(header) in _ALONE:
        return 1
    n_seq, room = min(settings.parallel, n_prompts), machine.free() // _CACHES_PART
    while n_seq > 1 and answers_bytes(header, length, settings, n_seq) > room:
        n_seq //= 2
    return n_seq


def answers_bytes(header: GGUFHeader, length: int, settings: CorpusSettings, n_seq: int) -> int:
    """The caches of ``n_seq`` answers."""
    session = settings.session
    return cache_bytes(Cache(header, length * n_seq, session.type_k, session.type_v, n_seq))


@dataclass(slots=True)
class _Slot:
    """A sequence that is being written: ``waiting`` are its tokens that no pass has seen, from ``n_past`` on."""

    asked: Asked
    ids: list[int]
    waiting: list[int]
    n_past: int
    n_most: int
    sampler: Sampler

    def answer(self) -> Answer:
        return Answer(self.asked.number, len(self.asked.ids), tuple(self.ids))


class _Writer:
    """Slots of one context; a slot whose answer ended takes the next prompt at once."""

    def __init__(
        self, model: Model, context: ModelContext, vocabulary: Vocabulary, sizes: ContextSizes, settings: CorpusSettings
    ) -> None:
        import llama_cpp

        self._lib = llama_cpp
        self._context, self._vocabulary, self._settings = context, vocabulary, settings
        self._n_batch, self._n_seq, self._n_ctx = sizes.n_ubatch, sizes.n_seq, sizes.n_ctx
        self._n_vocab = int(llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model.address)))
        self._memory = llama_cpp.llama_get_memory(context.address)

    def answers(self, asked: Sequence[Asked]) -> Iterator[Answer]:
        """Each as it ends."""
        queue = deque(asked)
        slots: dict[int, _Slot] = {}
        batch = self._lib.llama_batch_init(self._n_batch, 0, 1)
        try:
            while queue or slots:
                for place in range(self._n_seq):
                    if queue and place not in slots:
                        slots[place] = self._slot(queue.popleft())
                for place, row in self._pass(batch, slots):
                    if self._goes_on(slots[place], row):
                        continue
                    yield slots.pop(place).answer()
                    self._lib.llama_memory_seq_rm(self._memory, place, -1, -1)
        finally:
            self._lib.llama_batch_free(batch)

    def _slot(self, asked: Asked) -> _Slot:
        from dflash_gguf import _core

        settings, ids = self._settings, asked.ids
        drawn = _core.uniform(settings.seed, asked.number, 0) < settings.sampled
        sampling = settings.sampling(asked.number, drawn=drawn)
        sampler = sampling.sampler(self._vocabulary, self._n_vocab, self._n_ctx, ids)
        return _Slot(asked, list(ids), list(ids), 0, min(self._n_ctx, len(ids) + settings.max_tokens), sampler)

    def _pass(self, batch: Any, slots: Mapping[int, _Slot]) -> list[tuple[int, int]]:
        """One pass over what waits, as far as there is room; returns the slots that may go on, with their rows."""
        rows, n = [], 0
        left = len(slots)
        for place in sorted(slots):  # libllama makes one pass of sequences whose numbers follow each other
            slot = slots[place]
            left -= 1
            taken = slot.waiting[: self._n_batch - n - left]  # every slot behind it has room for a token
            for i, token in enumerate(taken):
                batch.token[n], batch.pos[n] = token, slot.n_past + i
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, place
                batch.logits[n] = len(taken) == len(slot.waiting) == i + 1
                n += 1
            del slot.waiting[: len(taken)]
            slot.n_past += len(taken)
            if not slot.waiting:
                rows.append((place, n - 1))
        batch.n_tokens = n
        code = self._lib.llama_decode(self._context.address, batch)
        if code != 0:
            raise SessionError(f"libllama failed in a pass of {n} tokens of {len(slots)} answers", value=code)
        return rows

    def _goes_on(self, slot: _Slot, row: int) -> bool:
        """Chooses the next token from the pass's row; whether another may follow it."""
        address = self._lib.llama_get_logits_ith(self._context.address, row)
        if not address:
            raise SessionError("libllama left no logits", value=row)
        logits = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (self._n_vocab,))
        token = slot.sampler.choose(logits, len(slot.ids))
        slot.sampler.accept(token)
        slot.ids.append(token)
        slot.waiting.append(token)
        return len(slot.ids) < slot.n_most and not self._vocabulary.is_end(token)
