"""A conversation: what was said, turn by turn, and the next answer to it.

Comes in: a session, and what the user says. Goes out: pieces of answers. Knows nothing of terminals. Carried between
turns: the messages; the session keeps what their prompts have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack

from dflash_gguf.runner import chat
from dflash_gguf.runner.generation import Finished, Round, Text
from dflash_gguf.runner.thinking import Piece, Splitter, form_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from dflash_gguf.runner.sampling import SamplingOptions
    from dflash_gguf.runner.session import Event, Session
    from dflash_gguf.runner.thinking import Form

THINKING_FIELDS: Final = ("reasoning_content", "thinking")
"""How templates call what an earlier answer thought; what they do with it is theirs."""


def split(events: Iterator[Event], form: Form | None, prompt: str) -> Generator[Piece | Round | Finished]:
    """The events of an answer to ``prompt``, their text in pieces of thinking and of words."""
    splitter = Splitter(form, prompt)
    for event in events:
        if isinstance(event, Text):
            yield from splitter.add(event.text, event.drafted)
            continue
        if isinstance(event, Finished):
            yield from splitter.end()
        yield event


def mark_ids(session: Session, marks: Iterable[str]) -> frozenset[int]:
    """The control tokens that ``marks`` are made of."""
    vocabulary = session.vocabulary
    ids = (vocabulary.tokenize(mark, add_special=False, parse_special=True) for mark in marks)
    return frozenset(token for found in ids for token in found if not vocabulary.text_bytes(token))


class Conversation:
    """State: the messages so far. ``system`` is what precedes them, ``values`` the template's own variables."""

    def __init__(self, session: Session, system: str | None = None, values: Mapping[str, Any] | None = None) -> None:
        """Raises TemplateError when the target has no chat template, or it does not read one of ``values``."""
        self._session = session
        self.system = system
        self.values = dict(values or {})
        self.messages: list[dict[str, str]] = []
        template = session.template
        template.check(self.values)
        self._form = form_of(template.source)
        self._marks = mark_ids(session, self._form.marks if self._form else ())
        self._thinking_field = next((name for name in THINKING_FIELDS if name in template.source), None)

    def clear(self) -> None:
        """Forgets what was said; the system's message stays."""
        self.messages.clear()

    def ask(
        self,
        text: str,
        *,
        max_tokens: int = -1,
        stop: Sequence[str] = (),
        **sampling: Unpack[SamplingOptions],
    ) -> Generator[Piece | Round | Finished]:
        """The answer to ``text``, in pieces; both become part of the conversation, the answer as far as it came.

        A turn whose answer never said anything, because it failed or was left before, is none. Raises what
        `Session.generate` raises, SessionError also where the conversation does not fit the context.
        """
        before = len(self.messages)
        self.messages.append({"role": "user", "content": text})
        said: dict[str, str] = {"answer": "", "thinking": "", "mark": ""}
        try:
            prompt = self._session.render(self._with_system(), chat_template_kwargs=self.values)
            ids = chat.tokenize_prompt(self._session.vocabulary, prompt)
            events = self._session.generate(
                ids, max_tokens=max_tokens, stop=stop, spelt_token_ids=self._marks, **sampling
            )
            for event in split(events, self._form, prompt):
                if isinstance(event, Piece):
                    said[event.kind] += event.text
                yield event
        finally:
            if said["answer"].strip():
                self.messages.append(self._message(said))
            else:
                del self.messages[before:]

    def _with_system(self) -> list[dict[str, str]]:
        return [*([{"role": "system", "content": self.system}] if self.system else []), *self.messages]

    def _message(self, said: Mapping[str, str]) -> dict[str, str]:
        thought = said["thinking"].strip()
        kept = {self._thinking_field: thought} if self._thinking_field and thought else {}
        return {"role": "assistant", "content": said["answer"], **kept}
