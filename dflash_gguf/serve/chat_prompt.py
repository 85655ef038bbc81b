"""What a chat request's prompt is: its messages in the target's template, and how the answer to it is read.

Comes in: a session and checked values. Goes out: text, token ids, and a parser for the answer. Runs in the thread that
reads prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dflash_gguf.runner import chat, thinking
from dflash_gguf.runner.conversation import mark_ids
from dflash_gguf.serve.answer import AnswerParser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.runner.session import Session


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """``spelt``: control tokens that are marks of the answer."""

    ids: list[int]
    spelt: frozenset[int]
    parser: AnswerParser

    @classmethod
    def of(cls, session: Session, values: Mapping[str, Any]) -> ChatPrompt:
        """Of a request's ``messages``. Raises SessionError and TemplateError.

        Of ``chat_template_kwargs`` those count that the template reads: clients send all that any template knows.
        """
        template = session.template
        given = values.get("chat_template_kwargs", {})
        read = {name: value for name, value in given.items() if template.reads(name)}
        text = session.render(values["messages"], chat_template_kwargs=read)
        ids = chat.tokenize_prompt(session.vocabulary, text)
        marks = mark_ids(session, thinking.form_of(template.source))
        return cls(ids, marks, AnswerParser(template.source, text))
