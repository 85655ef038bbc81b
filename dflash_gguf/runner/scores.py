"""How likely the target found each token of an answer, in step with the text.

Comes in: tokens as they are decided, and how much text has been handed out. Goes out: those whose text has been. Knows
nothing of logits: the native core reads them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scored:
    """A token with its log probability in the target's softmax, before biases, penalties, filters and the grammar.

    ``best``: the likeliest tokens there with theirs, the best first. ``offset``: characters of the answer before it.
    """

    token: int
    logprob: float
    best: tuple[tuple[int, float], ...]
    offset: int


class ScoreQueue:
    """State: tokens whose text is held back, and the characters handed out."""

    def __init__(self) -> None:
        self._waiting: deque[Scored] = deque()
        self._said = 0

    def add(self, scored: Scored) -> None:
        """The next token of the answer."""
        self._waiting.append(scored)

    def take(self, n: int, *, ended: bool = False) -> tuple[Scored, ...]:
        """Those of which ``n`` more characters show something; with ``ended``, all others too."""
        self._said += n
        taken = []
        while self._waiting and (ended or self._waiting[0].offset < self._said):
            taken.append(self._waiting.popleft())
        return tuple(taken)
