"""Answers in OpenAI's shapes: whole objects and chunks of a stream, of chats and of completions.

Comes in: deltas of one answer and its end. Goes out: plain dictionaries. ``timings`` is llama.cpp's, ``meta_info``
SGLang's. Knows nothing of sockets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dflash_gguf.serve import logprobs
from dflash_gguf.serve.deltas import Delta, message_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dflash_gguf.responses import Heading
    from dflash_gguf.runner.generation import FinishReason
    from dflash_gguf.runner.scores import Scored
    from dflash_gguf.runner.stats import RunStats
    from dflash_gguf.runner.vocabulary import Span
    from dflash_gguf.serve.requests import Ask

Response = dict[str, Any]
Reason = Literal["stop", "length", "tool_calls"]


class Parser(Protocol):
    """Reads an answer as it comes."""

    def feed(self, text: str, drafted: Sequence[Span] = ()) -> list[Delta]:
        """What is sure after more text."""
        ...

    def end(self) -> list[Delta]:
        """What was held back."""
        ...

    def reason(self, reason: FinishReason) -> Reason:
        """OpenAI's reason."""
        ...


class PlainParser:
    """Of an answer that is all content."""

    def feed(self, text: str, drafted: Sequence[Span] = ()) -> list[Delta]:
        """The text."""
        return [Delta(content=text, drafted=tuple(drafted))]

    def end(self) -> list[Delta]:
        """Nothing is held back."""
        return []

    def reason(self, reason: FinishReason) -> Reason:
        """The same."""
        return reason


@dataclass(frozen=True, slots=True)
class Chat:
    """``chat.completion`` and its chunks."""

    heading: Heading
    ask: Ask
    spell: logprobs.Spell

    def opening(self) -> Response:
        """The chunk that names the role."""
        return self._chunk({"role": "assistant", "content": ""}, (), None)

    def chunk(self, delta: Delta, scores: Sequence[Scored] = ()) -> Response:
        """A chunk of the stream."""
        return self._chunk(delta.as_dict(), delta.drafted, None, scores)

    def closing(self, reason: Reason, scores: Sequence[Scored] = ()) -> Response:
        """The chunk that says why it ended."""
        return self._chunk({}, (), reason, scores)

    def whole(self, deltas: Iterable[Delta], reason: Reason, scores: Sequence[Scored] = ()) -> Response:
        """The whole answer; ``drafted`` are spans of its content."""
        found = list(deltas)
        likely = None if self.ask.logprobs is None else logprobs.of_chat(scores, self.spell)
        choice = {"index": 0, "message": message_of(found), "logprobs": likely, "finish_reason": reason}
        return self._with("chat.completion", choice, drafted_of(found))

    def bare(self) -> Response:
        """A chunk without a choice."""
        return self._with("chat.completion.chunk")

    def _chunk(
        self, delta: dict[str, Any], drafted: tuple[Span, ...], reason: Reason | None, scores: Sequence[Scored] = ()
    ) -> Response:
        likely = logprobs.of_chat(scores, self.spell) if scores else None
        choice = {"index": 0, "delta": delta, "logprobs": likely, "finish_reason": reason}
        return self._with("chat.completion.chunk", choice, drafted)

    def _with(self, kind: str, choice: Response | None = None, drafted: tuple[Span, ...] = ()) -> Response:
        return _response(f"chat{self.heading.id}", kind, self.heading, _choices(self.ask, choice, drafted))


@dataclass(frozen=True, slots=True)
class Completion:
    """``text_completion``, whole and in chunks. ``echo``: the prompt's text, which comes first."""

    heading: Heading
    ask: Ask
    spell: logprobs.Spell
    echo: str = ""

    def opening(self) -> Response | None:
        """The prompt, where it is wanted."""
        return self._text(self.echo, (), None) if self.echo else None

    def chunk(self, delta: Delta, scores: Sequence[Scored] = ()) -> Response:
        """A chunk of the stream."""
        return self._text(delta.content, delta.drafted, None, scores)

    def closing(self, reason: Reason, scores: Sequence[Scored] = ()) -> Response:
        """The chunk that says why it ended."""
        return self._text("", (), reason, scores)

    def whole(self, deltas: Iterable[Delta], reason: Reason, scores: Sequence[Scored] = ()) -> Response:
        """The whole answer."""
        found = [Delta(content=self.echo), *deltas]
        return self._text("".join(delta.content for delta in found), drafted_of(found), reason, scores)

    def bare(self) -> Response:
        """A chunk without a choice."""
        return _response(self.heading.id, "text_completion", self.heading, [])

    def _text(
        self, text: str, drafted: tuple[Span, ...], reason: Reason | None, scores: Sequence[Scored] = ()
    ) -> Response:
        likely = logprobs.of_completion(scores, self.spell) if scores else None
        choice = {"text": text, "index": 0, "logprobs": likely, "finish_reason": reason}
        return _response(self.heading.id, "text_completion", self.heading, _choices(self.ask, choice, drafted))


Form = Chat | Completion


def drafted_of(deltas: Iterable[Delta]) -> tuple[Span, ...]:
    """The spans of all content that come from accepted drafts, joined where they touch."""
    spans: list[Span] = []
    length = 0
    for delta in deltas:
        for first, end in delta.drafted if delta.content else ():
            touches = bool(spans) and spans[-1][1] == length + first
            start = spans.pop()[0] if touches else length + first
            spans.append((start, length + end))
        length += len(delta.content)
    return tuple(spans)


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
