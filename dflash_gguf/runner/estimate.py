"""How much memory a session will take, and whether each device has it, before anything is loaded.

Comes in: what `Session` takes. Goes out: bytes, by model, purpose and device. libllama counts most of it in a dry run;
what it and the native core keep outside of that is counted here.
Source: llama.cpp src/llama-context.cpp, ``output_reserve`` (0.5.0); cpp/context.cpp.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from dflash_gguf.errors import SessionError
from dflash_gguf.facts import DFLASH2, count_of, target_facts
from dflash_gguf.runner import machine
from dflash_gguf.runner.assembly import caches, check_settings, draft_sizes, opened, target_sizes
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.dry_run import HOST, Capture, Measured, measure
from dflash_gguf.runner.exact import adjusted
from dflash_gguf.runner.head import head_copy
from dflash_gguf.runner.memory import cache_bytes
from dflash_gguf.runner.models import Model
from dflash_gguf.runner.settings import SessionOptions, Settings
from dflash_gguf.schema import Keys
from dflash_gguf.shards import shards_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.runner.models import ModelContext

_FLOAT: Final = 4
_GRAPHICS: Final = frozenset({"GPU", "IGPU"})

Verdict = Literal["fits", "slow", "too much"]


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes of one model on one device.

    ``kv`` are keys and values, of all tokens or of a window; ``states`` the recurrent states, as many as a session
    keeps; ``compute`` what a pass needs; ``outputs`` the rows that it leaves. ``mapped`` of the weights stay in their
    file, from which the system reads them again when it has dropped them.
    """

    device: str
    weights: int = 0
    mapped: int = 0
    kv: int = 0
    states: int = 0
    compute: int = 0
    outputs: int = 0

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self.weights + self.kv + self.states + self.compute + self.outputs


@dataclass(frozen=True, slots=True)
class Need:
    """What a session takes of a device, and what that has. ``mapped`` is the part of ``needed`` that may be dropped."""

    device: str
    description: str
    needed: int
    mapped: int
    free: int
    total: int

    @property
    def verdict(self) -> Verdict:
        """``slow``: only as long as weights are dropped and read from their file again and again."""
        if self.needed <= self.free:
            return "fits"
        return "slow" if self.needed - self.mapped <= self.free else "too much"


@dataclass(frozen=True, slots=True)
class Estimate:
    """``n_ctx`` and ``n_max`` (tokens drafted a round) are what a session would have; sizes are in bytes."""

    n_ctx: int
    n_max: int
    target: tuple[Share, ...]
    draft: tuple[Share, ...]
    needs: tuple[Need, ...]

    @property
    def fits(self) -> bool:
        """Whether every device has what is needed of it."""
        return all(need.verdict == "fits" for need in self.needs)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        devices = [{**asdict(need), "verdict": need.verdict} for need in self.needs]
        models = {
            name: [{**asdict(share), "total": share.total} for share in shares]
            for name, shares in (("target", self.target), ("draft", self.draft))
        }
        return {"n_ctx": self.n_ctx, "n_max": self.n_max, **models, "devices": devices, "fits": self.fits}


def estimate(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str] | None = None,
    **options: Unpack[SessionOptions],
) -> Estimate:
    """What ``Session(target, draft, **options)`` would take.

    Reads headers alone, of files of any size. Raises what `Session` raises of files and settings that are wrong.
    """
    plan = _Plan.of(target, draft, options)
    with ExitStack() as stack:
        ours, context = plan.target_shares(stack)
        theirs = plan.draft_shares(stack, context)
        return Estimate(
            n_ctx=context.n_ctx,
            n_max=plan.settings.limits(plan.drafting)[0],
            target=ours,
            draft=theirs,
            needs=_needs((*ours, *theirs)),
        )


