"""What one GGUF says about itself: read from its header alone, whoever wrote it.

Comes in: a path or a header. Goes out: a frozen `Inspection`, in which what the file lacks is said to be lacking.
Judges nothing, and loads nothing native.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.facts import TITLES, drafter_kind
from dflash_gguf.facts import architecture as architecture_of
from dflash_gguf.file_text import json_value
from dflash_gguf.file_types import file_type_name
from dflash_gguf.ggml_types import type_name
from dflash_gguf.gguf_header import GGUFHeader, read_header
from dflash_gguf.gguf_values import NOT_UTF8, Stated, items, stated
from dflash_gguf.rekeying.forks import FORKS, bare, upstream_key
from dflash_gguf.schema import ARCHITECTURE, Keys

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

NOT_STATED: Final = "not stated"

INTEGER: Final = "an integer"
STRING: Final = "a string"
BOOLEAN: Final = "a boolean"
INTEGERS: Final = "an array of integers"
BOOLEANS: Final = "an array of booleans"

_HOLDS: Final[dict[str, tuple[bool, type]]] = {
    INTEGER: (False, int),
    STRING: (False, str),
    BOOLEAN: (False, bool),
    INTEGERS: (True, int),
    BOOLEANS: (True, bool),
}
"""What a key should hold -> whether that is an array, and the type of its items."""


@dataclass(frozen=True, slots=True)
class Field:
    """A value to look for: ``key`` has ``{}`` for the architecture."""

    key: str
    expected: tuple[str, ...] = (INTEGER,)

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]


DIMS: Final = (
    Field("{}.block_count"),
    Field("{}.embedding_length"),
    Field("{}.feed_forward_length", (INTEGER, INTEGERS)),
    Field("{}.attention.head_count", (INTEGER, INTEGERS)),
    Field("{}.attention.head_count_kv", (INTEGER, INTEGERS)),
    Field("{}.attention.key_length"),
    Field("{}.context_length"),
    Field("{}.attention.sliding_window"),
)
"""The sizes of any model, under upstream's names."""

DRAFTER: Final = (
    Field("{}.block_size"),
    Field("{}.target_layers", (INTEGERS,)),
    Field(Keys.MASK_TOKEN_ID),
    Field("{}.attention.causal", (BOOLEAN,)),
)
"""What every drafter has."""

OPTIONAL: Final = (
    Field("{}.attention.sliding_window_pattern", (BOOLEANS, INTEGERS, INTEGER)),
    Field("{}.conv_kernel_size"),
    Field("{}.conv_group_size"),
    Field("{}.selector_rank"),
    Field("{}.selector_top_k"),
    Field("{}.sample_from_anchor", (BOOLEAN,)),
    Field("{}.has_confidence_head", (BOOLEAN,)),
)
"""What only some drafters have: left out when a file does not state it."""

