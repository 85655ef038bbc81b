"""Traces of a text and of what a drafter proposes along it, what passes cost, and rounds played through both."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dflash_gguf._core import DepthControl, DepthRound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

N_MAX = 7
PLAIN = 0.019
"""Seconds of a pass over one token, of the pair on which the tables were measured."""

INJECT = 0.01 * PLAIN
"""Seconds for a row of features."""

BACKLOG = 64
"""Rows of features that are injected together while nothing is drafted."""


@dataclass(frozen=True)
class Trace:
    """For each position of a text and each width of a draft: the confidences, and the leading proposals that are right.

    confidences: float [positions, n_max, n_max], row [w - 1] filled up to w; agreed: int [positions, n_max]; leads: by
    how many logits the best token was ahead where a position's token was chosen: float [positions].
    """

    kind: str
    confidences: NDArray[np.float32]
    agreed: NDArray[np.int64]
    leads: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.agreed)

    def __getitem__(self, part: slice) -> Trace:
        return Trace(self.kind, self.confidences[part], self.agreed[part], self.leads[part])

    def draft(self, position: int, width: int) -> list[float]:
        """The confidences of what a pass of this width proposes at a position."""
        return list(map(float, self.confidences[position, width - 1, :width]))

    def lead(self, position: int) -> float:
        """By how many logits the best token was ahead where a position's token was chosen."""
        return float(self.leads[position]) if position < len(self.leads) else 0.0

    def right(self, position: int, width: int, verified: int) -> int:
        """How many of the leading proposals are right, however many are looked at."""
        return int(self.agreed[position, width - 1])


def joined(traces: Sequence[Trace]) -> Trace:
    """One text after the other."""
    return Trace(
        "+".join(dict.fromkeys(trace.kind for trace in traces)),
        np.concatenate([trace.confidences for trace in traces]),
        np.concatenate([trace.agreed for trace in traces]),
        np.concatenate([trace.leads for trace in traces]),
    )


def recorded(name: str, temperature: float) -> dict[str, list[Trace]]:
    """The traces of a real pair by kind; see golden/generate_depth.py."""
    content = json.loads((Path(__file__).parent / "golden" / "depth_traces.json").read_text(encoding="utf-8"))
    found: dict[str, list[Trace]] = {}
    for entry in content["traces"]:
        if (entry["set"], entry["temperature"]) == (name, temperature):
            found.setdefault(entry["kind"], []).append(_unpacked(entry, content["n_max"]))
    return found


def _unpacked(entry: dict[str, str | int], n_max: int) -> Trace:
    data = np.frombuffer(base64.b64decode(str(entry["data"])), np.uint8).reshape(int(entry["rows"]), -1)
    confidences = np.zeros((len(data), n_max, n_max), np.float32)
    agreed = np.zeros((len(data), n_max), np.int64)
    column = 0
    for width in range(1, n_max + 1):
        agreed[:, width - 1] = data[:, column]
        confidences[:, width - 1, :width] = data[:, column + 1 : column + 1 + width] / 255
        column += 1 + width
    return Trace(str(entry["kind"]), confidences, agreed, data[:, column] / 16)


def steady(rate: float, n: int, seed: int = 0, *, confidence: float | None = None, n_max: int = N_MAX) -> Trace:
    """Each proposal is right with one probability; the confidence says so, or says always the same."""
    random = np.random.default_rng(seed)
    right = random.random((n, n_max)) < rate
    agreed = np.cumprod(right, axis=1).sum(axis=1)
    return made(agreed, np.full((n, n_max), rate if confidence is None else confidence), n_max)


def informed(n: int, seed: int = 0, n_max: int = N_MAX) -> Trace:
    """Each proposal is right with its own probability, which its confidence is."""
    random = np.random.default_rng(seed)
    confidences = random.beta(1.2, 0.4, (n, n_max))
    right = random.random((n, n_max)) < confidences
    return made(np.cumprod(right, axis=1).sum(axis=1), confidences, n_max)


def made(agreed: NDArray[np.int64], confidences: NDArray[np.float64], n_max: int = N_MAX) -> Trace:
    """A trace whose drafts are the beginnings of one of full width."""
    widths = np.arange(1, n_max + 1)
    filled = np.tril(np.ones((n_max, n_max)))
    return Trace(
        "made",
        (confidences[:, None, :] * filled[None]).astype(np.float32),
        np.minimum(agreed[:, None], widths[None, :]),
        np.zeros(len(agreed)),
    )


@dataclass
class Adversary:
    """A text that knows what the control does: sure of every proposal, right as long as nothing hangs on it.

    What is not verified turns out right; verified drafts are right ``patience`` times in a row, then wrong once.
    ``patience`` 0: never right.
    """

    n: int
    patience: int = 0
    confidence: float = 0.97
    kind: str = "adversary"
    good: int = 0

    def __len__(self) -> int:
        return self.n

    def draft(self, position: int, width: int) -> list[float]:
        return [self.confidence] * width

    def lead(self, position: int) -> float:
        return 9.0

    def right(self, position: int, width: int, verified: int) -> int:
        if verified == 0:
            return width
        self.good = 0 if self.good >= self.patience else self.good + 1
        return width if self.good else 0


@dataclass(frozen=True)
class Costs:
    """Seconds of passes: verify [w - 1], draft [n - 1], and of a row of features."""

    verify: tuple[float, ...]
    draft: tuple[float, ...]
    inject: float = INJECT


def _costs(verify: Sequence[float], draft: Sequence[float]) -> Costs:
    return Costs(tuple(PLAIN * v for v in verify), tuple(PLAIN * d for d in draft))


