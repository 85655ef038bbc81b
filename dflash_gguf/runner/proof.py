"""Proof that a pair drafts, and a search for the usual faults when nothing is accepted.

Comes in: two files that passed the pair check. Goes out: a frozen `Proof`. Each likely cause is tried on the loaded
pair: another mask token, the taps one layer off, the target's rotary base, the other causality. What is accepted then,
beyond chance, points at the fault.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import SessionError, TemplateError
from dflash_gguf.facts import architecture, target_facts
from dflash_gguf.gguf_header import GGUFHeader, read_header
from dflash_gguf.runner import chat
from dflash_gguf.runner.assembly import check_settings, open_loop, opened, target_sizes
from dflash_gguf.runner.bounds import FIXED
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.generation import Generation
from dflash_gguf.runner.models import Model, ModelContext
from dflash_gguf.runner.prompts import PROMPTS
from dflash_gguf.runner.settings import Settings
from dflash_gguf.runner.vocabulary import Vocabulary
from dflash_gguf.runtimes import QUANTIZED_CACHES
from dflash_gguf.schema import TAP_TARGETS, Keys

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray


N_CTX: Final = 1024
N_PREDICT: Final = 24
"""Tokens a prompt."""
TRIED: Final = (PROMPTS[0], PROMPTS[5], PROMPTS[8])
"""One prompt of each kind."""
ROPE_BASE: Final = 10000.0
"""libllama's, where a file states none."""
MASKS_TRIED: Final = 3
CHANCE: Final = 1000
"""A cause is named when chance alone would give that much more rarely than once in so many trials: of the eight trials
that there are at the most, less than once in a hundred files."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a trial gave: drafter passes, tokens proposed and accepted, target passes."""

    draft_calls: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0
    verify_calls: int = 0

    def __str__(self) -> str:
        return f"{self.draft_n_accepted} of {self.draft_n} accepted"


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause, what was measured of it, and, when that points at it, the next step."""

    name: str
    measured: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """``causes`` are empty when something was accepted."""

    drafter: str
    draft_calls: int
    draft_n: int
    draft_n_accepted: int
    acceptance_length: float
    causes: tuple[Cause, ...]

    @property
    def ok(self) -> bool:
        """Whether any drafted token was accepted."""
        return self.draft_n_accepted > 0

    def as_dict(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return asdict(self) | {"ok": self.ok}


def prove(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    *,
    n_threads: int | None = None,
    type_k_draft: str = "f16",
    type_v_draft: str = "f16",
) -> Proof:
    """Drafts for a few dozen tokens of each kind of text; looks for the cause when nothing is accepted.

    Raises PairError when the pair does not fit, SessionError when libllama refuses.
    """
    headers = read_header(target), read_header(draft)
    drafting = Drafting.read(*headers)
    settings = Settings(
        n_ctx=N_CTX, n_threads=n_threads, type_k_draft=type_k_draft, type_v_draft=type_v_draft, depth=FIXED
    )
    check_settings(drafting, settings, headers[1])
    with ExitStack() as stack:
        models = opened(stack, Model(Path(target))), opened(stack, Model(Path(draft)))
        trial = _Trial(headers, models, drafting, settings, _prompts(headers[0], Vocabulary(models[0])))
        counts, causes = _tried(trial)
    return Proof(
        drafter=drafting.title or "",
        draft_calls=counts.draft_calls,
        draft_n=counts.draft_n,
        draft_n_accepted=counts.draft_n_accepted,
        acceptance_length=1 + counts.draft_n_accepted / max(1, counts.verify_calls),
        causes=causes,
    )


def _tried(trial: _Trial) -> tuple[Counts, tuple[Cause, ...]]:
    try:
        counts = trial.run()
        trial = replace(trial, before=counts)
        return counts, () if counts.draft_n_accepted else tuple(probe(trial) for probe in PROBES)
    except SessionError as error:
        return Counts(), (_damage(trial, error),)


def _damage(trial: _Trial, error: SessionError) -> Cause:
    """A pass left values that are no numbers: whose? Without a drafter the target shows whether they are its own."""
    target = trial.headers[0].name
    try:
        trial.alone()
    except SessionError as own:
        remedy = "download it again, or use another quantization of it"
        return Cause("non-finite values", f"the target `{target}` alone: {own}", remedy)
    measured = f"the target alone decodes; with the drafter `{trial.headers[1].name}`: {error}"
    return Cause("non-finite values", measured, "convert it to BF16 or F32, not F16, or download it again")


@dataclass(frozen=True, slots=True)
class _Trial:
    """The loaded pair, and what every trial of it shares; ``before``: what the pair gave as it is."""

    headers: tuple[GGUFHeader, GGUFHeader]
    models: tuple[Model, Model]
    drafting: Drafting
    settings: Settings
    prompts: tuple[tuple[int, ...], ...]
    before: Counts = Counts()

    def run(
        self,
        rope_freq_base: float = 0.0,
        overrides: Mapping[str, int] | None = None,
        settings: Settings | None = None,
        **changes: Any,
    ) -> Counts:
        """Drafts on all prompts; ``changes`` are fields of `Drafting`, ``overrides`` keys of the drafter's file."""
        drafting = replace(self.drafting, **changes)
        target, draft = self.models
        with ExitStack() as stack:
            if overrides:
                draft = opened(stack, Model(draft.path, overrides=overrides))
            loop = open_loop(stack, target, draft, drafting, settings or self.settings, rope_freq_base).loop
            is_end = Vocabulary(target).is_end
            total = Counts()
            for ids in self.prompts:
                generation = Generation(loop, is_end, N_PREDICT)
                for _ in generation.rounds(ids):
                    pass
                stats = generation.summary()
                total = Counts(
                    total.draft_calls + stats.draft_calls,
                    total.draft_n + stats.draft_n,
                    total.draft_n_accepted + stats.draft_n_accepted,
                    total.verify_calls + stats.verify_calls,
                )
        return total

    def alone(self) -> None:
        """Lets the target decode by itself; raises SessionError when its logits are no numbers."""
        with ExitStack() as stack:
            loop = open_loop(stack, self.models[0], None, Drafting(), self.settings).loop
            for _ in Generation(loop, Vocabulary(self.models[0]).is_end, N_PREDICT).rounds(self.prompts[0]):
                pass

    def features(self) -> NDArray[np.float32]:
        """The layer inputs that the first prompt leaves for the drafter: float32 [tokens, taps * n_embd]."""
        from dflash_gguf import _core

        sizes = target_sizes(self.drafting, self.settings)
        ids = self.prompts[0][: sizes.n_ubatch]
        with ExitStack() as stack:
            context = opened(stack, ModelContext(self.models[0], sizes))
            core = _core.LlamaTarget(context.address, sizes.n_ctx, self.drafting.layers, sizes.n_outputs)
            core.decode(ids, 0, 1)
            return core.features(0, len(ids))


