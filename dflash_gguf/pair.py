"""Do a target and a drafter fit each other? Answered from their headers, and the tables of row numbers that a few have.

Comes in: two GGUF headers or paths. Goes out: a `PairReport` that holds every mismatch at once, each with
both values and what to do. Reads no weights, and loads nothing native.
Source of the rules: llama.cpp src/models/dflash.cpp, src/llama-context.cpp (0.5.0).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.drafter import CONVERT_AGAIN, REKEY, drafter_findings
from dflash_gguf.contract.target import DOWNLOAD_AGAIN, target_findings
from dflash_gguf.errors import GGUFError, PairError
from dflash_gguf.facts import (
    EMBEDDINGS,
    HEAD,
    OWN_HEADS,
    DrafterFacts,
    TargetFacts,
    architecture,
    count_of,
    drafter_facts,
    drafter_kind,
    target_facts,
    tokens_of,
)
from dflash_gguf.file_text import listed, quoted
from dflash_gguf.findings import Finding, PairReport, errors_of, sentences
from dflash_gguf.gguf_header import GGUFHeader, read_header
from dflash_gguf.padding import padding
from dflash_gguf.rekeying.answers import NOTHING
from dflash_gguf.rekeying.forks import FORKS, Fork, is_drafter
from dflash_gguf.rekeying.keys import Names, upstream_keys
from dflash_gguf.rekeying.tensors import moved_tensors
from dflash_gguf.runtimes import cache_findings, runtime_findings
from dflash_gguf.schema import ARCHITECTURE, TAP_TARGETS, Keys

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

TRAINED_FOR: Final = "use the drafter that was trained for this target"
CORRECT_MASK: Final = (
    "give the mask token that the drafter was trained with, by `--mask-token-id` of `dflash-gguf rekey` or `convert`"
)


def check(
    target: str | os.PathLike[str] | GGUFHeader,
    draft: str | os.PathLike[str] | GGUFHeader,
    *,
    runtime: int | None = None,
    cache_types: tuple[str, ...] = (),
) -> PairReport:
    """Check two GGUF headers against libllama's demands and against each other.

    ``runtime`` is the build of llama.cpp that is to run the pair, where that is another than the installed libllama;
    ``cache_types`` are those of the drafter's cache. Raises `GGUFError` when a file is no sound GGUF.
    """
    target_header, draft_header = _headers(target, draft)
    roles = tuple(_roles(target_header, draft_header))
    if roles:
        more = _of_fork(target_header, draft_header)
        return PairReport(target_header.name, draft_header.name, (*roles, *more))
    facts = drafter_facts(draft_header)
    findings = (
        *target_findings(target_header),
        *drafter_findings(draft_header),
        *compare(_with_padding(target_header, facts), facts),
        *(finding for rule in FILE_RULES for finding in rule(target_header, draft_header)),
        *(runtime_findings(draft_header, runtime) if runtime is not None else ()),
        *cache_findings(*cache_types),
    )
    return PairReport(target_header.name, draft_header.name, findings, facts)


def check_alone(target: GGUFHeader) -> None:
    """Raise one `PairError` that names everything for which libllama would abort on this target."""
    name = architecture(target)
    if is_drafter(name):
        remedy = "give the model that it was trained for with `-m`, and this file with `-md`"
        raise PairError(f"`{target.name}` cannot be run: it is itself a drafter", value=name, remedy=remedy)
    if not name:
        raise PairError(f"`{target.name}` cannot be run: {_unnamed(target)}", remedy=DOWNLOAD_AGAIN)
    unexposed = taps_unexposed(name)
    errors = errors_of((*target_findings(target), *([unexposed] if unexposed else [])))
    if errors:
        raise PairError(f"`{target.name}` cannot be run: {sentences(errors)}")


def compare(target: TargetFacts, draft: DrafterFacts) -> tuple[Finding, ...]:
    """Every mismatch between a target and a drafter, whatever files or folders they come from."""
    return tuple(finding for rule in RULES for finding in rule(target, draft))


def compared(target: TargetFacts, draft: DrafterFacts, target_name: str, draft_name: str) -> tuple[str, ...]:
    """Notes on what does not forbid to make the drafter's file; raises `PairError` naming all that does."""
    findings = compare(target, draft)
    # A file for such a target is right, and waits for a program that runs the pair.
    unexposed = taps_unexposed(target.architecture)
    forbidding = tuple(finding for finding in findings if finding != unexposed)
    PairReport(target_name, draft_name, forbidding, draft).raise_if_bad()
    return tuple(map(str, findings))


