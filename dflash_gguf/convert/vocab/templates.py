"""A folder's chat templates, as keys.

Comes in: a tokenizer's files. Goes out: keys. tokenizer_config.json goes before the files beside it.
Source: llama.cpp gguf-py/gguf/vocab.py and gguf_writer.py, ``add_chat_template`` (0.5.0).
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.encode import KeyValue, array, scalar
from dflash_gguf.convert.strict_json import load_object
from dflash_gguf.convert.vocab.files import TEMPLATE, TEMPLATE_JSON, TokenizerFiles, more_templates, read_text
from dflash_gguf.errors import CheckpointError
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAT_TEMPLATES: Final = "tokenizer.chat_templates"
NAME_LETTERS: Final = frozenset(string.ascii_letters + string.digits)
DEFAULT: Final = "default"


def template_keys(files: TokenizerFiles) -> tuple[KeyValue, ...]:
    """The keys of the chat template or templates; none without tokenizer_config.json."""
    if not files.settings:
        return ()
    found = files.settings["chat_template"] if "chat_template" in files.settings else _beside(files)
    if isinstance(found, str):
        return (scalar(Keys.CHAT_TEMPLATE, "string", found),)
    return tuple(_several(found)) if isinstance(found, list) else ()


def _beside(files: TokenizerFiles) -> Any:
    path, path_json = files.folder / TEMPLATE, files.folder / TEMPLATE_JSON
    if path.is_file():
        text, more = read_text(path), more_templates(files.folder)
        if not more:
            return text
        first = {"name": DEFAULT, "template": text}
        return [first, *({"name": other.stem, "template": read_text(other)} for other in more)]
    return load_object(path_json).get("chat_template") if path_json.is_file() else None


def _several(choices: list[Any]) -> Iterator[KeyValue]:
    named: dict[str, str] = {}
    for choice in choices:
        name, template = _choice(choice)
        if name and template is not None:
            named[name] = template
    default = named.pop(DEFAULT, None)
    for name, template in named.items():
        yield scalar(f"{Keys.CHAT_TEMPLATE}.{name}", "string", template)
    if named:
        yield array(CHAT_TEMPLATES, "string", tuple(named))
    if default is not None:
        yield scalar(Keys.CHAT_TEMPLATE, "string", default)


def _choice(choice: object) -> tuple[str, str | None]:
    if isinstance(choice, dict):
        name, template = choice.get("name", ""), choice.get("template")
        if isinstance(name, str) and (template is None or isinstance(template, str)):
            return "".join(letter if letter in NAME_LETTERS else "_" for letter in name), template
    raise CheckpointError("an entry of `chat_template`", expected="an object with a name and a template")
