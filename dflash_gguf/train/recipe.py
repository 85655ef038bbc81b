"""How a drafter is trained, in one value.

Comes in: options. Goes out: checked numbers, and the learning rate of each step. Loads nothing.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dflash_gguf.errors import TrainError

PRECISIONS: Final = ("bf16", "f32")
DEVICES: Final = ("auto", "cpu", "cuda", "mps")
_LENGTH: Final = ("steps", "minutes")
_CHOSEN_ANEW: Final = frozenset({*_LENGTH, "eval_every", "save_every", "n_threads", "device"})
"""Fields that another run of the same training may choose anew."""
_FLOOR: Final = 0.05
"""What the rate falls to, as a part of the highest."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """``steps`` or ``minutes``, not both; a step learns from ``anchors`` blocks of each of ``texts`` answers.

    ``frequent`` and ``random`` tokens, and those of the step itself, are the vocabulary of its loss. ``held_out``
    answers are not learnt from; every ``eval_every`` steps it is measured how much of them the drafter names. None of
    ``n_threads``: one for each physical core.
    """

    steps: int | None = None
    minutes: float | None = None
    texts: int = 3
    anchors: int = 48
    rate: float = 1e-3
    warmup: int = 50
    weight_decay: float = 0.01
    clip: float = 1.0
    frequent: int = 3500
    random: int = 1000
    held_out: int = 70
    seed: int = 0
    precision: str = "bf16"
    eval_every: int = 250
    save_every: int = 100
    n_threads: int | None = field(default=None)
    device: str = "auto"

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise TrainError(
                "`steps` and `minutes`", value="neither" if self.steps is None else "both", expected="one of them"
            )
        for name in ("texts", "anchors", "frequent", "held_out", "eval_every", "save_every"):
            if getattr(self, name) < 1:
                raise TrainError(f"`{name}`", value=getattr(self, name), expected="at least 1")
        for name in ("steps", "minutes", "rate", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise TrainError(f"`{name}`", value=value, expected="more than 0")
        for name in ("warmup", "random", "seed", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise TrainError(f"`{name}`", value=getattr(self, name), expected="at least 0")
        for name, words in (("precision", PRECISIONS), ("device", DEVICES)):
            if getattr(self, name) not in words:
                raise TrainError(f"`{name}`", value=getattr(self, name), expected=f"one of {', '.join(words)}")

    def part(self, step: int, seconds: float) -> float:
        """How much of the training is over, from 0 on; 1 and more: all of it."""
        return step / self.steps if self.steps is not None else seconds / (60 * (self.minutes or 1))

    def rate_at(self, step: int, part: float) -> float:
        """A short rise, then half a cosine."""
        falling = _FLOOR + (1 - _FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, part)))
        return self.rate * min(1.0, (step + 1) / (self.warmup + 1)) * falling

    @property
    def length(self) -> dict[str, float | None]:
        """When it ends."""
        return {name: getattr(self, name) for name in _LENGTH}

    def as_dict(self) -> dict[str, Any]:
        """What must be the same in all runs of a training."""
        return {name: value for name, value in asdict(self).items() if name not in _CHOSEN_ANEW}