def taps_unexposed(architecture: str) -> Finding | None:
    """What is wrong with a target of this architecture (llama.cpp's name), or None."""
    if architecture in TAP_TARGETS:
        return None
    what = "libllama does not expose the layer inputs of this target's architecture"
    remedy = "use a target of a supported architecture: " + ", ".join(sorted(TAP_TARGETS))
    return Finding("error", what, f"`{architecture}`", None, remedy)


def _with_padding(target: GGUFHeader, draft: DrafterFacts) -> TargetFacts:
    """The target's facts; its padding is counted only where it matters."""
    facts = target_facts(target)
    if facts.vocab_size is None or facts.vocab_size == draft.vocab_size:
        return facts
    texts = tokens_of(target)
    return facts if texts is None else replace(facts, n_padded=padding(texts))


def _same_tokens(target: GGUFHeader, draft: GGUFHeader) -> Iterator[Finding]:
    """The first id at which the two lists name different tokens."""
    if Keys.TOKENS not in target.keys or Keys.TOKENS not in draft.keys:
        return
    if target.raw(Keys.TOKENS) == draft.raw(Keys.TOKENS):
        return
    texts = tokens_of(target), tokens_of(draft)
    for number, (ours, theirs) in enumerate(zip(texts[0] or (), texts[1] or (), strict=False)):
        if ours != theirs:
            what = f"the tokenizers differ, first at token {number}"
            yield Finding("error", what, quoted(ours), quoted(theirs), TRAINED_FOR)
            return


def _head(target: GGUFHeader, draft: GGUFHeader) -> Iterator[Finding]:
    """A file with a table of embeddings and no head: libllama takes the table for the head."""
    if EMBEDDINGS in draft.tensors and HEAD not in draft.tensors and HEAD in target.tensors:
        what = "the drafter has embeddings but no head: libllama takes them for it, but the target's head is another"
        yield Finding("error", what, f"`{HEAD}`", f"no `{HEAD}`", CONVERT_AGAIN)


def _sections(target: GGUFHeader, draft: GGUFHeader) -> Iterator[Finding]:
    theirs = f"{architecture(target)}.rope.dimension_sections"
    if theirs in target.keys and Keys.ROPE_DIMENSION_SECTIONS not in draft.keys:
        what = "the target's positions come in sections (M-RoPE), which the drafter's file does not say"
        yield Finding("warning", what, f"`{theirs}`", f"no `{Keys.ROPE_DIMENSION_SECTIONS}`", f"{REKEY} and `--target`")


def _headers(*sources: str | os.PathLike[str] | GGUFHeader) -> list[GGUFHeader]:
    """The headers of all; raises one `GGUFError` that tells of every file that is none."""
    headers, errors = [], []
    for source in sources:
        try:
            headers.append(source if isinstance(source, GGUFHeader) else read_header(source))
        except GGUFError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise GGUFError("; ".join(dict.fromkeys(map(str, errors))))
    return headers


def _of_fork(target: GGUFHeader, draft: GGUFHeader) -> Iterator[Finding]:
    """What can be told of a pair whose drafter a fork wrote; nothing of any other."""
    fork = FORKS.get(architecture(draft))
    if fork is None or not architecture(target) or is_drafter(architecture(target)):
        return
    yield from target_findings(target)
    try:
        names = upstream_keys(draft, fork, NOTHING)
        facts = _facts_of_fork(draft, fork, names)
    except GGUFError:
        return  # re-keying tells why
    yield from compare(_with_padding(target, facts), facts)
    yield from _same_tokens(target, draft)


def _facts_of_fork(draft: GGUFHeader, fork: Fork, names: Names) -> DrafterFacts:
    """What the file says under the fork's own names."""

    def said(key: str) -> object:
        return names.keys[key].value if names.sources.get(key, "").startswith(f"{fork.architecture}.") else None

    def number(key: str) -> int | None:
        value = said(key)
        return value if type(value) is int else None

    taps = said(Keys.TARGET_LAYERS)
    return DrafterFacts(
        kind=drafter_kind(tensor.name for tensor in moved_tensors(draft)),
        hidden_size=number(Keys.EMBEDDING_LENGTH),
        target_layers=taps if isinstance(taps, tuple) else (),
        block_size=number(Keys.BLOCK_SIZE),
        mask_token_id=number(Keys.MASK_TOKEN_ID),
        vocab_size=count_of(draft, Keys.TOKENS),
        padding_may_differ=bool(OWN_HEADS & draft.tensors.keys()),
    )


