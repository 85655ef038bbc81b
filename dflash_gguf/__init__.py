"""Convert DFlash drafters to GGUF, and run them beside their target on llama-cpp-python's libllama.

The names in ``__all__`` are the whole public interface. Each is imported when it is first used, so that
``import dflash_gguf`` loads neither libllama nor numpy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import DflashError

if TYPE_CHECKING:
    from dflash_gguf.convert.api import convert, plan
    from dflash_gguf.convert.overrides import Overrides
    from dflash_gguf.llama import Llama
    from dflash_gguf.log import log_to
    from dflash_gguf.modelfile.api import render as modelfile
    from dflash_gguf.pair import check
    from dflash_gguf.quantize.api import quantize
    from dflash_gguf.recipes.api import recipe
    from dflash_gguf.runner.estimate import estimate
    from dflash_gguf.runner.session import Finished, Round, Session, Text

__version__: Final = "0.1.0"

__all__ = [
    "DflashError",
    "Finished",
    "Llama",
    "Overrides",
    "Round",
    "Session",
    "Text",
    "__version__",
    "check",
    "convert",
    "estimate",
    "log_to",
    "modelfile",
    "plan",
    "quantize",
    "recipe",
]

_WHERE: Final[dict[str, tuple[str, str]]] = {
    "Finished": ("dflash_gguf.runner.session", "Finished"),
    "Llama": ("dflash_gguf.llama", "Llama"),
    "Overrides": ("dflash_gguf.convert.overrides", "Overrides"),
    "Round": ("dflash_gguf.runner.session", "Round"),
    "Session": ("dflash_gguf.runner.session", "Session"),
    "Text": ("dflash_gguf.runner.session", "Text"),
    "check": ("dflash_gguf.pair", "check"),
    "convert": ("dflash_gguf.convert.api", "convert"),
    "estimate": ("dflash_gguf.runner.estimate", "estimate"),
    "log_to": ("dflash_gguf.log", "log_to"),
    "modelfile": ("dflash_gguf.modelfile.api", "render"),
    "plan": ("dflash_gguf.convert.api", "plan"),
    "quantize": ("dflash_gguf.quantize.api", "quantize"),
    "recipe": ("dflash_gguf.recipes.api", "recipe"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)


class _Package(ModuleType):
    """Keeps ``convert`` and ``modelfile`` the functions once the modules of these names are imported too."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
