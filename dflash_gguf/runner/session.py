"""A target and its drafter, and requests one after another.

Comes in: two GGUF files, then prompts. Goes out: events. What is carried between rounds is written down in
cpp/session.hpp: the newest token, and two caches that end just before it.
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack, cast

from dflash_gguf.errors import SessionError, brief
from dflash_gguf.gguf_header import read_header
from dflash_gguf.limits import checked
from dflash_gguf.runner import chat
from dflash_gguf.runner.assembly import caches, check_settings, open_loop, opened
from dflash_gguf.runner.chat import ChatTemplate
from dflash_gguf.runner.depth import Depths
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.exact import prepare
from dflash_gguf.runner.generation import Event, Finished, Generation, Round, Text
from dflash_gguf.runner.head import head_copy, open_drafter
from dflash_gguf.runner.memory import check_memory
from dflash_gguf.runner.models import Model
from dflash_gguf.runner.sampling import Sampling, SamplingOptions
from dflash_gguf.runner.settings import SessionOptions, Settings
from dflash_gguf.runner.vocabulary import TextStream, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from dflash_gguf._core import Loop
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.chat import Message
    from dflash_gguf.runner.stats import RunStats

__all__ = ["Event", "Finished", "Round", "Session", "Text"]


class Session:
    """Owns both models, in the order in which libllama needs them, and runs one request at a time.

    ``target`` and ``draft`` are GGUF files; without ``draft`` the target decodes alone and captures nothing. All sizes
    are in tokens:

    - ``n_ctx``: the context, 0 means the target's own; ``n_ctx_draft``: the drafter's, behind whose end nothing is
      drafted (default: the same).
    - ``n_ubatch``: prompt tokens that go through the target in one pass, no more than ``n_batch``.
    - ``depth``: ``auto`` drafts and verifies as many tokens as bring the most a second by what passes cost here and
      what was accepted, none where nothing pays; ``fixed`` always as many as it may. ``spec_draft_n_max``: how many at
      the most (default: what a block holds, and there cannot be more); drafts shorter than ``spec_draft_n_min`` are
      not verified, and they end before the first token less likely than ``spec_draft_p_min``. The text is the same
      with any.
    - ``n_threads`` (default: the physical cores) and ``n_threads_draft`` (default: the same).
    - ``type_k``, ``type_v`` and the drafter's ``type_k_draft``, ``type_v_draft``: types of the caches, as llama.cpp
      names them. A quantized cache of the drafter is worth a warning (see `check`).
    - ``draft_rule``: how a DFlash 2 drafter picks from its candidates: ``argmax``, ``keyed`` (with the target's own
      filters and noise) or ``auto`` (of the two the one of which more is accepted). The text is the same with any.
    - ``draft_head``: which head a drafter without one uses: its target's (``target``), a copy of that in Q4_0 that only
      the drafter uses (``copy``), or whichever is faster (``auto``). The text is the same with any.
    - ``exact``: the tokens are those that the target writes alone, also where a backend rounds passes of several tokens
      otherwise: it is loaded without what does so, passes are compared bit by bit, and no wider ones are run.
    - ``n_gpu_layers`` (below 0: all), ``device``, ``split_mode``, ``main_gpu``, ``tensor_split``, ``use_mmap`` and
      ``rpc``: see `Placement`; ``device_draft``: devices for a drafter that has embeddings and a head of its own.

    What two prompts in a row share is not read again. ``notes`` are the warnings of the checks, ``widths`` what
    ``exact`` found. Raises PairError naming every mismatch before anything native is loaded, SessionError when a
    setting is wrong or libllama refuses.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        draft: str | os.PathLike[str] | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        settings = Settings.of(options)
        self._header, draft_header = read_pair(target, draft)
        drafting = Drafting.read(self._header, draft_header)
        check_settings(drafting, settings, draft_header)
        copy = head_copy(self._header, draft_header, settings)
        if settings.exact:
            settings = prepare(settings)
        check_memory(caches(drafting, settings, self._header, draft_header))
        self.notes = (*drafting.notes, *settings.notes(drafting))
        self.stats: RunStats | None = None
        self.drafter: str | None = drafting.title
        self._lock = threading.RLock()
        self._current: Generation | None = None
        self._cached: list[int] = []
        self._template: ChatTemplate | None = None
        self._process = os.getpid()
        with ExitStack() as stack:
            target_model = opened(stack, Model(Path(target), settings.placement))
            draft_model = None
            if draft_header is not None:
                draft_model, notes = open_drafter(draft_header, copy, settings)
                opened(stack, draft_model)
                self.notes += notes
            made = open_loop(stack, target_model, draft_model, drafting, settings)
            self._loop: Loop | None = made.loop
            self.widths = made.widths
            self._vocabulary = Vocabulary(target_model)
            # Frees what was opened even when nobody closes the session.
            self._free = weakref.finalize(self, _close_in, self._process, stack.pop_all())

    @property
    def n_max(self) -> int:
        """Tokens drafted a round at the most; 0 without a drafter."""
        return self._open_loop().n_max

    @property
    def depths(self) -> Depths | None:
        """What depth control has found by now; None at a fixed depth, and without a drafter."""
        control = self._open_loop().control
        return None if control is None else Depths.of(control, self.n_max)

    @property
    def n_ctx(self) -> int:
        """Tokens that the context holds."""
        return self._open_loop().n_ctx

    @property
    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self._open_loop().n_vocab

    @property
    def vocabulary(self) -> Vocabulary:
        """The target's tokenizer, for as long as the session is open."""
        self._open_loop()
        return self._vocabulary

    @property
    def template(self) -> ChatTemplate:
        """The target's chat template; raises TemplateError when its file has none that can be read."""
        if self._template is None:
            self._template = ChatTemplate.of(self._header)
        return self._template

    def render(
        self,
        prompt: str | Sequence[Message],
        *,
        chat_template_kwargs: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, object]] = (),
    ) -> str:
        """Messages, or text as the user's, in the target's chat template, with the assistant's turn opened.

        ``chat_template_kwargs`` are values for the template's own variables, ``tools`` functions that may be called.
        """
        bos, eos = (self.vocabulary.special(name) for name in ("bos", "eos"))
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else chat.checked_messages(prompt)
        return self.template.render(messages, bos=bos, eos=eos, values=chat_template_kwargs, tools=tools)

    def tokenize(
        self,
        prompt: str | Sequence[Message],
        *,
        raw: bool = False,
        chat_template_kwargs: Mapping[str, object] | None = None,
    ) -> list[int]:
        """Token ids of a prompt: messages, or text as the user's, rendered (see ``render``); or text ``raw``."""
        self._open_loop()
        if raw and isinstance(prompt, str):
            return self._vocabulary.tokenize(prompt, add_special=True, parse_special=True)
        text = self.render(prompt, chat_template_kwargs=chat_template_kwargs)
        return chat.tokenize_prompt(self._vocabulary, text)

    def checked_ids(self, tokens: Iterable[int]) -> list[int]:
        """``tokens`` as a list; raises SessionError for the first that the vocabulary lacks."""
        return self._known(tokens, "a token")

    def token_text(self, token: int) -> str:
        """Text of one token, special ones shown; bytes that are no whole character are replaced."""
        (known,) = self._known([token], "a token")
        return self.vocabulary.piece(known, special=True).decode("utf-8", "replace")

    def generate(
        self,
        prompt: str | Sequence[int] | Sequence[Message],
        *,
        max_tokens: int = -1,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Iterable[int] = (),
        spelt_token_ids: Iterable[int] = (),
        raw: bool = False,
        chat_template_kwargs: Mapping[str, object] | None = None,
        logprobs: int | None = None,
        speculative: bool = True,
        wanted: Callable[[], bool] | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> Iterator[Event]:
        """An iterator of Round and Text events and, last, Finished.

        ``prompt`` is text or messages (see ``render``), or token ids. The answer ends at an end token of the model,
        at one of ``stop_token_ids`` or of the strings of ``stop``, which are no part of it, after ``max_tokens`` (-1:
        never), or where the context is full. Control tokens are no text, but for ``spelt_token_ids``. ``speculative``
        false: nothing is drafted for this answer; the drafter still reads along, for the next one. ``wanted`` is asked
        before each pass, those of the prompt too: once it says no the events end, without Finished. A consumer that
        stops early leaves the session ready for the next request, and ``stats`` holds what was counted until then. A
        new request ends the one before it, when its first event is taken. With ``logprobs`` Text events say how likely
        the target found each token, and as many of the likeliest there.

        All other keywords are those of `Sampling`: temperature, filters, penalties, grammar, seed. The same seed gives
        the same text with any drafter or none; ``stats.seed`` is the one that was used.
        """
        ids = self._prompt_ids(prompt, chat_template_kwargs, raw=raw)
        checked("max_tokens", max_tokens)
        keyed, seed = Sampling(**sampling).with_seed()
        generation = Generation(
            self._open_loop(),
            self._end_test(stop_token_ids),
            max_tokens,
            self.drafter,
            cached=self._cached,
            text=TextStream(self._vocabulary.spelt(frozenset(spelt_token_ids)), _stops(stop)),
            sampler=keyed.sampler(self._vocabulary, self.n_vocab, self.n_ctx, self._known(ids, "a prompt id")),
            seed=seed,
            piece=self.widths.piece if self.widths is not None else None,
            logprobs=None if logprobs is None else checked("logprobs", logprobs),
            speculative=speculative,
            wanted=wanted,
        )
        generation.check(ids)
        return self._events(generation, ids)

    def check_sampling(self, **sampling: Unpack[SamplingOptions]) -> None:
        """Raises SessionError for keywords of `Sampling` that no request of this session could be answered with."""
        Sampling(**sampling).sampler(self.vocabulary, self.n_vocab, self.n_ctx, [])

    def _events(self, generation: Generation, ids: Sequence[int]) -> Iterator[Event]:
        self._open_loop()
        self._current = generation
        events = generation.events(ids)
        try:
            while (event := self._next(generation, events)) is not None:
                yield event
        finally:
            self._settle(generation)

    @property
    def progress(self) -> RunStats | None:
        """What was counted of the newest request until now; None before the first."""
        with self._lock:
            return self.stats if self._current is None else self._current.summary()

    @property
    def newest_token(self) -> int:
        """The newest token of the last request: an end token when it stopped there; -1 before the first."""
        return self._open_loop().last

    def newest_logits(self) -> NDArray[np.float32]:
        """The logits that the newest token of the last request was chosen from: float32 [n_vocab]."""
        with self._lock:
            return self._open_loop().last_logits()

    def forget(self) -> None:
        """Lets the next request read its whole prompt, whatever it shares with the one before."""
        with self._lock:
            self._cached.clear()

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

    def _prompt_ids(
        self, prompt: str | Sequence[int] | Sequence[Message], values: Mapping[str, object] | None, *, raw: bool
    ) -> list[int]:
        if isinstance(prompt, str) or (_has_items(prompt) and isinstance(prompt[0], Mapping)):
            return self.tokenize(cast("str | Sequence[Message]", prompt), raw=raw, chat_template_kwargs=values)
        return _ids(cast("Sequence[int]", prompt))

    def _end_test(self, more: Iterable[int]) -> Callable[[int], bool]:
        ends = frozenset(self._known(more, "one of `stop_token_ids`"))
        is_end = self._vocabulary.is_end
        return (lambda token: token in ends or is_end(token)) if ends else is_end

    def _known(self, tokens: Iterable[int], what: str) -> list[int]:
        """Ids of the vocabulary, or SessionError naming the first that is none."""
        found = _ids(tokens, what)
        for token in found:
            if not 0 <= token < self.n_vocab:
                raise SessionError(what, value=token, expected=f"0 to {self.n_vocab - 1}")
        return found

    def _open_loop(self) -> Loop:
        if self._loop is None:
            raise SessionError("the session is closed", remedy="open another")
        if self._process != os.getpid():
            # The threads of libllama stay behind in a fork: a pass would wait for them for ever.
            raise SessionError("the session was opened in another process", remedy="open one in this process")
        return self._loop

    def _next(self, generation: Generation, events: Iterator[Event]) -> Event | None:
        with self._lock:
            if self._current is not generation:
                raise SessionError(
                    "the request is over: the session was closed, or has begun another request",
                    remedy="take the events of one request before the next is begun",
                )
            return next(events, None)

    def _settle(self, generation: Generation) -> None:
        # Looked at before the lock is taken: an abandoned generator may be collected while another request holds it.
        if self._current is not generation:
            return
        with self._lock:
            self.stats = generation.summary()


def _ids(tokens: Iterable[int], what: str = "the prompt") -> list[int]:
    if isinstance(tokens, bytes | bytearray | Mapping):
        raise SessionError(what, value=type(tokens).__name__, expected="text, messages or token ids")
    try:
        return [operator.index(token) for token in tokens]
    except TypeError:
        expected = "text, a list of messages, or whole numbers as token ids" if what == "the prompt" else "token ids"
        raise SessionError(what, value=brief(tokens), expected=expected) from None


def read_pair(
    target: str | os.PathLike[str], draft: str | os.PathLike[str] | None
) -> tuple[GGUFHeader, GGUFHeader | None]:
    """The headers of both files."""
    return read_header(_path("target", target)), None if draft is None else read_header(_path("draft", draft))


def _path(name: str, value: object) -> str:
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes) or "\0" in os.fspath(value):
        raise SessionError(f"`{name}`", value=brief(value), expected="the path of a GGUF")
    return os.fspath(value)


def _close_in(process: int, stack: ExitStack) -> None:
    """In a fork of ``process`` nothing is freed: the threads that would have to end are not there."""
    if os.getpid() == process:
        stack.close()


def _has_items(prompt: object) -> bool:
    return isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray) and len(prompt) > 0


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    if not isinstance(stop, str | Sequence) or isinstance(stop, bytes):
        raise SessionError("`stop`", value=brief(stop), expected="a text, or several")
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    for text in stops:
        if not isinstance(text, str) or not text:
            raise SessionError("a stop string", value=text, expected="a text that is not empty")
    return stops