def _roles(target: GGUFHeader, draft: GGUFHeader) -> Iterator[Finding]:
    """Is each file what its place asks for? Nothing else can be compared when it is not."""
    given = architecture(target), architecture(draft)
    if not given[0]:
        yield Finding("error", f"the target's {_unnamed(target)}", "none", None, DOWNLOAD_AGAIN)
    if not given[1]:
        yield Finding("error", f"the drafter's {_unnamed(draft)}", None, "none", CONVERT_AGAIN)
    if "" in given:
        return
    drafters = {name for name in given if is_drafter(name)}
    if given[0] in drafters and given[1] not in drafters:
        yield Finding("error", "the target and the drafter are swapped", *given, "exchange the two files")
        return
    if given[0] in drafters:
        remedy = "give the model that the drafter was trained for"
        yield Finding("error", "the target is itself a drafter", given[0], None, remedy)
    if given[1] in FORKS:
        what = f"the drafter was written by {FORKS[given[1]].writer} and does not load in llama.cpp"
        yield Finding("error", what, None, f"`{given[1]}`", REKEY)
    elif given[1] in drafters - {ARCHITECTURE}:
        what = "the drafter was written by a fork of llama.cpp and does not load in llama.cpp"
        yield Finding("error", what, None, f"`{ascii(given[1])[1:-1]}`", CONVERT_AGAIN)
    elif given[1] != ARCHITECTURE:
        remedy = "give a GGUF whose `general.architecture` is `dflash`"
        yield Finding("error", "the drafter is not a DFlash file", None, f"`{given[1]}`", remedy)


def _unnamed(header: GGUFHeader) -> str:
    return f"`{Keys.ARCHITECTURE}` is {'no name of one' if Keys.ARCHITECTURE in header.keys else 'missing'}"


def _hidden_size(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    sizes = target.hidden_size, draft.hidden_size
    if None not in sizes and sizes[0] != sizes[1]:
        yield Finding("error", "hidden sizes differ", *sizes, TRAINED_FOR)


def _taps_exposed(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    unexposed = taps_unexposed(target.architecture)
    if unexposed is not None:
        yield unexposed
        return
    last = target.n_layers
    if last in draft.target_layers and not TAP_TARGETS[target.architecture]:
        what = f"libllama does not expose the output of the last layer of a `{target.architecture}` target"
        yield Finding("error", what, f"{last} layers", f"tap {last}", "use a drafter without that tap")


def _taps_in_range(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    if target.n_layers is None:
        return
    outside = [tap for tap in draft.target_layers if tap > target.n_layers]
    if outside:
        taps = f"{'tap' if len(outside) == 1 else 'taps'} {listed(outside)}"
        what = "the drafter reads layers that the target does not have"
        yield Finding("error", what, f"{target.n_layers} layers", taps, TRAINED_FOR)


def _vocabulary(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    sizes = target.vocab_size, draft.vocab_size
    if sizes[0] is None or sizes[1] is None or sizes[0] == sizes[1]:
        return
    if draft.padding_may_differ and 0 <= sizes[0] - sizes[1] <= target.n_padded:
        what, remedy = "vocabularies differ in length, by padding alone", "nothing needs to be done"
        yield Finding("warning", what, *sizes, remedy)
        return
    remedy = f"{TRAINED_FOR}, and convert it with `--target` naming this very file"
    yield Finding("error", "vocabularies differ in length", *sizes, remedy)


def _mask_token(target: TargetFacts, draft: DrafterFacts) -> Iterator[Finding]:
    mask = draft.mask_token_id
    if mask is None:
        return
    if target.vocab_size is not None and target.vocab_size <= mask < (draft.vocab_size or 0):
        what = "the drafter's mask token id is not in the target's vocabulary"
        yield Finding("error", what, f"{target.vocab_size} tokens", mask, TRAINED_FOR)
    for role, ids in (("end", target.eos_token_ids), ("padding", target.pad_token_ids)):
        if mask in ids:
            # The target's text holds that token too, and the drafter takes it for a gap to fill.
            what = f"the drafter's mask token is the target's {role} token, so that acceptance quietly erodes"
            yield Finding("error", what, f"token {mask}", f"token {mask}", CORRECT_MASK)


RULES: Final[tuple[Callable[[TargetFacts, DrafterFacts], Iterator[Finding]], ...]] = (
    _hidden_size,
    _taps_exposed,
    _taps_in_range,
    _vocabulary,
    _mask_token,
)
"""Each compares one matter; what either file says wrongly by itself, or not at all, is the contracts' to tell."""

FILE_RULES: Final[tuple[Callable[[GGUFHeader, GGUFHeader], Iterator[Finding]], ...]] = (_same_tokens, _head, _sections)
"""Each compares one matter that only files state."""