def may_not_fit(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str] | None = None,
    **options: Unpack[SessionOptions],
) -> bool:
    """Whether files and caches alone come near what a device has: else an `estimate` is not worth its time."""
    plan = _Plan.of(target, draft, options)
    headers = [plan.target, *([] if plan.draft is None else [plan.draft])]
    files = sum(part.size for header in headers for _, part in shards_of(Path(header.name), header))
    needed = files + sum(map(cache_bytes, caches(plan.drafting, plan.settings, plan.target, plan.draft)))
    return needed > min(device.free for device in _devices()) // 2


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a session is opened with, found to be right."""

    settings: Settings
    target: GGUFHeader
    draft: GGUFHeader | None
    drafting: Drafting

    @classmethod
    def of(cls, target: str | os.PathLike[str], draft: str | os.PathLike[str] | None, options: SessionOptions) -> _Plan:
        from dflash_gguf.runner.session import read_pair

        settings = Settings.of(options)
        headers = read_pair(target, draft)
        drafting = Drafting.read(*headers)
        check_settings(drafting, settings, headers[1])
        return cls(adjusted(settings) if settings.exact else settings, *headers, drafting)

    def target_shares(self, stack: ExitStack) -> tuple[tuple[Share, ...], ModelContext]:
        """The target's, and its context for the drafter's."""
        model = opened(stack, Model(Path(self.target.name), self.settings.placement, dry=True))
        sizes, layers = target_sizes(self.drafting, self.settings), self.drafting.layers
        measured = measure(stack, model, sizes, Capture(layers=layers))
        rows = len(layers) * (target_facts(self.target).hidden_size or 0) * sizes.n_ubatch
        outputs = (_vocabulary(self.target) * sizes.n_outputs + rows) * _FLOAT
        return self._shares(measured, outputs), measured.context

    def draft_shares(self, stack: ExitStack, beside: ModelContext) -> tuple[Share, ...]:
        """The drafter's, with the feature rows that wait for it."""
        if self.draft is None:
            return ()
        placement = self.settings.draft_placement(self.draft)
        model = opened(stack, Model(Path(self.draft.name), placement, dry=True))
        sizes = draft_sizes(self.drafting, self.settings, beside.n_ctx)
        lattice = self.drafting.kind == DFLASH2
        capture = Capture(lattice=lattice or self.drafting.confidence_head)
        measured = measure(stack, model, sizes, capture, beside)
        copy = head_copy(self.target, self.draft, self.settings)
        hidden = self.draft.integer(Keys.EMBEDDING_LENGTH)
        floats = _vocabulary(self.draft) * (1 if lattice else sizes.n_outputs)
        floats += hidden * sizes.n_ubatch * (capture.lattice + len(self.drafting.layers))
        return self._shares(measured, floats * _FLOAT, copied=0 if copy is None else copy.nbytes)

    def _shares(self, measured: Measured, outputs: int, copied: int = 0) -> tuple[Share, ...]:
        """One for each device, the host's last, with ``copied`` bytes of weights that no file holds.

        States that the core keeps to go back to lie on the host.
        """
        mapped = self.settings.placement.use_mmap is not False
        copies = measured.n_copies * measured.state_bytes
        found = {HOST: Share(HOST, copied, states=copies, outputs=outputs)}
        for (place, weights, context, compute), a_state in zip(measured.rows, measured.a_state, strict=True):
            share = Share(
                device=place or HOST,
                weights=weights,
                mapped=weights if mapped and not place else 0,
                kv=context - (1 + measured.n_back) * a_state,
                states=measured.n_states * a_state,
                compute=compute,
            )
            found[share.device] = _sum(share.device, [found.get(share.device, Share(share.device)), share])
        host = found.pop(HOST)
        return (*found.values(), host)


def _vocabulary(header: GGUFHeader) -> int:
    return count_of(header, Keys.TOKENS) or 0


def _sum(device: str, shares: Sequence[Share]) -> Share:
    values = [asdict(share) for share in shares]
    return Share(device, **{name: sum(value[name] for value in values) for name in values[0] if name != "device"})


def _devices() -> list[Need]:
    """The machine's memory and each GPU's, with nothing needed of them yet."""
    from dflash_gguf.probes.native import devices

    graphics = [device for device in devices() if device["type"] in _GRAPHICS]
    ours = Need(HOST, "this machine's memory", 0, 0, machine.free(), machine.total())
    return [Need(each["name"], each["description"], 0, 0, each["free"], each["total"]) for each in graphics] + [ours]


def _needs(shares: Sequence[Share]) -> tuple[Need, ...]:
    found = []
    for device in _devices():
        sums = _sum(device.device, [Share(device.device), *(s for s in shares if s.device == device.device)])
        if sums.total:
            found.append(replace(device, needed=sums.total, mapped=sums.mapped))
    return tuple(found)


def check_fit(found: Estimate) -> tuple[str, ...]:
    """Warnings about devices on which it will be slow; raises SessionError for those that have too little."""
    short = [need for need in found.needs if need.verdict == "too much"]
    if short:
        raise SessionError(
            "the session will not fit: " + "; ".join(map(sentence, short)),
            remedy="ask for a smaller context (`-c`), cheaper caches (`-ctk q8_0 -ctv q8_0`) or fewer layers on a GPU "
            "(`-ngl`); `dflash-gguf estimate` shows what takes how much, `--no-fit-check` loads it even so",
        )
    return tuple(sentence(need) for need in found.needs if need.verdict == "slow")


def sentence(need: Need) -> str:
    """What is needed of a device, what it has, and what comes of it."""
    verdicts = {
        "fits": "it fits",
        "slow": f"it runs only by reading {need.mapped / 1e9:.1f} GB of weights from their file again and again",
        "too much": "it does not fit",
    }
    has = f"{need.free / 1e9:.1f} of {need.total / 1e9:.1f} GB are free"
    return f"{need.device} needs {need.needed / 1e9:.1f} GB and {has}: {verdicts[need.verdict]}"
