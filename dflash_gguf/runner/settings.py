"""What a session is opened with, in one value.

Comes in: the options of `Session`. Goes out: checked numbers. Loads nothing native.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_gguf.errors import SessionError
from dflash_gguf.limits import checked
from dflash_gguf.runner.placement import EVERYWHERE, Placement
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.drafting import Drafting
    from dflash_gguf.runner.models import FlashAttention

OWN_TABLES = frozenset({"token_embd.weight", "output.weight"})
"""Without these a drafter reads its target's, on the device where that keeps them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in tokens; None stands for the default that `Session` names."""

    n_ctx: int = 4096
    n_ctx_draft: int | None = None
    n_batch: int | None = None
    n_ubatch: int = 512
    n_threads: int | None = None
    n_threads_draft: int | None = None
    spec_draft_n_max: int | None = None
    flash_attention: FlashAttention = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    type_k_draft: str = "f16"
    type_v_draft: str = "f16"
    placement: Placement = EVERYWHERE
    device_draft: tuple[str, ...] | None = None

    def n_max(self, drafting: Drafting) -> int:
        """Tokens to draft a round."""
        if self.spec_draft_n_max is None:
            return drafting.n_max
        return checked("spec_draft_n_max", self.spec_draft_n_max)

    def rows(self, drafting: Drafting) -> int:
        """Rows of a target pass: more than a recurrent state is wound back over."""
        asked = checked("n_ubatch", self.n_ubatch)
        if self.n_batch is not None:
            asked = min(asked, checked("n_batch", self.n_batch))
        return max(asked, drafting.n_max + 2)

    def threads(self) -> int:
        """Threads of a target pass."""
        return checked("n_threads", physical_cores() if self.n_threads is None else self.n_threads)

    def draft_threads(self) -> int:
        """Threads of a drafter pass."""
        return self.threads() if self.n_threads_draft is None else checked("n_threads_draft", self.n_threads_draft)

    def draft_placement(self, header: GGUFHeader) -> Placement:
        """The target's, or another device for a drafter that has tables of its own."""
        if self.device_draft is None or self.device_draft == self.placement.device:
            return self.placement
        if not header.tensors.keys() >= OWN_TABLES:
            raise SessionError(
                f"the drafter `{header.name}` shares the target's embeddings and head, and must lie beside them",
                value=", ".join(self.device_draft),
                remedy="leave out the drafter's device",
            )
        ours = self.placement
        return Placement(ours.n_gpu_layers, self.device_draft, use_mmap=ours.use_mmap)
