"""The renderers and parsers that ollama has, and which go together.

Comes in: two names or None. Goes out: the same, checked. ollama itself looks at them only when a model is run.
Source: ollama model/renderers/renderer.go and model/parsers/parsers.go (v0.33.0-rc2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import TemplateError
from dflash_gguf.modelfile.content import GGUF

if TYPE_CHECKING:
    from dflash_gguf.modelfile.content import Lane

RENDERERS: Final = (
    *("cogito", "cohere", "deepseek3.1", "functiongemma", "gemma4", "gemma4-large", "gemma4-small", "glimmer"),
    *("glm-4.7", "glm-ocr", "laguna", "lfm2", "lfm2-thinking", "nemotron-3-nano", "nemotron-3.5-nano", "olmo3"),
    *("olmo3-32b-think", "olmo3-think", "olmo3.1", "ornith", "poolside-v1", "qwen3-coder", "qwen3-vl-instruct"),
    *("qwen3-vl-thinking", "qwen3.5", "qwen3.8"),
)
PARSERS: Final = (
    *("cogito", "deepseek3", "functiongemma", "gemma4", "glimmer", "glm-4.7", "glm-ocr", "harmony", "laguna", "lfm2"),
    *("lfm2-thinking", "ministral", "nemotron-3-nano", "olmo3", "olmo3-think", "passthrough", "poolside-v1", "qwen3"),
    *("qwen3-coder", "qwen3-thinking", "qwen3-vl-instruct", "qwen3-vl-thinking", "qwen3.5"),
)
PARTNERS: Final = {"qwen3.8": "qwen3.5"}
"""Renderer -> the parser it needs, where that has another name."""


def chat_names(renderer: str | None, parser: str | None, lane: Lane) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Both names and what to say about them; raises `TemplateError` for one that ollama does not have."""
    _known("renderer", renderer, RENDERERS)
    _known("parser", parser, PARSERS)
    partner = PARTNERS.get(renderer or "")
    if partner is not None and parser is None:
        parser = partner
    if partner is not None and parser != partner:
        raise TemplateError(f"the parser beside renderer `{renderer}`", value=parser, expected=f"`{partner}`")
    if lane is GGUF and (renderer or parser):
        return renderer, parser, ("with a renderer or a parser, ollama leaves the GGUF's own chat template unused",)
    return renderer, parser, ()


def _known(what: str, name: str | None, names: tuple[str, ...]) -> None:
    if name is not None and name not in names:
        raise TemplateError(f"the {what}", value=name, expected=f"one of {', '.join(names)}")