_CPU_DRAFT = tuple(np.linspace(5 / 19, 11 / 19, N_MAX))
COSTS = {
    # Verify passes of width 1 to 8 in passes of width 1; width 7 lies between its neighbours.
    "Q4_1": _costs((1, 2.0, 2.5, 3.0, 3.6, 4.1, 4.35, 4.6), _CPU_DRAFT),
    "Q4_0": _costs((1, 1.7, 2.3, 2.2, 3.1, 3.7, 3.45, 3.2), _CPU_DRAFT),
    "IQ4_NL": _costs((1, 1.5, 1.9, 1.6, 2.1, 2.7, 2.75, 2.8), _CPU_DRAFT),
    "Q4_K_M": _costs((1, 1.7, 2.1, 2.4, 3.0, 3.3, 3.3, 3.3), _CPU_DRAFT),
    "BF16": _costs((1, 1.5, 1.8, 2.0, 2.1, 2.3, 2.55, 2.8), _CPU_DRAFT),
    "Q8_0": _costs((1, 2.4, 3.0, 3.5, 4.1, 4.3, 4.25, 4.2), _CPU_DRAFT),
    "GPU": _costs((1, 1.02, 1.03, 1.05, 1.07, 1.09, 1.12, 1.15), (0.2,) * N_MAX),
}


@dataclass
class Played:
    """What a control made of a trace: (tokens, seconds, drafted, verified) of every round."""

    rounds: list[tuple[int, float, int, int]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(entry[0] for entry in self.rounds)

    @property
    def seconds(self) -> float:
        return sum(entry[1] for entry in self.rounds)

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds

    def part(self, first: int, end: int) -> Played:
        """The rounds that begin at tokens first .. end - 1."""
        starts = np.cumsum([0, *(entry[0] for entry in self.rounds)])
        return Played([entry for entry, start in zip(self.rounds, starts, strict=False) if first <= start < end])


@dataclass
class Noise:
    """Times with jitter, and now and then one that is five times too long."""

    seed: int = 0
    jitter: float = 0.0
    outliers: float = 0.0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def __call__(self, seconds: float) -> float:
        spread = max(0.2, self.random.normal(1, self.jitter)) if self.jitter else 1.0
        return seconds * spread * (5.0 if self.outliers and self.random.random() < self.outliers else 1.0)


def controller(costs: Costs, noise: Noise | None = None, *, n_min: int = 0, p_min: float = 0.0) -> DepthControl:
    """A control to which every width was shown three times, as at load."""
    noise = noise or Noise()
    control = DepthControl(n_max=len(costs.draft), n_min=n_min, p_min=p_min, seed=1)
    for _ in range(3):
        for width, seconds in enumerate(costs.verify, 1):
            control.measured_verify(width, noise(seconds))
        for width, seconds in enumerate(costs.draft, 1):
            control.measured_draft(width, noise(seconds))
    return control


def play(trace: Trace | Adversary, control: DepthControl, costs: Costs, noise: Noise | None = None) -> Played:
    """One request: rounds until the trace ends. The time that counts is that without noise."""
    noise = noise or Noise()
    played, pending = Played(), _Pending(control)
    position = backlog = 0
    control.begin()
    while position < len(trace):
        n = control.draft(len(costs.draft))
        if n:
            pending.settle()
        confidence = trace.draft(position, n) if n else []
        m = control.verify(confidence, len(costs.draft)) if n else 0
        agreed = trace.right(position, n, m) if n else 0
        accepted = min(agreed, m)
        backlog += accepted + 1
        rows = backlog if n or backlog >= BACKLOG else 0
        backlog -= rows
        times = (costs.draft[n - 1] if n else 0.0, costs.verify[m], rows * costs.inject)
        position += accepted + 1
        lead = trace.lead(position) if n == 0 else 0.0
        control.observe(DepthRound(n, m, accepted, *(noise(t) for t in times[:2]), lead))
        played.rounds.append((accepted + 1, sum(times), n, m))
        if n:
            pending.add(confidence, agreed)
        pending.grow(accepted + 1)
    pending.settle()
    return played


class _Pending:
    """A draft that waits for the text to say how right it was."""

    def __init__(self, control: DepthControl) -> None:
        self.control = control
        self.confidence: list[float] = []
        self.agreed = self.known = 0

    def add(self, confidence: list[float], agreed: int) -> None:
        self.confidence, self.agreed, self.known = confidence, agreed, 0

    def grow(self, n: int) -> None:
        """The text goes on by n tokens."""
        self.known = min(self.known + n, len(self.confidence))
        if self.confidence and (self.known == len(self.confidence) or self.known > self.agreed):
            self.settle()

    def settle(self) -> None:
        if self.confidence and self.known:
            judged = min(self.known, self.agreed + 1)
            self.control.judge(self.confidence, min(self.agreed, judged), judged)
        self.confidence = []


def fixed_speeds(traces: Sequence[Trace], costs: Costs) -> list[float]:
    """Tokens a second at depth 0, 1, .. n_max, over all the traces; at depth 0 nothing is injected."""
    return [1 / costs.verify[0], *(_fixed_speed(traces, costs, depth) for depth in range(1, len(costs.draft) + 1))]


def _fixed_speed(traces: Sequence[Trace], costs: Costs, depth: int) -> float:
    tokens = rounds = 0
    for trace in traces:
        agreed = trace.agreed[:, depth - 1].tolist()
        position = 0
        while position < len(agreed):
            position += agreed[position] + 1
            rounds += 1
        tokens += position
    return tokens / (rounds * (costs.draft[depth - 1] + costs.verify[depth]) + tokens * costs.inject)


def switch_points(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """(first, end) of each of several texts in a row."""
    return list(pairwise(np.cumsum([0, *lengths]).tolist()))