def _prompts(header: GGUFHeader, vocabulary: Vocabulary) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(_ids(header, vocabulary, prompt.text)) for prompt in TRIED)


def _ids(header: GGUFHeader, vocabulary: Vocabulary, text: str) -> Sequence[int]:
    """In the target's chat template where it has one that works."""
    try:
        rendered = chat.render(header, vocabulary, [{"role": "user", "content": text}])
    except TemplateError:
        return vocabulary.tokenize(text, add_special=True, parse_special=True)
    return chat.tokenize_prompt(vocabulary, rendered)


def points(before: Counts, counts: Counts) -> bool:
    """Whether ``counts`` are beyond chance, where ``before`` accepted none: Fisher's exact test, one-sided.

    Were both alike, all accepted ones of both would be among those of ``counts`` with this chance. Of as many drafted
    tokens before and now it takes ten; of a block's seven, all. A token is often accepted by chance where a text
    repeats itself.
    """
    n = counts.draft_n_accepted
    return CHANCE * comb(counts.draft_n, n) < comb(before.draft_n + counts.draft_n, n)


def _remedy(trial: _Trial, counts: Counts, flag: str) -> str:
    return f"mend the file with `dflash-gguf rekey` and `{flag}`" if points(trial.before, counts) else ""


def _mask(trial: _Trial) -> Cause:
    header = trial.headers[1]
    texts = header.strings(Keys.TOKENS)
    mask = header.integer(Keys.MASK_TOKEN_ID)
    others = [number for number, text in enumerate(texts) if "mask" in text.lower() and number != mask]
    measured, remedy = f"token {mask}, {texts[mask]!a}", ""
    for other in others[:MASKS_TRIED]:
        counts = trial.run(overrides={Keys.MASK_TOKEN_ID: other})
        measured += f"; with token {other}, {texts[other]!a}: {counts}"
        remedy = _remedy(trial, counts, f"--mask-token-id {other}") or remedy
    if not others:
        measured += "; the vocabulary has no other that calls itself a mask"
    return Cause("mask token", measured, remedy)


