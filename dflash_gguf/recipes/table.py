"""The engines, in the order in which they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.recipes.local import LLAMA_SERVER, OLLAMA, OMLX
from dflash_gguf.recipes.servers import SGLANG, TRTLLM, VLLM
from dflash_gguf.recipes.zlab import CLIENT, NEMO

if TYPE_CHECKING:
    from dflash_gguf.recipes.parts import Engine

ENGINES: Final[dict[str, Engine]] = {
    engine.name: engine for engine in (SGLANG, VLLM, LLAMA_SERVER, OLLAMA, OMLX, TRTLLM, CLIENT, NEMO)
}