SOURCE: Final = (
    Keys.NAME,
    "general.type",
    "general.basename",
    "general.organization",
    "general.author",
    "general.quantized_by",
    "general.license",
    "general.repo_url",
    "general.url",
    "general.source.",
    "general.base_model.",
    "split.",
)
"""Keys, and beginnings of keys, that say where a file comes from; left out when a file does not state them."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A row of the tensor table; ``shape`` in ggml order."""

    name: str
    shape: tuple[int, ...]
    type: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Drafter:
    """What a drafter's file says beyond the sizes of any model.

    ``target_layers`` are layers whose inputs it reads, ``target_layer_ids`` the checkpoint's ids, one lower: llama.cpp
    stores the first, forks the second. ``mask_token`` is the text of the mask token. None: not stated, or unreadable.
    """

    facts: Mapping[str, Stated]
    target_layers: tuple[int, ...] | None
    target_layer_ids: tuple[int, ...] | None
    mask_token: Stated


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a file says. ``kind`` is for a person; ``fork``: only a fork of llama.cpp loads the file.

    ``dims`` maps upstream's names to what is stated; ``drafter`` is None for any other model; ``keys`` are all of
    them, in the file's order.
    """

    path: str
    n_bytes: int
    gguf_version: int
    architecture: Stated
    kind: str
    fork: bool
    file_type: Stated
    dims: Mapping[str, Stated]
    n_tokens: int | None
    drafter: Drafter | None
    keys: tuple[Stated, ...]
    tensors: tuple[Tensor, ...]
    n_weights: int

    @property
    def bits_per_weight(self) -> float | None:
        """Bits of tensor data for each weight; None when there are no tensors."""
        return 8 * sum(tensor.n_bytes for tensor in self.tensors) / self.n_weights if self.n_weights else None

    @property
    def tensor_types(self) -> dict[str, int]:
        """Name of a type -> how many tensors have it."""
        return dict(Counter(tensor.type for tensor in self.tensors))

    @property
    def source(self) -> tuple[Stated, ...]:
        """Where the file comes from, in its order."""
        return tuple(fact for fact in self.keys if any(_matches(fact.key, known) for known in SOURCE))


def inspect(source: str | os.PathLike[str] | GGUFHeader) -> Inspection:
    """Read a header; raises `GGUFError` when it is no sound GGUF, never for what a sound one lacks."""
    header = source if isinstance(source, GGUFHeader) else read_header(source)
    named = _look_up(header, Field(Keys.ARCHITECTURE, (STRING,)), "")
    architecture = architecture_of(header)
    fork = architecture in FORKS
    return Inspection(
        path=header.name,
        n_bytes=header.size,
        gguf_version=header.version,
        architecture=named,
        kind=_kind(header, architecture),
        fork=fork,
        file_type=_look_up(header, Field(Keys.FILE_TYPE), architecture),
        dims={field.name: _look_up(header, field, architecture) for field in DIMS},
        n_tokens=header.keys[Keys.TOKENS].count if _has_tokens(header) else None,
        drafter=_drafter(header, architecture) if fork or architecture == ARCHITECTURE else None,
        keys=tuple(stated(header, key) for key in header.keys),
        tensors=tuple(Tensor(t.name, t.shape, type_name(t.type), t.nbytes) for t in header.tensors.values()),
        n_weights=sum(prod(tensor.shape) for tensor in header.tensors.values()),
    )


def as_dict(found: Inspection) -> dict[str, Any]:
    """An inspection as plain JSON values; ``problems`` maps a key to why its value is null."""
    return {
        "path": json_value(found.path),
        "n_bytes": found.n_bytes,
        "gguf_version": found.gguf_version,
        "architecture": found.architecture.value,
        "kind": found.kind,
        "fork": found.fork,
        "file_type": file_type(found),
        "dims": _values(found.dims) | {"n_tokens": found.n_tokens},
        "drafter": _drafter_as_dict(found.drafter) if found.drafter else None,
        "source": _values({fact.key: fact for fact in found.source}),
        "problems": {fact.key: fact.problem for fact in _unread(found)},
        "n_weights": found.n_weights,
        "bits_per_weight": found.bits_per_weight,
        "tensor_types": found.tensor_types,
        "keys": [asdict(fact) | {"value": json_value(fact.value)} for fact in found.keys],
        "tensors": [asdict(tensor) | {"shape": list(tensor.shape)} for tensor in found.tensors],
    }


def file_type(found: Inspection) -> str | None:
    """Name of the file's type, as its writer states it."""
    number = found.file_type.value
    return file_type_name(number) if isinstance(number, int) else None


def _values(facts: Mapping[str, Stated]) -> dict[str, object]:
    return {name: json_value(fact.value) for name, fact in facts.items()}


def _drafter_as_dict(drafter: Drafter) -> dict[str, object]:
    return _values(drafter.facts) | {
        "target_layers": json_value(drafter.target_layers),
        "target_layer_ids": json_value(drafter.target_layer_ids),
        "mask_token": drafter.mask_token.value,
    }


