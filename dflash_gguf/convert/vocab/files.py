"""The files of a Hugging Face folder that describe its tokenizer, read once and bounded.

Comes in: a folder. Goes out: parsed JSON and texts. Knows nothing of what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.strict_json import FILE_LIMIT, load_object
from dflash_gguf.errors import CheckpointError
from dflash_gguf.files import regular_size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOKENIZER: Final = "tokenizer.json"
SETTINGS: Final = "tokenizer_config.json"
SENTENCEPIECE: Final = "tokenizer.model"
TEMPLATE: Final = "chat_template.jinja"
TEMPLATE_JSON: Final = "chat_template.json"
MORE_TEMPLATES: Final = "additional_chat_templates"
TEMPLATES_LIMIT: Final = 64


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What tokenizer.json, tokenizer_config.json (``settings``; empty when absent) and config.json hold."""

    folder: Path
    tokenizer: Mapping[str, Any]
    settings: Mapping[str, Any]
    config: Mapping[str, Any]

    @property
    def model(self) -> Mapping[str, Any]:
        """The ``model`` of tokenizer.json."""
        value = self.tokenizer.get("model")
        if not isinstance(value, dict):
            raise CheckpointError(f"`model` of `{self.folder / TOKENIZER}`", expected="an object")
        return value


def read_files(folder: Path, config: Mapping[str, Any]) -> TokenizerFiles:
    """Read the tokenizer of ``folder``; raises `CheckpointError` on anything broken."""
    settings = folder / SETTINGS
    return TokenizerFiles(
        folder=folder,
        tokenizer=load_object(folder / TOKENIZER),
        settings=load_object(settings) if settings.is_file() else {},
        config=config,
    )


def read_text(path: Path) -> str:
    """A text file, whole; raises `CheckpointError` when it is too large or not UTF-8."""
    try:
        size = regular_size(path)
        if size > FILE_LIMIT:
            raise CheckpointError(f"`{path}`", value=f"{size} bytes", expected=f"at most {FILE_LIMIT}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise CheckpointError(f"`{path}` is not UTF-8") from None


def more_templates(folder: Path) -> list[Path]:
    """The further chat templates of a folder, by name."""
    found = sorted((folder / MORE_TEMPLATES).glob("*.jinja"))
    if len(found) > TEMPLATES_LIMIT:
        raise CheckpointError(f"`{folder / MORE_TEMPLATES}`", value=len(found), expected=f"at most {TEMPLATES_LIMIT}")
    return found
