"""What a session is opened with, in one value.

Comes in: the options of `Session`. Goes out: checked numbers. Loads nothing native.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict

from dflash_gguf.errors import SessionError, brief
from dflash_gguf.facts import DFLASH2, DSPARK
from dflash_gguf.limits import checked
from dflash_gguf.runner.bounds import ARGMAX, AUTO, DEPTHS, DRAFT_RULES, KEYED, SHARE, check_bounds
from dflash_gguf.runner.placement import EVERYWHERE, Placement
from dflash_gguf.runtimes import cache_findings
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.drafting import Drafting
    from dflash_gguf.runner.models import FlashAttention

OWN_TABLES = frozenset({"token_embd.weight", "output.weight"})
"""Without these a drafter reads its target's, on the device where that keeps them."""


_LISTS: Final = frozenset({"device", "device_draft", "rpc", "tensor_split"})


class SessionOptions(TypedDict, total=False):
    """The keywords of `Session`, which says what each means: fields of `Settings` and of `Placement`."""

    n_ctx: int
    n_ctx_draft: int | None
    n_batch: int | None
    n_ubatch: int
    n_threads: int | None
    n_threads_draft: int | None
    spec_draft_n_max: int | None
    spec_draft_n_min: int
    spec_draft_p_min: float
    depth: str
    flash_attention: FlashAttention
    type_k: str
    type_v: str
    type_k_draft: str
    type_v_draft: str
    device_draft: Sequence[str] | None
    draft_rule: str
    draft_head: str
    exact: bool
    n_gpu_layers: int
    device: Sequence[str] | None
    split_mode: str
    main_gpu: int
    tensor_split: Sequence[float] | None
    use_mmap: bool | None
    rpc: Sequence[str]


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
    spec_draft_n_min: int = 0
    spec_draft_p_min: float = 0.0
    depth: str = AUTO
    flash_attention: FlashAttention = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    type_k_draft: str = "f16"
    type_v_draft: str = "f16"
    placement: Placement = EVERYWHERE
    device_draft: tuple[str, ...] | None = None
    draft_rule: str = "argmax"
    draft_head: str = AUTO
    exact: bool = False

    @classmethod
    def of(cls, options: SessionOptions) -> Self:
        """The settings that ``options`` name. Raises TypeError for a name that is none."""
        values: dict[str, Any] = dict(options)
        for name in _LISTS & values.keys():
            values[name] = _listed(values[name])
        placed = {item.name for item in fields(Placement)} - {"use_extra_bufts"}
        placement = Placement(**{name: values.pop(name) for name in placed & values.keys()})
        for name in values.keys() - (SessionOptions.__annotations__.keys() - placed):
            raise TypeError(f"Session() got an unexpected keyword argument {name!r}")
        return cls(placement=placement, **values)

    def n_max(self, drafting: Drafting) -> int:
        """Tokens to draft a round: no more than a block holds."""
        if self.spec_draft_n_max is None:
            return drafting.n_max
        return min(checked("spec_draft_n_max", self.spec_draft_n_max), drafting.n_max)

    def notes(self, drafting: Drafting) -> tuple[str, ...]:
        """Warnings about what is not as asked, or costs tokens."""
        if drafting.kind is None:
            return ()
        asked = self.spec_draft_n_max
        clamped = f"`spec_draft_n_max` {asked} is more than the drafter's block holds: drafting {drafting.n_max}"
        caches = map(str, cache_findings(self.type_k_draft, self.type_v_draft))
        return (*((clamped,) if asked is not None and asked > drafting.n_max else ()), *caches)

    def limits(self, drafting: Drafting, verify: int | None = None) -> tuple[int, int, float]:
        """Tokens to draft at the most, and the least and least likely drafts to verify.

        ``verify``: rows of the widest pass that may be run.
        """
        n_max, n_min = self.n_max(drafting), checked("spec_draft_n_min", self.spec_draft_n_min)
        if verify is not None:
            n_max = min(n_max, verify - 1)
        check_bounds("spec_draft_p_min", self.spec_draft_p_min, SHARE)
        if self.depth not in DEPTHS:
            raise SessionError("`depth`", value=brief(self.depth), expected=f"one of {', '.join(DEPTHS)}")
        if drafting.kind is None:
            return 0, 0, 0.0
        if n_min > n_max:
            raise SessionError("`spec_draft_n_min`", value=n_min, expected=f"at most the {n_max} that are drafted")
        if self.spec_draft_p_min > 0 and drafting.kind == DSPARK and not drafting.confidence_head:
            raise SessionError(
                "`spec_draft_p_min` needs a confidence head, which this DSpark drafter lacks",
                value=self.spec_draft_p_min,
                remedy="leave it at 0",
            )
        return n_max, n_min, self.spec_draft_p_min

    def rule(self, drafting: Drafting) -> str:
        """By which rule a drafter picks; only DFlash 2's lattice leaves it a choice."""
        if self.draft_rule not in DRAFT_RULES:
            rules = ", ".join(DRAFT_RULES)
            raise SessionError("`draft_rule`", value=brief(self.draft_rule), expected=f"one of {rules}")
        if drafting.kind in (DFLASH2, None):
            return self.draft_rule
        if self.draft_rule == KEYED:
            raise SessionError(
                f"a {drafting.title} drafter's rows are no alternatives to choose among by noise",
                value=KEYED,
                expected="argmax or auto",
            )
        return ARGMAX

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
        """The target's, or another device for a drafter that has tables of its own; its weights may be repacked."""
        if self.device_draft is None or self.device_draft == self.placement.device:
            return replace(self.placement, use_extra_bufts=True)
        if not header.tensors.keys() >= OWN_TABLES:
            raise SessionError(
                f"the drafter `{header.name}` shares the target's embeddings and head, and must lie beside them",
                value=", ".join(self.device_draft),
                remedy="leave out the drafter's device",
            )
        ours = self.placement
        return Placement(ours.n_gpu_layers, self.device_draft, use_mmap=ours.use_mmap)


def _listed(values: str | Sequence[Any] | None) -> tuple[Any, ...] | None:
    if values is None:
        return None
    return (values,) if isinstance(values, str) else tuple(values)