def _taps(trial: _Trial) -> Cause:
    layers, target = trial.drafting.layers, target_facts(trial.headers[0])
    last = (target.n_layers or 0) - (0 if TAP_TARGETS[target.architecture] else 1)
    measured, remedy = f"inputs of layers {_listed(layers)}", ""
    for step in (-1, 1):
        shifted = tuple(layer + step for layer in layers)
        if min(shifted) < 0 or max(shifted) > last:
            continue
        counts = trial.run(layers=shifted)
        measured += f"; of {_listed(shifted)}: {counts}"
        ids = _listed([layer - 1 for layer in shifted])
        remedy = _remedy(trial, counts, f"--target-layers {ids}") or remedy
    return Cause("taps", measured, remedy)


def _rope(trial: _Trial) -> Cause:
    ours = trial.headers[1].number(Keys.ROPE_FREQ_BASE, ROPE_BASE)
    theirs = trial.headers[0].number(f"{architecture(trial.headers[0])}.rope.freq_base", ROPE_BASE)
    if ours == theirs:
        return Cause("rope", f"base {ours:g}, the target's too")
    counts = trial.run(rope_freq_base=theirs)
    remedy = _remedy(trial, counts, f"--rope-theta {theirs:g}")
    return Cause("rope", f"base {ours:g}; with the target's, {theirs:g}: {counts}", remedy)


def _causality(trial: _Trial) -> Cause:
    causal = trial.headers[1].boolean(Keys.CAUSAL, default=False)
    counts = trial.run(causal=not causal)
    names = {True: "causal", False: "not causal"}
    flag = "--no-causal" if causal else "--causal"
    remedy = _remedy(trial, counts, flag)
    return Cause("causality", f"{names[causal]}; {names[not causal]}: {counts}", remedy)


def _cache(trial: _Trial) -> Cause:
    types = trial.settings.type_k_draft, trial.settings.type_v_draft
    if not set(types) & set(QUANTIZED_CACHES):
        return Cause("quantized cache", f"no: the drafter's cache is {' and '.join(dict.fromkeys(types))}")
    counts = trial.run(settings=replace(trial.settings, type_k_draft="f16", type_v_draft="f16"))
    remedy = "leave the drafter's cache at f16" if points(trial.before, counts) else ""
    return Cause("quantized cache", f"{' and '.join(dict.fromkeys(types))}; with f16: {counts}", remedy)


def _finite(trial: _Trial) -> Cause:
    import numpy as np

    features = trial.features()
    finite = np.isfinite(features)
    wrong = int(features.size - np.count_nonzero(finite))
    largest = float(np.abs(features[finite]).max(initial=0.0))
    measured = f"{wrong} of {features.size} values are not finite, the largest is {largest:.4g}"
    return Cause("features", measured, "use the target in BF16, or in another quantization" if wrong else "")


PROBES: Final[tuple[Callable[[_Trial], Cause], ...]] = (_mask, _taps, _rope, _causality, _cache, _finite)
"""The likeliest cause first."""


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
