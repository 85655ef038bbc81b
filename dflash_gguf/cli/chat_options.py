"""The options of an answer in a chat template, and of how it is shown; names and meanings are llama.cpp's.

Comes in: nothing. Goes out: a click decorator, and what was given.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """``values``: of the chat template's own variables."""

    system: str | None = None
    effort: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    hide_thinking: bool = False
    color_draft: bool = False

    def checked(self, target: Path) -> ChatOptions:
        """These with the effort among the values. Raises TemplateError where the target has no template, or for what
        that does not know.
        """
        from dflash_gguf.gguf_header import read_header
        from dflash_gguf.runner.chat import ChatTemplate

        template = ChatTemplate.of(read_header(target))
        values = (template.effort(self.effort) if self.effort is not None else {}) | self.values
        template.check(values)
        return replace(self, values=values, effort=None)

    @property
    def needs_template(self) -> bool:
        """Whether anything was given that a raw prompt has no place for."""
        return self.system is not None or self.effort is not None or bool(self.values)


def _object(_ctx: click.Context, _param: click.Parameter, text: str | None) -> dict[str, Any]:
    try:
        value = {} if text is None else json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.BadParameter(f"{text!r} is no JSON object")
    return value


_OPTIONS = (
    click.option("-sys", "--system", "--system-prompt", metavar="TEXT", help="What precedes the conversation."),
    click.option(
        "--reasoning-effort",
        metavar="LEVEL",
        help="For the chat template: low, medium, high; none: no thinking; default: as the template has it.",
    ),
    click.option(
        "--chat-template-kwargs",
        metavar="JSON",
        callback=_object,
        help="Values for variables of the chat template, as one object.",
    ),
    click.option("--hide-thinking", is_flag=True, help="Leave out what the model thinks before it answers."),
    click.option("--color-draft", is_flag=True, help="Tint text that comes from accepted drafts, on a terminal."),
)


def chat_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for each field of `ChatOptions`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chat_arguments(options: dict[str, Any]) -> ChatOptions:
    """Takes what belongs to `ChatOptions` out of a command's ``options``."""
    effort = options.pop("reasoning_effort")
    return ChatOptions(
        options.pop("system"),
        None if effort in (None, "default") else effort,
        options.pop("chat_template_kwargs"),
        options.pop("hide_thinking"),
        options.pop("color_draft"),
    )
