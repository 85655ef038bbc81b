"""The lines by which a measurement ends: where the drafter pays, and where it is not to be used.

Comes in: summaries. Goes out: sentences. Knows nothing of terminals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.bench.summary import best, best_for, slower

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.bench.summary import Setting, Summary, Verdict

_WORDS: Final[dict[Verdict, str]] = {
    "faster": "faster with the drafter",
    "as fast": "no clear difference",
    "slower": "slower than without the drafter: do not use it",
    "unknown": "too little was written to tell",
}


def verdicts(settings: Sequence[Setting]) -> tuple[str, ...]:
    """One line a kind and one for all; of a sweep, the best setting of each."""
    if len(settings) == 1:
        return tuple(f"{row.kind}: {_sentence(row)}" for row in settings[0].rows)
    return (*(_best_of(settings, row.kind) for row in settings[0].kinds), *_best(settings))


def _best_of(settings: Sequence[Setting], kind: str) -> str:
    found, row = best_for(settings, kind)
    if row.verdict == "slower":
        return f"{kind}: {_WORDS['slower']} (best at depth {found.name}: {_measured(row)})"
    return f"{kind}: best at depth {found.name}: {_sentence(row)}"


def _best(settings: Sequence[Setting]) -> tuple[str, ...]:
    chosen = best(settings)
    if chosen.all.verdict == "slower":
        return (f"all: {_WORDS['slower']} (best at depth {chosen.name}: {_measured(chosen.all)})",)
    kinds = [kind for kind in slower(chosen) if kind != chosen.all.kind]
    but = f"; but {_WORDS['slower']} for {', '.join(kinds)}" if kinds else ""
    return (f"best setting: depth {chosen.name}: {_sentence(chosen.all)}{but}", f"with: {_flags(chosen)}")


def _flags(chosen: Setting) -> str:
    return "--depth auto" if chosen.depth is None else f"--depth fixed --spec-draft-n-max {chosen.depth}"


def _sentence(row: Summary) -> str:
    return f"{_WORDS[row.verdict]} ({_measured(row)})" if row.speed is not None else _WORDS[row.verdict]


def _measured(row: Summary) -> str:
    if row.speed is None:
        return "not measured"
    speed = row.speed
    spread = f", 95 % interval {speed.low:.2f} to {speed.high:.2f}" if speed.low is not None else ""
    return f"{speed.ratio:.2f} times the tokens per second{spread}"
