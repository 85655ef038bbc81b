"""``llama_cpp.Llama``, with a drafter: its calls and its responses, over a `Session`.

Comes in: llama_cpp's arguments. Goes out: llama_cpp's responses, whole or in chunks. A thin user of `Session`: what it
adds is names, and limits as llama_cpp counts them. It knows nothing of rounds or drafts.
"""

from __future__ import annotations

import logging
import operator
import os
from typing import TYPE_CHECKING, Any, Final, Self, cast

from dflash_gguf import llama_arguments as arguments
from dflash_gguf import responses
from dflash_gguf.errors import TemplateError
from dflash_gguf.limits import checked
from dflash_gguf.llama_arguments import RequestError
from dflash_gguf.llama_sampling import RANDOM_SEEDS, Seeds, sampling_of
from dflash_gguf.responses import Heading, Response
from dflash_gguf.runner.bounds import AUTO
from dflash_gguf.runner.generation import Finished, Text
from dflash_gguf.runner.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from dflash_gguf.runner.chat import Message
    from dflash_gguf.runner.sampling import SamplingOptions

_LOGGER: Final = "llama-cpp-python"
"""The logger whose level llama_cpp's own log callback obeys."""


class Llama:
    """A target and its drafter behind the calls of ``llama_cpp.Llama``.

    ``draft_model_path`` is the drafter's GGUF; without it the target decodes alone. ``spec_draft_n_max`` is how many
    tokens are drafted a round at the most, ``depth`` who decides how many; ``exact`` makes the tokens those of the
    target alone, and needs ``flash_attn`` (see `Session`). All other arguments are llama_cpp's, with its names, its
    numbers and its defaults: note ``n_ctx`` 512, ``n_gpu_layers`` 0 and ``flash_attn`` off (None: where libllama finds
    it possible). ``verbose`` sets the level of llama_cpp's logger, for the whole process, as it does there. ``seed``
    fixes the seeds of requests that name none; -1 and llama_cpp's default draw others each time.
    ``last_n_tokens_size`` is how far penalties look back.

    What has no counterpart here is refused by name unless it has llama_cpp's default: RequestError, a SessionError and
    a ValueError. Errors of loading are those of `Session`, which is there as ``session``.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        draft_model_path: str | os.PathLike[str] | None = None,
        spec_draft_n_max: int | None = None,
        depth: str = AUTO,
        exact: bool = False,
        n_gpu_layers: int = 0,
        split_mode: int = 1,
        main_gpu: int = 0,
        tensor_split: Sequence[float] | None = None,
        use_mmap: bool = True,
        seed: int = RANDOM_SEEDS[1],
        n_ctx: int = 512,
        n_batch: int = 512,
        n_ubatch: int = 512,
        n_threads: int | None = None,
        n_threads_batch: int | None = None,
        flash_attn: bool | None = False,
        last_n_tokens_size: int = 64,
        type_k: int | None = None,
        type_v: int | None = None,
        verbose: bool = True,
        **others: Any,
    ) -> None:
        arguments.check_constructor(others)
        arguments.check_threads(n_threads, n_threads_batch)
        self.model_path = os.fspath(model_path)
        self.verbose = verbose
        self.last_n_tokens_size = checked("last_n_tokens_size", last_n_tokens_size)
        self._seeds = Seeds(seed)
        logging.getLogger(_LOGGER).setLevel(logging.DEBUG if verbose else logging.ERROR)
        with arguments.as_request_errors():
            self.session = Session(
                model_path,
                draft_model_path,
                n_ctx=n_ctx,
                n_batch=n_batch,
                n_ubatch=n_ubatch,
                n_threads=n_threads or None,
                spec_draft_n_max=spec_draft_n_max,
                depth=depth,
                exact=exact,
                flash_attention=arguments.flash_attention(flash_attn),
                type_k=arguments.cache_type("type_k", type_k),
                type_v=arguments.cache_type("type_v", type_v),
                n_gpu_layers=n_gpu_layers,
                split_mode=arguments.split_mode(split_mode),
                main_gpu=main_gpu,
                tensor_split=tensor_split,
                use_mmap=use_mmap,
            )

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        additional_files: Sequence[str] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        local_dir_use_symlinks: bool | str = "auto",
        cache_dir: str | os.PathLike[str] | None = None,
        *,
        draft_repo_id: str | None = None,
        draft_filename: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """A pair from the hub, in the cache of huggingface_hub; ``kwargs`` are the constructor's.

        ``filename`` is a file of ``repo_id`` or a pattern that fits one. Without it the file is chosen by the type in
        ``repo_id``, as in ``ORG/REPO:Q4_K_M``. All parts of a split file are downloaded. The drafter is named
        likewise. Raises HubError, and what the constructor raises.
        """
        from dflash_gguf.hub.pretrained import target_and_draft

        if local_dir is not None or local_dir_use_symlinks != "auto":
            remedy = "files are kept in the cache: give `cache_dir`"
            raise RequestError("`local_dir` and `local_dir_use_symlinks`", value=local_dir, remedy=remedy)
        more = additional_files or ()
        paths = target_and_draft((repo_id, filename), (draft_repo_id, draft_filename), more=more, cache=cache_dir)
        return cls(paths[0], draft_model_path=paths[1], **kwargs)

    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = [],
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: Sequence[Any] | None = None,
        logits_processor: Sequence[Any] | None = None,
        grammar: Any = None,
        logit_bias: dict[int, float] | None = None,
    ) -> Response | Iterator[Response]:
        """What follows ``prompt``, text or token ids: a ``text_completion``, or with ``stream`` its chunks.

        ``temperature`` 0 takes the best token, below 0 draws from all of them. ``grammar`` is a llama_cpp.LlamaGrammar,
        or GBNF. ``max_tokens`` None or below 1 means as many as the context has room for. ``echo`` puts the prompt
        before a whole answer, and does nothing to a stream, as in llama_cpp. Raises RequestError for what cannot be
        honoured.
        """
        given = locals()
        arguments.check_request(given, arguments.COMPLETION)
        sampling = self._sampling(given)
        ids = self._prompt_ids(prompt)
        events = self._events(ids, stop, max_tokens, sampling)
        heading = Heading.new(self.model_path if model is None else model)
        if stream:
            return responses.completion_chunks(heading, events)
        text, end = _joined(events)
        return responses.completion(heading, self._spelt(prompt) + text if echo else text, end, len(ids))

    __call__ = create_completion

    def create_chat_completion(
        self,
        messages: Sequence[Message],
        functions: Sequence[Any] | None = None,
        function_call: Any = None,
        tools: Sequence[Any] | None = None,
        tool_choice: Any = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | Sequence[str] | None = [],
        seed: int | None = None,
        response_format: dict[str, Any] | None = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: Sequence[Any] | None = None,
        grammar: Any = None,
        logit_bias: dict[int, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
    ) -> Response | Iterator[Response]:
        """The assistant's answer to ``messages``: a ``chat.completion``, or with ``stream`` its chunks.

        Messages go through the chat template of the target's file. ``response_format`` is one of OpenAI's, or has
        llama_cpp's ``schema`` beside the type ``json_object``. What a turn shares with the one before it is not read
        again. Raises RequestError for what cannot be honoured, TemplateError when the file has no template or that
        refuses the messages.
        """
        given = locals()
        arguments.check_request(given, arguments.CHAT)
        sampling = self._sampling(given)
        ids = self._chat_ids(messages)
        events = self._events(ids, self._chat_stops(stop), max_tokens, sampling)
        heading = Heading.new(self.model_path if model is None else model)
        if stream:
            return responses.chat_chunks(heading, events)
        text, end = _joined(events)
        return responses.chat_completion(heading, text, end, len(ids))

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Token ids of UTF-8. ``add_bos``: with what the tokenizer adds; ``special``: read special tokens as such."""
        vocabulary = self.session.vocabulary
        try:
            return vocabulary.tokenize(text.decode("utf-8"), add_special=add_bos, parse_special=special)
        except (AttributeError, UnicodeDecodeError):
            raise RequestError("`text`", value=ascii(text)[:80], expected="UTF-8 in bytes") from None

    def detokenize(
        self,
        tokens: Sequence[int],
        prev_tokens: Sequence[int] | None = None,  # noqa: ARG002  llama_cpp's own tokenizer does not look at it either
        special: bool = False,
    ) -> bytes:
        """The bytes that ``tokens`` stand for; control tokens are empty unless ``special``."""
        vocabulary, n_vocab = self.session.vocabulary, self.n_vocab()
        ids = [operator.index(token) for token in tokens]
        for token in ids:
            if not 0 <= token < n_vocab:
                raise RequestError("a token", value=token, expected=f"0 to {n_vocab - 1}")
        text = b"".join(vocabulary.piece(token, special=special) for token in ids)
        return text.removeprefix(b" ") if ids[:1] == [self.token_bos()] else text

    def n_ctx(self) -> int:
        """Tokens that the context holds."""
        return self.session.n_ctx

    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self.session.n_vocab

    def token_bos(self) -> int:
        """The token that begins a text; -1 when the model has none."""
        return self.session.vocabulary.special_id("bos")

    def token_eos(self) -> int:
        """The token that ends a text; -1 when the model has none."""
        return self.session.vocabulary.special_id("eos")

    def set_seed(self, seed: int) -> None:
        """Fixes the seeds of the requests that come and name none."""
        self._seeds = Seeds(seed)

    def close(self) -> None:
        """Frees the models. A second call does nothing."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prompt_ids(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            return self.session.tokenize(prompt, raw=True)
        try:
            if not isinstance(prompt, bytes | bytearray):
                return [operator.index(token) for token in prompt]
        except TypeError:
            pass
        raise RequestError("the prompt", value=type(prompt).__name__, expected="text, or token ids")

    def _chat_ids(self, messages: Sequence[Message]) -> list[int]:
        if isinstance(messages, str | bytes):
            raise RequestError("`messages`", value=type(messages).__name__, expected="a list of messages")
        if not messages:
            raise RequestError("`messages`", value="none", expected="a list of messages")
        try:
            with arguments.as_request_errors():
                return self.session.tokenize(messages)
        except TemplateError as error:
            raise TemplateError(error.what, remedy="write the prompt yourself and call create_completion") from error

    def _chat_stops(self, stop: str | Sequence[str] | None) -> list[str]:
        """``stop``, and as in llama_cpp the text of the end token, which a model may spell in plain tokens."""
        stops = [stop] if isinstance(stop, str) else [] if stop is None else [*stop]
        eos = self.session.vocabulary.special("eos")
        return [*stops, eos] if eos else stops

    def _sampling(self, given: Mapping[str, Any]) -> SamplingOptions:
        options = sampling_of(given)
        return options | {"repeat_last_n": self.last_n_tokens_size, "seed": self._seeds.of_request(given["seed"])}

    def _events(
        self, ids: list[int], stop: str | Sequence[str] | None, max_tokens: int | None, sampling: SamplingOptions
    ) -> Iterator[Text | Finished]:
        room = self.n_ctx() - len(ids)
        if room <= 0:
            raise RequestError(
                f"Requested tokens ({len(ids)}) exceed context window of {self.n_ctx()}",  # llama_cpp's words
                remedy="give a larger `n_ctx` or shorten the prompt",
            )
        with arguments.as_request_errors():
            limit = arguments.token_limit(max_tokens, room)
            events = self.session.generate(ids, max_tokens=limit, stop=stop, **sampling)
        return (event for event in events if isinstance(event, Text | Finished))

    def _spelt(self, prompt: str | Sequence[int]) -> str:
        return prompt if isinstance(prompt, str) else self.detokenize(prompt).decode("utf-8", "replace")


def _joined(events: Iterator[Text | Finished]) -> tuple[str, Finished]:
    """All text, and the event behind it."""
    *texts, end = events
    return "".join(event.text for event in texts if isinstance(event, Text)), cast("Finished", end)
