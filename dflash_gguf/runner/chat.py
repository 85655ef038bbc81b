"""Messages to a prompt, by the chat template that the target's GGUF carries.

Comes in: a template and messages. Goes out: text. llama_cpp's formatter renders it in Jinja's sandbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_gguf.errors import TemplateError
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.vocabulary import Vocabulary

Message = dict[str, str]


def render(header: GGUFHeader, vocabulary: Vocabulary, messages: Sequence[Message]) -> str:
    """The prompt for ``messages`` with the assistant's turn opened.

    Raises TemplateError when the file has no template or the template refuses the messages.
    """
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    template = header.string(Keys.CHAT_TEMPLATE, default="")
    if not template:
        raise TemplateError(
            f"the target has no `{Keys.CHAT_TEMPLATE}`", remedy="pass `--raw` to send the prompt as it is"
        )
    try:
        formatter = Jinja2ChatFormatter(
            template=template, eos_token=vocabulary.special("eos"), bos_token=vocabulary.special("bos")
        )
        return str(formatter(messages=list(messages)).prompt)
    except Exception as error:  # the template is a program that came with the model: it may raise anything
        raise TemplateError(
            f"the target's chat template failed: {error}", remedy="pass `--raw` to send the prompt as it is"
        ) from error


def tokenize_prompt(vocabulary: Vocabulary, text: str) -> list[int]:
    """Ids of a rendered prompt; a BOS that the template wrote is not added a second time."""
    bos = vocabulary.special("bos")
    written = bool(bos) and text.startswith(bos)
    return vocabulary.tokenize(text, add_special=not written, parse_special=True)
