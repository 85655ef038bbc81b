"""Answers in OpenAI's shapes: whole objects and chunks of a stream, of chats and of completions.

Comes in: deltas of one answer and its end. Goes out: plain dictionaries. ``timings`` is llama.cpp's, ``meta_info``
SGLang's. Knows nothing of sockets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dflash_gguf.responses import Heading
    from dflash_gguf.runner.stats import RunStats
    from dflash_gguf.runner.vocabulary import Span
    from dflash_gguf.serve.requests import Ask

Response = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delta:
    """What an answer gains. ``drafted``: the spans of ``content`` that come from accepted drafts."""

    content: str = ""
    drafted: tuple[Span, ...] = ()


@dataclass(slots=True)
class Whole:
    """An answer so far."""

    content: str = ""
    drafted: list[Span] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        """Goes on with ``delta``."""
        start = len(self.content)
        for first, end in delta.drafted:
            if self.drafted and self.drafted[-1][1] == start + first:
                self.drafted[-1] = (self.drafted[-1][0], start + end)
            else:
                self.drafted.append((start + first, start + end))
        self.content += delta.content


@dataclass(frozen=True, slots=True)
class Chat:
    """``chat.completion`` and its chunks."""

    heading: Heading
    ask: Ask

    def opening(self) -> Response:
        """The chunk that names the role."""
        return self._chunk({"role": "assistant", "content": ""}, (), None)

    def chunk(self, delta: Delta) -> Response:
        """A chunk of the stream."""
        return self._chunk({"content": delta.content}, delta.drafted, None)

    def closing(self, reason: str) -> Response:
        """The chunk that says why it ended."""
        return self._chunk({}, (), reason)

    def whole(self, answer: Whole, reason: str) -> Response:
        """The whole answer."""
        message = {"role": "assistant", "content": answer.content}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return self._with("chat.completion", choice, tuple(answer.drafted))

    def bare(self) -> Response:
        """A chunk without a choice."""
        return self._with("chat.completion.chunk")

    def _chunk(self, delta: dict[str, Any], drafted: tuple[Span, ...], reason: str | None) -> Response:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._with("chat.completion.chunk", choice, drafted)

    def _with(self, kind: str, choice: Response | None = None, drafted: tuple[Span, ...] = ()) -> Response:
        return _response(f"chat{self.heading.id}", kind, self.heading, _choices(self.ask, choice, drafted))


@dataclass(frozen=True, slots=True)
class Completion:
    """``text_completion``, whole and in chunks. ``echo``: the prompt's text, which comes first."""

    heading: Heading
    ask: Ask
    echo: str = ""

    def opening(self) -> Response | None:
        """The prompt, where it is wanted."""
        return self._text(self.echo, (), None) if self.echo else None

    def chunk(self, delta: Delta) -> Response:
        """A chunk of the stream."""
        return self._text(delta.content, delta.drafted, None)

    def closing(self, reason: str) -> Response:
        """The chunk that says why it ended."""
        return self._text("", (), reason)

    def whole(self, answer: Whole, reason: str) -> Response:
        """The whole answer."""
        before = len(self.echo)
        drafted = tuple((first + before, end + before) for first, end in answer.drafted)
        return self._text(self.echo + answer.content, drafted, reason)

    def bare(self) -> Response:
        """A chunk without a choice."""
        return _response(self.heading.id, "text_completion", self.heading, [])

    def _text(self, text: str, drafted: tuple[Span, ...], reason: str | None) -> Response:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
        return _response(self.heading.id, "text_completion", self.heading, _choices(self.ask, choice, drafted))


Form = Chat | Completion


def _choices(ask: Ask, choice: Response | None, drafted: tuple[Span, ...]) -> list[Response]:
    if choice is None:
        return []
    return [choice | {"drafted": drafted} if ask.return_drafted else choice]


def _response(id_: str, kind: str, heading: Heading, choices: list[Response]) -> Response:
    return {"id": id_, "object": kind, "created": heading.created, "model": heading.model, "choices": choices}


def usage(n_prompt: int, stats: RunStats) -> Response:
    """How many tokens there were."""
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": stats.predicted_n,
        "total_tokens": n_prompt + stats.predicted_n,
        "prompt_tokens_details": {"cached_tokens": stats.cache_n},
    }


def account(ask: Ask, id_: str, n_prompt: int, stats: RunStats, reason: str) -> Response:
    """What stands beside the last choice: ``timings`` and, where it is asked for, ``meta_info``."""
    found: Response = {"timings": stats.as_dict()}
    if ask.return_meta_info:
        found["meta_info"] = meta_info(id_, n_prompt, stats, reason)
    return found


def meta_info(id_: str, n_prompt: int, stats: RunStats, reason: str) -> Response:
    """SGLang's. Its verifications are target passes after the prompt's: without drafts there are none."""
    found: Response = {
        "id": id_,
        "finish_reason": {"type": reason},
        "prompt_tokens": n_prompt,
        "completion_tokens": stats.predicted_n,
        "cached_tokens": stats.cache_n,
    }
    if stats.drafter is None:
        return found
    return found | {
        "spec_verify_ct": stats.verify_calls,
        "spec_accept_length": stats.acceptance_length,
        "spec_accept_token_num": stats.draft_n_accepted,
        "spec_draft_token_num": stats.draft_n,
    }
