"""What depth control has found, as values.

Comes in: the native control of a loop. Goes out: one frozen value. Decides nothing: cpp/depth.hpp does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from dflash_gguf._core import DepthControl


@dataclass(frozen=True, slots=True)
class Depths:
    """``verify_ms[i]``: milliseconds of a target pass of i + 1 tokens; ``draft_ms[i]``: of a pass that drafts i + 1.

    ``chance[i]``: that token i of a draft is right when those before it are. ``gain``: tokens a second that drafting is
    expected to bring, in those of plain decoding; 0 before the first draft. ``interval``: plain passes between two
    drafts while drafting does not pay.
    """

    verify_ms: tuple[float, ...]
    draft_ms: tuple[float, ...]
    chance: tuple[float, ...]
    gain: float
    interval: int

    @classmethod
    def of(cls, control: DepthControl, n_max: int) -> Self:
        """What ``control`` over ``n_max`` tokens has found by now."""
        return cls(
            tuple(1000 * control.cost_verify(width) for width in range(1, n_max + 2)),
            tuple(1000 * control.cost_draft(width) for width in range(1, n_max + 1)),
            tuple(control.chance(i) for i in range(n_max)),
            control.gain,
            control.interval,
        )

    def __str__(self) -> str:
        again = f", and is tried again every {self.interval} passes" if self.interval else ""
        return (
            f"depth control: a target pass of 1 to {len(self.verify_ms)} tokens takes "
            f"{_times(self.verify_ms)} ms; one that drafts 1 to {len(self.draft_ms)} "
            f"{_times(self.draft_ms)} ms; chance of each to be right {_numbers(self.chance, 2)}; "
            f"drafting is expected to bring {self.gain:.2f} times plain decoding{again}"
        )


def _numbers(values: tuple[float, ...], digits: int) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)


def _times(values: tuple[float, ...]) -> str:
    """To a tenth, and those below that to what can be seen of them."""
    return " ".join(f"{value:.1f}" if value >= 0.1 else f"{value:.2g}" for value in values)