def _unread(found: Inspection) -> Iterator[Stated]:
    """What was looked for and is stated, yet cannot be read."""
    facts = [found.architecture, found.file_type, *found.dims.values(), *found.source]
    if found.drafter:
        facts += [*found.drafter.facts.values(), found.drafter.mask_token]
    yield from (fact for fact in facts if fact.value is None and fact.problem != NOT_STATED)


def _matches(key: str, known: str) -> bool:
    return key.startswith(known) if known.endswith(".") else key == known


def _kind(header: GGUFHeader, architecture: str) -> str:
    if not architecture:
        return "unknown"
    if architecture in FORKS:
        return f"fork format {architecture}"
    return TITLES[drafter_kind(header.tensors)] if architecture == ARCHITECTURE else "not a drafter"


def _look_up(header: GGUFHeader, field: Field, architecture: str) -> Stated:
    """What the file says in the place of the field's key, or that it says nothing."""
    key = _spelling(header, field, architecture)
    if key not in header.keys:
        return Stated(key, "", 0, None, NOT_STATED)
    fact = stated(header, key)
    if fact.value is None or any(_holds(fact.value, expected) for expected in field.expected):
        return fact
    return Stated(key, fact.type, fact.count, None, f"{fact.type}, expected {' or '.join(field.expected)}")


def _spelling(header: GGUFHeader, field: Field, architecture: str) -> str:
    """The file's own key for the field; forks spell some in other ways."""
    key = field.key.replace("{}", architecture)
    if key in header.keys or architecture not in FORKS:
        return key
    upstream = field.key.replace("{}", ARCHITECTURE)
    names = ((own, bare(own, architecture)) for own in header.keys)
    return next((own for own, name in names if name and upstream_key(name) == upstream), key)


def _holds(value: object, expected: str) -> bool:
    array, kind = _HOLDS[expected]
    if isinstance(value, tuple) != array:
        return False
    return all(type(item) is kind for item in (value if isinstance(value, tuple) else (value,)))


def _drafter(header: GGUFHeader, architecture: str) -> Drafter:
    facts = {field.name: _look_up(header, field, architecture) for field in (*DRAFTER, *OPTIONAL)}
    for field in OPTIONAL:
        if facts[field.name].problem == NOT_STATED:
            del facts[field.name]
    stored = facts["target_layers"].value
    taps = tuple(int(tap) for tap in stored) if isinstance(stored, tuple) else None
    raw = architecture in FORKS and FORKS[architecture].taps == "raw"
    return Drafter(
        facts=facts,
        target_layers=_shifted(taps, 1 if raw else 0),
        target_layer_ids=_shifted(taps, 0 if raw else -1),
        mask_token=_mask_token(header, facts["mask_token_id"]),
    )


def _shifted(taps: Sequence[int] | None, by: int) -> tuple[int, ...] | None:
    return None if taps is None else tuple(tap + by for tap in taps)


def _has_tokens(header: GGUFHeader) -> bool:
    value = header.keys.get(Keys.TOKENS)
    return value is not None and value.type_text == "array[string]"


def _mask_token(header: GGUFHeader, mask: Stated) -> Stated:
    """The text of the mask token, from the file's own list."""
    if not isinstance(mask.value, int):
        return Stated(mask.key, "", 0, None, mask.problem)
    if not _has_tokens(header):
        return Stated(Keys.TOKENS, "", 0, None, "the file holds no tokens")
    if not 0 <= mask.value < header.keys[Keys.TOKENS].count:
        return Stated(Keys.TOKENS, "", 0, None, f"not one of {header.keys[Keys.TOKENS].count} tokens")
    text = next(items(header, Keys.TOKENS, mask.value))
    return Stated(Keys.TOKENS, "string", 1, *((None, NOT_UTF8) if isinstance(text, bytes) else (text, "")))
