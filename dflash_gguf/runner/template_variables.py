"""The variables of a chat template: which it reads, and which of them a user may give.

Comes in: a template's text. Goes out: names. Renders nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dflash_gguf.errors import TemplateError

OURS: Final = frozenset(
    {
        "messages", "tools", "tool_choice", "functions", "function_call", "add_generation_prompt", "bos_token",
        "eos_token", "raise_exception", "strftime_now",
    }
)  # fmt: skip
"""What llama_cpp's formatter gives every template."""

THINKING: Final = "enable_thinking"
EFFORTS: Final = ("reasoning_effort", "thinking_effort", "reasoning_strength")
"""How templates call a reasoning effort."""
NO_EFFORT: Final = "none"
"""The level that stands for no thinking at all."""

_ASKED: Final = frozenset({"defined", "undefined"})


@dataclass(frozen=True, slots=True)
class Names:
    """``read``: every variable that is not always set before it is read. ``offered``: those that a user may give."""

    read: frozenset[str]
    offered: tuple[str, ...]


def names_of(source: str, failed: Callable[[Exception], TemplateError]) -> Names:
    """The variables of a template; raises what ``failed`` makes of an error of Jinja's parser."""
    from jinja2 import meta

    try:
        tree = _environment().parse(source)
        read = frozenset(meta.find_undeclared_variables(tree))
    except Exception as error:  # the text came with the model
        raise failed(error) from error
    own = set(_assigned(tree)) - set(_asked_for(tree))
    return Names(read, tuple(sorted(read - OURS - own)))


def _environment() -> Any:
    """With the tags that llama_cpp's formatter knows."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    extensions = [Jinja2ChatFormatter.IgnoreGenerationTags, "jinja2.ext.loopcontrols"]
    return ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)


def _assigned(tree: Any) -> Iterator[str]:
    """Names that the template sets itself."""
    from jinja2 import nodes

    return (node.name for node in tree.find_all(nodes.Name) if node.ctx == "store")


def _asked_for(tree: Any) -> Iterator[str]:
    """Names of which the template asks whether they are given."""
    from jinja2 import nodes

    for node in tree.find_all((nodes.Test, nodes.Filter)):
        if (node.name in _ASKED or node.name in ("default", "d")) and isinstance(node.node, nodes.Name):
            yield node.node.name
