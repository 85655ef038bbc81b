"""The built-in prompts: a few of each kind of text, so that a drafter's good and bad sides both show.

Comes in: nothing. Goes out: a table. Knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["structured", "code", "prose"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A message to the target, and the kind of text that it asks for."""

    kind: Kind
    text: str


PROMPTS: Final[tuple[Prompt, ...]] = (
    Prompt("structured", "Count from 15 to 60."),
    Prompt("structured", "Write the multiplication table of 7."),
    Prompt("structured", "List the numbers from 1 to 25, one per line, each followed by a dot."),
    Prompt("structured", "Write the numbers from 3 to 99 in steps of 3."),
    Prompt("code", "Write an HTML list with 8 items about Vienna."),
    Prompt("code", "Write a Python function that merges two sorted lists."),
    Prompt("code", "Write a C program that prints the squares of 1 to 10."),
    Prompt("prose", "Describe a quiet morning in a fishing village."),
    Prompt("prose", "Why do leaves change their color in autumn?"),
)
