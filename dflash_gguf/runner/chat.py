"""Messages to a prompt, by the chat template that the target's GGUF carries.

Comes in: a template and messages. Goes out: text. llama_cpp's formatter renders it in Jinja's sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dflash_gguf.errors import SessionError, TemplateError
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.vocabulary import Vocabulary

Message = Mapping[str, Any]
"""``role`` and ``content``, a text or a list of parts of the type ``text``; what else a template may read."""


def render(header: GGUFHeader, vocabulary: Vocabulary, messages: Sequence[Message]) -> str:
    """The prompt for ``messages`` with the assistant's turn opened.

    Raises TemplateError when the file has no template or the template refuses the messages.
    """
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    template = header.string(Keys.CHAT_TEMPLATE, default="")
    if not template:
        raise TemplateError(
            f"the target has no `{Keys.CHAT_TEMPLATE}`", remedy="send the prompt as it is: `--raw`, `raw=True`"
        )
    try:
        formatter = Jinja2ChatFormatter(
            template=template, eos_token=vocabulary.special("eos"), bos_token=vocabulary.special("bos")
        )
        return str(formatter(messages=list(messages)).prompt)
    except Exception as error:  # the template is a program that came with the model: it may raise anything
        raise TemplateError(
            f"the target's chat template failed: {error}", remedy="send the prompt as it is: `--raw`, `raw=True`"
        ) from error


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
