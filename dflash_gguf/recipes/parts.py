"""What a recipe is made of: the case it is for, and the rows by which an engine's table entry says what to do.

Comes in: nothing. Goes out: frozen values. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.recipes.models import CHECKPOINT, GGUF, Drafter, Target

if TYPE_CHECKING:
    from dflash_gguf.recipes.families import Family


LARGE: Final = 100.0
"""Billions of weights from which on a mixture of experts is launched like Qwen3.5-397B-A17B."""
MLX_LARGEST: Final = 5
"""Rows of a block beyond which MLX's product of quantized matrices loses its efficiency (z-lab's client)."""
NO_GAIN: Final = 32
"""Requests at once at which the gain is gone (z-lab's tables for Qwen3.8-27B)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One pair and how it is to be run. ``concurrency`` and ``mlx_bits`` are None when nothing was said."""

    drafter: Drafter
    target: Target
    family: Family
    concurrency: int | None = None
    gpus: int = 1
    mlx_bits: int | None = None

    @property
    def block(self) -> int:
        """Rows of a block: the anchor and the masks."""
        return self.drafter.block_size

    @property
    def drafted(self) -> int:
        """Tokens drafted a round, without the anchor unless its own row proposes too."""
        return self.drafter.proposals

    @property
    def mlx_block(self) -> int:
        """Rows of a block in MLX, which are fewer when weights are quantized."""
        return min(self.block, MLX_LARGEST) if self.quantized else self.block

    @property
    def quantized(self) -> bool:
        """Whether MLX is to run quantized weights."""
        return self.mlx_bits is not None or self.target.bits is not None

    @property
    def large(self) -> bool:
        """Whether the target is a large mixture of experts."""
        return self.target.billions >= LARGE

    @property
    def requests(self) -> int:
        """Requests at once."""
        return self.concurrency or 1

    @property
    def both_gguf(self) -> bool:
        """Whether both are GGUF files."""
        return self.drafter.place.form == self.target.place.form == GGUF

    @property
    def converts(self) -> bool:
        """Whether the drafter must become a GGUF first."""
        return self.drafter.place.form == CHECKPOINT


Words = Callable[[Case], Sequence[str]]
Text = Callable[[Case], str]
When = Callable[[Case], bool]


def always(_: Case) -> bool:
    """For rows that belong to every case."""
    return True


def nothing(_: Case) -> str:
    """For steps that write no file."""
    return ""


@dataclass(frozen=True, slots=True)
class Row:
    """Words of a command, and why they are there. ``{name}`` in ``why`` is a field of the case's values."""

    words: Words
    why: str = ""
    when: When = always


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a settings file, and why it is there."""

    key: str
    value: Callable[[Case], object]
    why: str
    when: When = always


@dataclass(frozen=True, slots=True)
class Step:
    """A command (``rows``), or a file (``settings``, ``form`` json or yaml, ``path``), when the case needs it.

    ``exports`` are variables of the environment that the command needs. ``wrap`` puts the settings where the file
    keeps them.
    """

    title: str
    rows: tuple[Row, ...] = ()
    exports: tuple[Setting, ...] = ()
    settings: tuple[Setting, ...] = ()
    form: str = "shell"
    path: str = ""
    wrap: Callable[[Case, Mapping[str, object]], Mapping[str, object]] = lambda _, settings: settings
    when: When = always


@dataclass(frozen=True, slots=True)
class Depth:
    """What the engine's knob counts: ``of`` gives its value, ``counting`` says it in words."""

    knob: str
    counting: str
    of: Callable[[Case], int]


BLOCK: Final = "block size: the drafted tokens and the one before them"
DRAFTED: Final = "block size - 1: the drafted tokens alone"
ANCHORED: Final = "block size: the drafted tokens alone, of which the anchor's own row proposes the first"
"""What `DRAFTED` means for a drafter that is `anchor_first`."""


def block_depth(knob: str) -> Depth:
    """A knob that counts the whole block."""
    return Depth(knob, BLOCK, lambda case: case.block)


def drafted_depth(knob: str) -> Depth:
    """A knob that counts drafted tokens."""
    return Depth(knob, DRAFTED, lambda case: case.drafted)


def mlx_depth(knob: str) -> Depth:
    """A knob that counts the whole block, on MLX."""
    return Depth(knob, f"{BLOCK}; at most {MLX_LARGEST} when quantized", lambda case: case.mlx_block)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What is told of a case; one that is ``fatal`` forbids it, and ``remedy`` is then what to do."""

    text: str
    when: When = always
    fatal: bool = False
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One row of the table. ``kinds`` of drafters that it runs; ``source``: where this was read; ``checked``: when."""

    name: str
    title: str
    kinds: frozenset[str]
    depth: Depth
    install: tuple[Step, ...]
    steps: tuple[Step, ...]
    constraints: tuple[Constraint, ...]
    source: tuple[str, ...]
    checked: str
    dflash2: str
    notes: tuple[Constraint, ...] = field(default=())


def words(*given: str) -> Words:
    """The same words in every case."""
    return lambda _: given


def flag(name: str, value: Callable[[Case], Any]) -> Words:
    """A flag and its value."""
    return lambda case: (name, str(value(case)))
