"""A fork's keys under upstream's names, in the file's order, its taps counted as llama.cpp counts them.

Comes in: a header, and the fork that wrote it (None: its architecture is upstream's). Goes out: `Names`.
Adds nothing that the file does not say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.drafter import CONVERT_AGAIN
from dflash_gguf.contract.vocabulary import NO_MODELS
from dflash_gguf.convert.encode import KeyValue, copied, scalar
from dflash_gguf.errors import GGUFError
from dflash_gguf.file_text import listed, shown
from dflash_gguf.rekeying.answers import QUESTIONS, TAPS, Answers, Question
from dflash_gguf.rekeying.forks import BEELLAMA_MARK, TYPES, UNLIKE, Fork, bare, upstream_key
from dflash_gguf.rekeying.values import as_it_is, encoded, renamed
from dflash_gguf.schema import ARCHITECTURE, Keys

if TYPE_CHECKING:
    from dflash_gguf.gguf_header import GGUFHeader

GIVEN: Final = {question.key: question for question in QUESTIONS if question is not TAPS}
"""Key -> the question whose answer takes the place of the file's value."""
SCALING_FACTOR: Final = "dflash.rope.scaling.factor"
SCALING_TYPE: Final = "dflash.rope.scaling.type"


@dataclass(slots=True)
class Names:
    """State while a header is walked: upstream's keys, the file's name of each, and what remains to be asked.

    ``has_tokens`` is false too where the file names no tokenizer for them.
    """

    has_tokens: bool
    keys: dict[str, KeyValue] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def upstream_keys(header: GGUFHeader, fork: Fork | None, answers: Answers) -> Names:
    """Every key that stays; raises `GGUFError` on one that llama.cpp cannot honour, or two that contradict."""
    names = Names(has_tokens=_has_tokens(header))
    architecture = ARCHITECTURE if fork is None else fork.architecture
    for source in header.keys:
        name = bare(source, architecture)
        if name is not None:
            _expressible(source, name, header)
        key = _place(source, name, fork, header)
        if key is None:
            names.dropped.append(source)
        else:
            _put(names, source, key, fork, answers, header)
    _whole_scaling(names, fork, header)
    if names.dropped:
        names.notes.append(f"dropped, as llama.cpp does not read it: {listed(names.dropped, '`')}")
    if fork is None and BEELLAMA_MARK in header.keys:
        what = f"`{BEELLAMA_MARK}` is a mark of beellama's own script, which leaves taps one too low"
        names.notes.append(f"{what}: if few drafts are accepted, re-key the original file or pass `--target-layers`")
    return names


def _has_tokens(header: GGUFHeader) -> bool:
    model = header.keys.get(Keys.TOKENIZER_MODEL)
    if model is None or model.type_text != "string" or header.string(Keys.TOKENIZER_MODEL) in NO_MODELS:
        return False
    tokens = header.keys.get(Keys.TOKENS)
    return tokens is not None and tokens.type_text == "array[string]" and tokens.count > 0


def _expressible(source: str, name: str, header: GGUFHeader) -> None:
    if name in UNLIKE and copied(source, header).value:
        what = f"`{header.name}` {UNLIKE[name]}, which llama.cpp has no part for"
        raise GGUFError(f"{what} (`{source}`)", remedy="run it with the program that it was written for")


def _place(source: str, name: str | None, fork: Fork | None, header: GGUFHeader) -> str | None:
    """Upstream's key for one of the file's; None when llama.cpp has none."""
    if name is None:
        return source
    key = upstream_key(name)
    if fork is not None:
        return key if key in TYPES else None
    taken = key != source and key in header.keys
    return source if taken or key not in TYPES else key


def _put(names: Names, source: str, key: str, fork: Fork | None, answers: Answers, header: GGUFHeader) -> None:
    if key == Keys.ARCHITECTURE and fork is not None:
        pair = scalar(key, "string", ARCHITECTURE)
    elif key not in TYPES:
        pair = as_it_is(source, header)
    elif key == Keys.TARGET_LAYERS:
        taps = _taps(names, source, fork, answers, header)
        if taps is None:
            return
        pair = taps
    else:
        try:
            pair = renamed(source, key, header)
        except GGUFError as error:
            if key not in GIVEN:
                raise
            if getattr(answers, GIVEN[key].attribute) is not None:
                return
            raise GGUFError(str(error), remedy=f"pass `{GIVEN[key].usage}`") from None
    before = names.keys.get(key)
    if before is not None and before.raw != pair.raw and not _own_mask(names, source, key):
        both = f"`{shown(names.sources[key])}` and `{shown(source)}`"
        raise GGUFError(f"`{header.name}`: {both} contradict each other", remedy=CONVERT_AGAIN)
    if before is None or source != Keys.MASK_TOKEN_ID:
        names.keys[key], names.sources[key] = pair, source


def _own_mask(names: Names, source: str, key: str) -> bool:
    """Of two masks the drafter's counts; the other came with its target's tokenizer."""
    return key == Keys.MASK_TOKEN_ID and Keys.MASK_TOKEN_ID in (source, names.sources[key])


def _taps(names: Names, source: str, fork: Fork | None, answers: Answers, header: GGUFHeader) -> KeyValue | None:
    """The list as llama.cpp counts it; None when it is given by flag, or has to be."""
    if answers.target_layers is not None:
        return None
    settled = fork is None and source == Keys.TARGET_LAYERS
    if settled and answers.taps is not None:
        raise GGUFError(f"`{header.name}` numbers its target layers as llama.cpp does", remedy="leave `--taps` out")
    meant = "shifted" if settled else answers.taps or (fork.taps if fork else None)
    pair = renamed(source, Keys.TARGET_LAYERS, header)
    if meant == "raw":
        return encoded(Keys.TARGET_LAYERS, [tap + 1 for tap in header.integers(source)])
    if meant is None:
        names.asked.append(TAPS)
        return None
    return pair


def _whole_scaling(names: Names, fork: Fork | None, header: GGUFHeader) -> None:
    if fork is not None and SCALING_FACTOR in names.keys and SCALING_TYPE not in names.keys:
        # llama.cpp takes an unnamed kind for linear; pulsar, which names none, means YaRN.
        what = f"`{header.name}` scales its rotary positions but does not say how"
        raise GGUFError(f"{what} (`{names.sources[SCALING_FACTOR]}`)", remedy=CONVERT_AGAIN)
