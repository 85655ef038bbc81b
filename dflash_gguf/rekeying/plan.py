"""The re-keyed file, decided before a byte of it is written.

Comes in: a header, the target, the answers. Goes out: a frozen `RekeyPlan`: every key with its value, every tensor
with where its data lies, what differs from the old file. Of tensor data it reads only the table ``d2t``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.drafter import CONVERT_AGAIN, FLAGS, drafter_findings
from dflash_gguf.contract.tables import Stored, TensorData
from dflash_gguf.convert.encode import ALIGNMENT, KeyValue, encode_header, pad
from dflash_gguf.errors import GGUFError
from dflash_gguf.facts import drafter_facts
from dflash_gguf.file_text import shown
from dflash_gguf.findings import errors_of, sentences
from dflash_gguf.gguf_header import PlannedFile, read_header
from dflash_gguf.pair import compared
from dflash_gguf.rekeying.answers import NOTHING, Answers
from dflash_gguf.rekeying.forks import FORKS, Fork
from dflash_gguf.rekeying.keys import upstream_keys
from dflash_gguf.rekeying.settle import settle
from dflash_gguf.rekeying.tensors import MovedTensor, moved_tensors
from dflash_gguf.schema import ARCHITECTURE, Keys
from dflash_gguf.shards import SPLIT_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dflash_gguf.convert.target import Target
    from dflash_gguf.gguf_header import GGUFHeader

PASSED: Final = {key: f"pass `{flag}`" for key, flag in FLAGS.items()}
"""Key -> what helps against a fault of it here."""
ALIGNMENT_KEY: Final = "general.alignment"


@dataclass(frozen=True, slots=True)
class RekeyedKey:
    """A key of the old file and of the new one (None: there is none), and the new value as text."""

    old: str | None
    new: str | None
    value: str


@dataclass(frozen=True, slots=True)
class RekeyPlan:
    """The new file; ``header`` is everything before the tensor data, padded. ``source`` is the old file's header.

    ``changes`` and ``renames`` are empty when the old file is right as it is, which is then copied whole.
    """

    source: GGUFHeader = field(repr=False)
    keys: tuple[KeyValue, ...]
    tensors: tuple[MovedTensor, ...]
    header: bytes = field(repr=False)
    changes: tuple[RekeyedKey, ...]
    renames: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the new file differs from the old one."""
        return bool(self.changes or self.renames)

    @property
    def n_bytes(self) -> int:
        """Bytes of the new file."""
        return _size(self.header, self.tensors) if self.changed else self.source.size


def plan_rekey(header: GGUFHeader, target: Target | None = None, answers: Answers = NOTHING) -> RekeyPlan:
    """Decide the new file.

    Raises `GGUFError` when the old one is no drafter, does not say all that is needed, or cannot be made to load;
    `PairError` when it does not fit ``target``.
    """
    fork = _fork(header)
    tensors = moved_tensors(header)
    names = upstream_keys(header, fork, answers)
    keys = settle(header.name, names, {tensor.name: tensor for tensor in tensors}, answers, fork, target)
    changes = tuple(_changes(header, keys, names.sources))
    renames = tuple((tensor.old, tensor.name) for tensor in tensors if tensor.old != tensor.name)
    if not (changes or renames):
        new, encoded = header, b""
    else:
        keys = _aligned(keys, header, names.notes)
        encoded = encode_header(keys, [(t.name, t.shape, t.type, t.offset) for t in tensors])
        new = read_header(PlannedFile(encoded, _size(encoded, tensors), header.name))
    notes = (*names.notes, *_checked(new, _data(header, tensors)), *_fits(new, target))
    return RekeyPlan(header, keys, tensors, encoded, changes, renames, notes)


def _fork(header: GGUFHeader) -> Fork | None:
    architecture = header.string(Keys.ARCHITECTURE, "")
    if header.integer(SPLIT_COUNT, 1) > 1:
        raise GGUFError(
            f"`{header.name}` is one of several shards", remedy="merge them with `llama-gguf-split --merge`"
        )
    if not architecture:
        raise GGUFError(f"`{header.name}`: `{Keys.ARCHITECTURE}` is missing", remedy=CONVERT_AGAIN)
    if architecture != ARCHITECTURE and architecture not in FORKS:
        expected = ", ".join(f"`{name}`" for name in (ARCHITECTURE, *FORKS))
        what = f"`{header.name}` is of no architecture that can be re-keyed: got `{shown(architecture)}`"
        raise GGUFError(what, expected=f"one of {expected}")
    return FORKS.get(architecture)


def _aligned(keys: tuple[KeyValue, ...], header: GGUFHeader, notes: list[str]) -> tuple[KeyValue, ...]:
    """Without an alignment of the file's own: the new one has the usual."""
    if header.alignment == ALIGNMENT:
        return keys
    notes.append(f"tensors are aligned to {ALIGNMENT} bytes, no longer to {header.alignment}")
    return tuple(pair for pair in keys if pair.key != ALIGNMENT_KEY)


def _size(header: bytes, tensors: tuple[MovedTensor, ...]) -> int:
    return len(header) + sum(pad(tensor.nbytes) for tensor in tensors)


def _changes(header: GGUFHeader, keys: tuple[KeyValue, ...], sources: Mapping[str, str]) -> Iterator[RekeyedKey]:
    """What each key of either file becomes, or comes from; nothing for one that stays."""
    kept = set()
    for pair in keys:
        old = sources.get(pair.key)
        if old is None and pair.key in header.keys:
            old = pair.key
        kept.add(old)
        if old != pair.key or header.raw(old) != pair.raw:
            yield RekeyedKey(old, pair.key, _shown(pair))
    yield from (RekeyedKey(key, None, "") for key in header.keys if key not in kept)


def _shown(pair: KeyValue) -> str:
    if pair.value is None:
        return f"{pair.count} items" if pair.type.startswith("array") else pair.type
    text = ascii(list(pair.value) if isinstance(pair.value, tuple) else pair.value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _data(header: GGUFHeader, tensors: tuple[MovedTensor, ...]) -> TensorData:
    """The old file's data under the new names."""
    return TensorData(header.path, {t.name: Stored(t.type, t.source, t.nbytes) for t in tensors})


def _checked(header: GGUFHeader, data: TensorData) -> tuple[str, ...]:
    """Warnings of libllama's contract; raises `GGUFError` on its errors."""
    findings = drafter_findings(header, data, PASSED)
    errors = errors_of(findings)
    if errors:
        by_flag = all(finding.remedy in PASSED.values() for finding in errors)
        told = "would not load without a flag" if by_flag else "would not load, re-keyed or not"
        raise GGUFError(f"`{header.name}` {told}: {sentences(errors)}")
    return tuple(str(finding) for finding in findings)


def _fits(header: GGUFHeader, target: Target | None) -> tuple[str, ...]:
    """Notes on what does not forbid the pair; raises `PairError` on the rest."""
    if target is None:
        return ()
    facts = drafter_facts(header)
    return compared(target.facts, facts, target.name, header.name)
