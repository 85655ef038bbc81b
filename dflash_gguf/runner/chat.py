"""Messages to a prompt, by the chat template that the target's GGUF carries.

Comes in: messages, and values for the template's own variables. Goes out: text. llama_cpp's formatter renders it in
Jinja's sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import SessionError, TemplateError
from dflash_gguf.file_text import shown
from dflash_gguf.runner import template_variables
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.vocabulary import Vocabulary

Message = Mapping[str, Any]
"""``role`` and ``content``, a text or a list of parts of the type ``text``; what else a template may read."""

RAW: Final = "send the prompt as it is: `--raw`, `raw=True`"
_EVERYWHERE: Final = frozenset({"user", "assistant"})
"""Roles that every template which writes the last message writes."""
DOUBTS: Final = 8
"""Messages that are looked for in a prompt one by one, at the most: each takes another rendering."""
_MARK: Final = "dflash-mark-"
_FILE: Final = "<template>"
"""What Jinja calls the file of a template that came as text."""


class ChatTemplate:
    """The template of a target's file, ready to render. ``source`` is its text."""

    def __init__(self, source: str) -> None:
        """Raises TemplateError when there is none, or it is no Jinja."""
        if not source:
            raise TemplateError(f"the target has no `{Keys.CHAT_TEMPLATE}`", remedy=RAW)
        self.source = source
        self._formatter: Any = None
        self._names = template_variables.names_of(source, _failed)

    @classmethod
    def of(cls, header: GGUFHeader) -> ChatTemplate:
        """The one of a target's header."""
        return cls(header.string(Keys.CHAT_TEMPLATE, default=""))

    def reads(self, name: str) -> bool:
        """Whether a value for the variable ``name`` can make a difference."""
        return name in self._names.read

    def check(self, values: Mapping[str, Any]) -> None:
        """Raises TemplateError for a value that the template does not read, or that is not the user's to give."""
        for name in values:
            if name in template_variables.OURS:
                raise TemplateError(f"the chat template's `{shown(name)}` is not for the user to set")
            if not self.reads(name):
                raise TemplateError(
                    f"the target's chat template does not read `{shown(name)}`",
                    expected=", ".join(f"`{each}`" for each in self._names.offered) or "none: it has no variables",
                    remedy="leave it out",
                )

    def effort(self, level: str) -> dict[str, Any]:
        """What stands for a reasoning effort; raises TemplateError when the template knows none."""
        name = next(filter(self.reads, template_variables.EFFORTS), None)
        if name is not None:
            return {name: level}
        if level == template_variables.NO_EFFORT and self.reads(template_variables.THINKING):
            return {template_variables.THINKING: False}
        switch = f"; it reads `{template_variables.THINKING}`" if self.reads(template_variables.THINKING) else ""
        raise TemplateError(
            f"the target's chat template knows no reasoning effort `{shown(level)}`{switch}",
            remedy="leave it out, or give what the template reads by `--chat-template-kwargs`",
        )

    def render(
        self,
        messages: Sequence[Message],
        *,
        bos: str = "",
        eos: str = "",
        values: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """The prompt for ``messages`` with the assistant's turn opened.

        ``bos`` and ``eos`` are the texts of these tokens, ``values`` those of the template's own variables, ``tools``
        OpenAI's descriptions of functions that may be called. Raises TemplateError when the template refuses the
        messages, leaves one out without a word, or knows no tools.
        """
        given = dict(values or {})
        self.check(given)
        if tools:
            if not self.reads("tools"):
                raise TemplateError("the target's chat template knows no tools", remedy="leave them out")
            given["tools"] = list(tools)
        text = self._render(messages, bos, eos, given)
        for number in self._doubtful(messages, bos, eos, given):
            others = [*messages[:number], *messages[number + 1 :]]
            if self._written(others, bos, eos, given) == text:
                role = messages[number].get("role")
                raise TemplateError(
                    f"the target's chat template leaves out the message {number} of the role `{shown(str(role))}`",
                    remedy=RAW if role in _EVERYWHERE else "give its text as the user's",
                )
        return text

    def _doubtful(self, messages: Sequence[Message], bos: str, eos: str, values: dict[str, Any]) -> list[int]:
        """Messages that may have been left out: a mark in the place of their text does not come through.

        One rendering tells of all, however many there are; of those that it leaves in doubt no more than `DOUBTS`.
        """
        last = len(messages) - 1
        watched = [
            number
            for number, message in enumerate(messages)
            if message.get("content") and (number == last or message.get("role") not in _EVERYWHERE)
        ]
        marked = list(messages)
        for number in watched:
            marked[number] = {**messages[number], "content": f"{_MARK}{number}."}
        text = self._written(marked, bos, eos, values) or ""
        seen = set(map(int, re.findall(rf"{_MARK}(\d+)\.", text)))
        return [number for number in watched if number not in seen][:DOUBTS]

    def _written(self, messages: Sequence[Message], bos: str, eos: str, values: dict[str, Any]) -> str | None:
        """The prompt; None when the template refuses the messages."""
        try:
            return self._render(messages, bos, eos, values)
        except TemplateError:
            return None

    def _render(self, messages: Sequence[Message], bos: str, eos: str, values: dict[str, Any]) -> str:
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        try:
            if self._formatter is None:
                self._formatter = Jinja2ChatFormatter(template=self.source, eos_token=eos, bos_token=bos)
            return str(self._formatter(messages=list(messages), **values).prompt)
        except Exception as error:  # the template is a program that came with the model: it may raise anything
            raise _failed(error, messages) from error


def _failed(error: Exception, messages: Sequence[Message] = ()) -> TemplateError:
    """Where and why it failed, and for messages of which roles."""
    line = getattr(error, "lineno", None) or _line(error)
    where = f", line {line}" if line else ""
    roles = ", ".join(dict.fromkeys(str(message.get("role")) for message in messages))
    what = f"the target's chat template (`{Keys.CHAT_TEMPLATE}`{where}) failed"
    given = f" for messages of the roles {shown(roles)}" if roles else ""
    return TemplateError(f"{what}{given}: {type(error).__name__}: {error}", remedy=RAW)


def _line(error: Exception) -> int | None:
    """The line of the template in which it was raised."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def render(
    header: GGUFHeader, vocabulary: Vocabulary, messages: Sequence[Message], values: Mapping[str, Any] | None = None
) -> str:
    """The prompt for ``messages`` by the template of ``header``; see `ChatTemplate.render`."""
    bos, eos = vocabulary.special("bos"), vocabulary.special("eos")
    return ChatTemplate.of(header).render(messages, bos=bos, eos=eos, values=values)


def checked_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages whose contents are text; raises SessionError on anything else, such as an image."""
    return [_checked(number, message) for number, message in enumerate(messages)]


def _checked(number: int, message: Message) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise SessionError(
            f"message {number}", value=ascii(message)[:80], expected="a mapping with a `role` and a `content`"
        )
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_text_part(number, part) for part in content)
    if content is None and message["role"] != "assistant":
        raise SessionError(f"the content of message {number}", value=None, expected="text")
    if content is not None and not isinstance(content, str):
        raise SessionError(f"the content of message {number}", value=type(content).__name__, expected="text")
    return {**message, "content": content}


def _text_part(number: int, part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind != "text" or not isinstance(part.get("text"), str):
        raise SessionError(
            f"message {number} holds more than text",
            value=ascii(kind)[:80],
            expected="parts of the type `text`",
            remedy="send images to llama-server: drafts of their positions are not verified here",
        )
    return str(part["text"])


def tokenize_prompt(vocabulary: Vocabulary, text: str) -> list[int]:
    """Ids of a rendered prompt; a BOS that the template wrote is not added a second time."""
    bos = vocabulary.special("bos")
    written = bool(bos) and text.startswith(bos)
    return vocabulary.tokenize(text, add_special=not written, parse_special=True)
