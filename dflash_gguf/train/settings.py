"""How a corpus is made, in one value.

Comes in: options. Goes out: checked numbers. Loads nothing native.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import SessionError, brief
from dflash_gguf.facts import architecture
from dflash_gguf.limits import checked
from dflash_gguf.runner.bounds import SEEDS, SHARE, check_bounds
from dflash_gguf.runner.sampling import Sampling, is_seed
from dflash_gguf.runner.settings import Settings

if TYPE_CHECKING:
    from dflash_gguf.gguf_header import GGUFHeader

FEWEST_TOKENS: Final = 16
"""An answer must have room for so many: shorter ones teach nothing."""


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """The answers, and how the target is run for them.

    - ``max_tokens``: of an answer; ``n_ctx``: of a prompt and its answer, 0: the target's own context.
    - ``sampled``: the share of prompts that are answered by drawing at ``temperature``, each by the noise of ``seed``
      and its own number; the others get the best token each time.
    - ``parallel``: answers written at once, fewer where their caches would not fit. It changes nothing in them but by
      what the backend rounds otherwise.
    - ``session``: threads, devices, flash attention and rows of a pass, as in a session.

    Raises SessionError for a value out of bounds.
    """

    max_tokens: int = 512
    sampled: float = 0.25
    temperature: float = 0.7
    seed: int = 0
    n_ctx: int = 4096
    parallel: int = 32
    session: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for name in ("max_tokens", "n_ctx", "parallel"):
            checked(name, getattr(self, name))
        for name in ("max_tokens", "n_ctx"):
            if getattr(self, name) < FEWEST_TOKENS and (name, self.n_ctx) != ("n_ctx", 0):
                raise SessionError(f"`{name}`", value=getattr(self, name), expected=f"at least {FEWEST_TOKENS}")
        check_bounds("sampled", self.sampled, SHARE)
        if not is_seed(self.seed):
            raise SessionError("`seed`", value=brief(self.seed), expected=f"a whole number from 0 to {SEEDS - 1}")
        Sampling(temperature=self.temperature)

    def within(self, header: GGUFHeader) -> CorpusSettings:
        """With the context of the target in ``header`` where none was chosen."""
        return self if self.n_ctx else replace(self, n_ctx=header.integer(f"{architecture(header)}.context_length"))

    def sampling(self, number: int, *, drawn: bool) -> Sampling:
        """How the prompt of this number is answered."""
        return Sampling(seed=(self.seed + number) % SEEDS, temperature=self.temperature if drawn else 0.0)

    def as_dict(self) -> dict[str, Any]:
        """What the text of the answers depends on."""
        return {name: getattr(self, name) for name in ("max_tokens", "sampled", "temperature", "seed", "n_ctx")}
