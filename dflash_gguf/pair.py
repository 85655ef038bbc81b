"""Do a target and a drafter fit each other? Answered from their headers alone.

Comes in: two GGUF headers or paths. Goes out: a `PairReport` that holds every mismatch at once, each with
both values and what to do. Knows nothing of weights, and loads nothing native.
Source of the rules: llama.cpp src/models/dflash.cpp, src/llama-context.cpp (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from dflash_gguf.errors import PairError
from dflash_gguf.gguf_header import GGUFHeader, read_header
from dflash_gguf.padding import padding
from dflash_gguf.schema import ARCHITECTURE, BLOCK_LIMIT, MARKOV_MARK, NO_ROLLBACK, SELECTOR_MARK, TAP_TARGETS, Keys

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

DFLASH: Final = "dflash"
DFLASH2: Final = "dflash2"
DSPARK: Final = "dspark"

FORK_ARCHITECTURES: Final[dict[str, str]] = {
    "dflash-draft": "an early fork of llama.cpp",
    "gemma4-dflash-draft": "a fork of llama.cpp for Gemma 4",
    "dspark": "a fork of llama.cpp, before DSpark was merged",
}
"""Architecture names that forks gave to drafters -> who wrote them. llama.cpp loads only ``dflash``."""

CONVERT_AGAIN: Final = "convert the drafter's checkpoint again with `dflash-gguf convert --target`"
TRAINED_FOR: Final = "use the drafter that was trained for this target"
CORRECT_MASK: Final = "give the mask token that the drafter was trained with"

OWN_HEADS: Final = frozenset({"output.weight", "token_embd.weight"})
"""Tensors that make a drafter's file independent of the target's head."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, with what each file says about it (None: nothing) and the next step."""

    level: Literal["error", "warning"]
    what: str
    target_value: object
    draft_value: object
    remedy: str

    def __str__(self) -> str:
        sides = (("target", self.target_value), ("drafter", self.draft_value))
        values = ", ".join(f"{name} {value}" for name, value in sides if value is not None)
        return f"{self.what}{f' ({values})' if values else ''}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """What a drafter asks of its target; None stands for what its file does not say.

    ``target_layers`` are the layers whose inputs it reads (GGUF numbering: the checkpoint's id + 1);
    ``fc_width`` is the row length of ``fc.weight``. ``padding_may_differ``: its list of tokens need not be
    padded like the target's, because it has a head of its own (in a file), or no tensor with a row for each
    token (in a checkpoint).
    """

    kind: str
    hidden_size: int | None
    target_layers: tuple[int, ...]
    block_size: int | None
    mask_token_id: int | None
    vocab_size: int | None
    fc_width: int | None = None
    padding_may_differ: bool = False


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What a target offers: its architecture, and what a drafter must match.

    ``n_padded`` of the ``vocab_size`` tokens only fill the list up, at its end.
    """

    architecture: str
    hidden_size: int | None
    n_layers: int | None
    vocab_size: int | None
    n_padded: int = 0
    eos_token_ids: tuple[int, ...] = ()
    pad_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PairReport:
    """Everything found about one pair. ``facts`` is None when the drafter's file is none."""

    target: str
    draft: str
    findings: tuple[Finding, ...]
    facts: DrafterFacts | None = None

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that forbid the pair."""
        return tuple(finding for finding in self.findings if finding.level == "error")

    def raise_if_bad(self) -> None:
        """Raise one `PairError` that names every mismatch; do nothing when there is none."""
        texts = [str(finding) for finding in self.errors]
        if len(texts) > 1:
            texts = [f"({number}) {text}" for number, text in enumerate(texts, 1)]
        if texts:
            raise PairError(f"`{self.draft}` does not fit `{self.target}`: {'; '.join(texts)}")


def check(target: str | os.PathLike[str] | GGUFHeader, draft: str | os.PathLike[str] | GGUFHeader) -> PairReport:
    """Compare two GGUF headers; raises `GGUFError` when a file is no sound GGUF."""
    target_header, draft_header = _header(target), _header(draft)
    roles = tuple(_roles(target_header, draft_header))
    if roles:
        return PairReport(target_header.name, draft_header.name, roles)
    facts = drafter_facts(draft_header)
    findings = (*compare(_with_padding(target_header, facts), facts), *_same_tokens(target_header, draft_header))
    return PairReport(target_header.name, draft_header.name, findings, facts)


def compare(target: TargetFacts, draft: DrafterFacts) -> tuple[Finding, ...]:
    """Every mismatch between a target and a drafter, whatever files or folders they come from."""
    return tuple(finding for rule in RULES for finding in rule(target, draft))


def taps_unexposed(architecture: str) -> Finding | None:
    """What is wrong with a target of this architecture (llama.cpp's name), or None."""
    if architecture in TAP_TARGETS:
        return None
    what = "libllama does not expose the layer inputs of this target's architecture"
    remedy = "use a target of a supported architecture: " + ", ".join(sorted(TAP_TARGETS))
    return Finding("error", what, f"`{architecture}`", None, remedy)


def no_rollback(architecture: str) -> Finding | None:
    """What forbids to run such a target with a drafter here, though not to convert the drafter; or None."""
    if architecture not in NO_ROLLBACK:
        return None
    what = "libllama cannot wind back the recurrent state of this target's architecture"
    return Finding("error", what, f"`{architecture}`", None, "run the target alone, with `--no-draft`")


def architecture(header: GGUFHeader) -> str:
    """``general.architecture``, or an empty text when the file has none."""
    return header.string(Keys.ARCHITECTURE, "")


def drafter_kind(tensors: Iterable[str]) -> str:
    """The kind of drafter by the tensors that llama.cpp recognises it by."""
    names = set(tensors)
    if SELECTOR_MARK in names:
        return DFLASH2
    return DSPARK if MARKOV_MARK in names else DFLASH


def drafter_facts(header: GGUFHeader) -> DrafterFacts:
    """Read a ``dflash`` header; raises `GGUFError` on a key of the wrong type."""
    fc = header.tensors.get("fc.weight")
    return DrafterFacts(
        kind=drafter_kind(header.tensors),
        hidden_size=header.integer(Keys.EMBEDDING_LENGTH, None),
        target_layers=tuple(header.integers(Keys.TARGET_LAYERS)) if Keys.TARGET_LAYERS in header.keys else (),
        block_size=header.integer(Keys.BLOCK_SIZE, None),
        mask_token_id=header.integer(Keys.MASK_TOKEN_ID, None),
        vocab_size=_vocab_size(header),
        fc_width=fc.shape[0] if fc else None,
        padding_may_differ=bool(OWN_HEADS & header.tensors.keys()),
    )


def target_facts(header: GGUFHeader) -> TargetFacts:
    """Read a target's header; raises `GGUFError` on a key of the wrong type."""
    name = architecture(header)
    blocks = header.integer(f"{name}.block_count", None)
    predicting = header.integer(f"{name}.nextn_predict_layers", 0)
    return TargetFacts(
        architecture=name,
        hidden_size=header.integer(f"{name}.embedding_length", None),
        n_layers=None if blocks is None else blocks - predicting,
        vocab_size=_vocab_size(header),
        eos_token_ids=_token_ids(header, Keys.EOS_TOKEN_ID, Keys.EOT_TOKEN_ID, Keys.EOM_TOKEN_ID),
        pad_token_ids=_token_ids(header, Keys.PADDING_TOKEN_ID),
    )


def _token_ids(header: GGUFHeader, *keys: str) -> tuple[int, ...]:
    found = (header.integer(key, None) for key in keys)
    return tuple(sorted({number for number in found if number is not None}))


def _with_padding(target: GGUFHeader, draft: DrafterFacts) -> TargetFacts:
    """The target's facts; its padding is counted only where it matters."""
    facts = target_facts(target)
    if facts.vocab_size is None or facts.vocab_size == draft.vocab_size:
        return facts
    return replace(facts, n_padded=padding(target.strings(Keys.TOKENS)))


def _same_tokens(target: GGUFHeader, draft: GGUFHeader) -> Iterator[Finding]:
    """The first id at which the two lists name different tokens."""
    if Keys.TOKENS not in target.keys or Keys.TOKENS not in draft.keys:
        return
    if target.raw(Keys.TOKENS) == draft.raw(Keys.TOKENS):
        return
    texts = zip(target.strings(Keys.TOKENS), draft.strings(Keys.TOKENS), strict=False)
    for number, (ours, theirs) in enumerate(texts):
        if ours != theirs:
            what = f"the tokenizers differ, first at token {number}"
            yield Finding("error", what, ascii(ours)[:80], ascii(theirs)[:80], TRAINED_FOR)
            return


def _header(source: str | os.PathLike[str] | GGUFHeader) -> GGUFHeader:
    return source if isinstance(source, GGUFHeader) else read_header(source)


def _vocab_size(header: GGUFHeader) -> int | None:
    return header.count(Keys.TOKENS) if Keys.TOKENS in header.keys else None


def _roles(target: GGUFHeader, draft: GGUFHeader) -> Iterator[Finding]:
    """Is each file what its place asks for? Nothing else can be compared when it is not."""
    given = architecture(target), architecture(draft)
    drafters = {ARCHITECTURE, *FORK_ARCHITECTURES}
    if given[0] in drafters and given[1] not in drafters:
        yield Finding("error", "the target and the drafter are swapped", *given, "exchange the two files")
        return
    if given[0] in drafters:
        remedy = "give the model that the drafter was trained for"
        yield Finding("error", "the target is itself a drafter", given[0], None, remedy)
    if given[1] in FORK_ARCHITECTURES:
        what = f"the drafter was written by {FORK_ARCHITECTURES[given[1]]} and does not load in llama.cpp"
        yield Finding("error", what, None, f"`{given[1]}`", CONVERT_AGAIN)
    elif given[1] != ARCHITECTURE:
        remedy = "give a GGUF whose `general.architecture` is `dflash`"
        yield Finding("error", "the drafter is not a DFlash file", None, f"`{given[1]}`", remedy)


def _hidden_size(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    sizes = target.hidden_size, draft.hidden_size
    if sizes[0] is None or sizes[0] != sizes[1]:
        yield Finding("error", "hidden sizes differ", sizes[0] or "none", sizes[1] or "none", TRAINED_FOR)


def _fc_width(_target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    if draft.fc_width is None or draft.hidden_size is None or not draft.target_layers:
        return
    expected = len(draft.target_layers) * draft.hidden_size
    if draft.fc_width != expected:
        what = f"`fc.weight` is not {len(draft.target_layers)} taps of {draft.hidden_size} wide"
        yield Finding("error", what, None, draft.fc_width, CONVERT_AGAIN)


def _taps_exposed(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    unexposed = taps_unexposed(target.architecture)
    if unexposed is not None:
        yield unexposed
        return
    lasting = no_rollback(target.architecture)
    if lasting is not None:
        yield lasting
    last = target.n_layers
    if last in draft.target_layers and not TAP_TARGETS[target.architecture]:
        what = f"libllama does not expose the output of the last layer of a `{target.architecture}` target"
        yield Finding("error", what, f"{last} layers", f"tap {last}", "use a drafter without that tap")


def _taps_in_range(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    if not draft.target_layers:
        yield Finding("error", "the drafter names no target layers", None, "none", CONVERT_AGAIN)
    if target.n_layers is None:
        yield Finding("error", "the target does not say how many layers it has", "none", None, TRAINED_FOR)
        return
    outside = [tap for tap in draft.target_layers if not 0 <= tap <= target.n_layers]
    if outside:
        taps = f"{'tap' if len(outside) == 1 else 'taps'} {', '.join(map(str, outside))}"
        what = "the drafter reads layers that the target does not have"
        yield Finding("error", what, f"{target.n_layers} layers", taps, TRAINED_FOR)


def _vocabulary(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    sizes = target.vocab_size, draft.vocab_size
    if sizes[0] is None:
        remedy = "use a target GGUF that carries its vocabulary"
        yield Finding("error", "the target holds no tokens", "none", sizes[1], remedy)
    elif sizes[1] is None:
        yield Finding("error", "the drafter holds no tokens", sizes[0], "none", CONVERT_AGAIN)
    elif sizes[0] != sizes[1]:
        if draft.padding_may_differ and 0 <= sizes[0] - sizes[1] <= target.n_padded:
            what, remedy = "vocabularies differ in length, by padding alone", "nothing needs to be done"
            yield Finding("warning", what, *sizes, remedy)
            return
        remedy = f"{TRAINED_FOR}, and convert it with `--target` naming this very file"
        yield Finding("error", "vocabularies differ in length", *sizes, remedy)


def _mask_token(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    mask = draft.mask_token_id
    if mask is None:
        yield Finding("error", "the drafter has no mask token id", None, "none", CONVERT_AGAIN)
    elif mask < 0 or (target.vocab_size is not None and mask >= target.vocab_size):
        what = "the drafter's mask token id is not in the target's vocabulary"
        yield Finding("error", what, f"{target.vocab_size} tokens", mask, TRAINED_FOR)
    for role, ids in (("end", target.eos_token_ids), ("padding", target.pad_token_ids)):
        if mask in ids:
            # The target's text holds that token too, and the drafter takes it for a gap to fill.
            what = f"the drafter's mask token is the target's {role} token, so that acceptance quietly erodes"
            yield Finding("error", what, f"token {mask}", f"token {mask}", CORRECT_MASK)


def _block_size(_target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    if draft.block_size is None:
        level: Literal["error", "warning"] = "error" if draft.kind == DFLASH2 else "warning"
        what = "the drafter has no block size" + (", llama.cpp assumes 16" if level == "warning" else "")
        yield Finding(level, what, None, "none", CONVERT_AGAIN)
    elif not 2 <= draft.block_size <= BLOCK_LIMIT:
        what = f"the drafter's block size is not within 2 to {BLOCK_LIMIT}"
        yield Finding("error", what, None, draft.block_size, CONVERT_AGAIN)


RULES: Final[tuple[Callable[[TargetFacts, DrafterFacts], Iterator[Finding]], ...]] = (
    _hidden_size,
    _fc_width,
    _taps_exposed,
    _taps_in_range,
    _vocabulary,
    _mask_token,
    _block_size,
)
