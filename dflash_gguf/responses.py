"""What a session yields, in the shape of llama_cpp's responses: keys, their order and their values.

Comes in: events of one request. Goes out: plain dictionaries. Knows nothing of sessions. To llama_cpp's keys one is
added, ``timings``: on whole responses and on the last chunk of a stream.
Source: llama_cpp's llama_types.py, and what its ``_create_completion`` and its chat handlers write.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dflash_gguf.runner.generation import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dflash_gguf.runner.generation import Finished

Response = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heading:
    """What all parts of one response say alike; ``created`` in seconds since 1970."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, model: str) -> Heading:
        """A heading with an id of its own."""
        return cls(f"cmpl-{uuid.uuid4()}", int(time.time()), model)


def completion(heading: Heading, text: str, end: Finished, n_prompt: int) -> Response:
    """A whole ``text_completion``; ``text`` is what the prompt, when it is echoed, and the answer say together."""
    return _completion(heading, text, end.reason) | _account(end, n_prompt)


def completion_chunks(heading: Heading, events: Iterable[Text | Finished]) -> Iterator[Response]:
    """A chunk for each text, and one without text that says why it ended."""
    for event in events:
        if isinstance(event, Text):
            yield _completion(heading, event.text, None)
        else:
            yield _completion(heading, "", event.reason) | _timings(event)


def chat_completion(heading: Heading, text: str, end: Finished, n_prompt: int) -> Response:
    """A whole ``chat.completion`` of the assistant."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "logprobs": None,
        "finish_reason": end.reason,
    }
    return {
        "id": f"chat{heading.id}",
        "object": "chat.completion",
        "created": heading.created,
        "model": heading.model,
        "choices": [choice],
    } | _account(end, n_prompt)


def chat_chunks(heading: Heading, events: Iterable[Text | Finished]) -> Iterator[Response]:
    """A chunk with the role once there is something to say, one for each text, and an empty one at the end."""
    for number, event in enumerate(events):
        if number == 0:
            yield _chat_chunk(heading, {"role": "assistant"}, None)
        if isinstance(event, Text):
            yield _chat_chunk(heading, {"content": event.text}, None)
        else:
            yield _chat_chunk(heading, {}, event.reason) | _timings(event)


def _completion(heading: Heading, text: str, finish_reason: str | None) -> Response:
    return {
        "id": heading.id,
        "object": "text_completion",
        "created": heading.created,
        "model": heading.model,
        "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": finish_reason}],
    }


def _chat_chunk(heading: Heading, delta: dict[str, str], finish_reason: str | None) -> Response:
    return {
        "id": f"chat{heading.id}",
        "model": heading.model,
        "created": heading.created,
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
    }


def _account(end: Finished, n_prompt: int) -> Response:
    n_answer = end.stats.predicted_n
    usage = {"prompt_tokens": n_prompt, "completion_tokens": n_answer, "total_tokens": n_prompt + n_answer}
    return {"usage": usage} | _timings(end)


def _timings(end: Finished) -> Response:
    return {"timings": end.stats.as_dict()}
