"""The prompts that the demo's drafter is trained on: many structured ones, and some of every other kind.

Comes in: nothing. Goes out: the same prompts every time, no two alike. The built-in prompts, by which drafters are
measured, are held out: no prompt here has one of their texts or of their `TEMPLATES`.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

from dflash_gguf.demo.prompt_words import (
    CITIES,
    GENERAL,
    JOBS,
    KINDS,
    LANGUAGES,
    LISTS,
    NAMES,
    SENTENCES,
    TASKS,
    TOPICS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SEED: Final = 13
N_STRUCTURED: Final = 1550
N_GENERAL: Final = 300
HELD_OUT: Final = 70
"""Of these prompts so many are left out of training, to measure by."""

TEMPLATES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"count from \d+ to \d+",
        r"multiplication table of \d+",
        r"the numbers from \d+ to \d+, one per line, each followed by",
        r"the numbers from \d+ to \d+ in steps of \d+",
        r"html list with \d+ items about",
        r"write an? [^ ]+ function that",
        r"write an? [^ ]+ program that",
        r"describe a quiet [^ ]+ in",
        r"why do [^ ]+ change",
    )
)
"""What the built-in prompts are made by: a phrase, with other words and numbers in it. Each of them has one."""

_Draw = random.Random

STRUCTURED: Final[tuple[tuple[int, Callable[[_Draw], str]], ...]] = (
    (7, lambda d: "List the numbers from {} to {}.".format(*_range(d, 150, 15, 50))),
    (5, lambda d: "Print the numbers from {} to {}, one per line.".format(*_range(d, 150, 15, 50))),
    (5, lambda d: "Write all numbers from {} to {}, separated by commas.".format(*_range(d, 200, 15, 50))),
    (5, lambda d: "Give me a list of the numbers from {} to {}.".format(*_range(d, 200, 15, 50))),
    (5, lambda d: "Write a list of numbers starting with {} and ending with {}.".format(*_range(d, 200, 15, 50))),
    (4, lambda d: "Write the numbers from {} to {} in order.".format(*_range(d, 150, 15, 50))),
    (4, lambda d: "Enumerate the numbers from {} to {}.".format(*_range(d, 150, 15, 50))),
    (3, lambda d: "Say the numbers from {} to {}.".format(*_range(d, 120, 15, 50))),
    (3, lambda d: "Count to {1}, starting at {0}.".format(*_range(d, 90, 15, 50))),
    (4, lambda d: "Write the numbers {} to {}.".format(*_range(d, 150, 15, 50))),
    (5, lambda d: "Write the numbers {} to {}, each on a line of its own with a dot.".format(*_range(d, 5, 10, 40))),
    (4, lambda d: "Give me the numbers {} to {} as a numbered list.".format(*_range(d, 5, 10, 40))),
    (3, lambda d: "Count backwards from {1} to {0}.".format(*_range(d, 40, 12, 35))),
    (4, lambda d: "Count up from {} until you reach {}.".format(*_range(d, 100, 15, 60))),
    (4, lambda d: "Start at {} and count up to {}.".format(*_range(d, 100, 15, 60))),
    (3, lambda d: "Which numbers lie between {} and {}? List them.".format(*_range(d, 100, 12, 40))),
    (3, lambda d: "List {} to {}, a number per line, with a period after each.".format(*_range(d, 12, 10, 40))),
    (6, lambda d: "Write the numbers from {} to {}, adding {} each time.".format(*_range(d, 20, 50, 90), _step(d))),
    (4, lambda d: "Starting at {}, count up to {} by {}.".format(*_range(d, 20, 50, 90), _step(d))),
    (4, lambda d: "List numbers between {} and {} that go up by {}.".format(*_range(d, 20, 50, 90), _step(d))),
    (5, lambda d: f"Write the first {d.randint(10, 30)} multiples of {_step(d)}."),
    (3, lambda d: f"List the multiples of {_step(d)} up to {d.randint(40, 150)}."),
    (9, lambda d: f"Show the multiplication table for the number {d.randint(2, 40)}."),
    (4, lambda d: f"Write the {d.randint(2, 40)} times table."),
    (4, lambda d: f"Make a multiplication table for {d.randint(2, 40)}, with one product per line."),
    (4, lambda d: f"Multiply {d.randint(2, 40)} by each number from 1 to {d.randint(8, 20)}."),
    (2, lambda d: f"What are the multiples of {d.randint(2, 25)}? Write them as a table."),
    (3, lambda d: f"Repeat this sentence {d.randint(3, 10)} times: {d.choice(SENTENCES)}"),
    (7, lambda d: "Copy the following text exactly:\n{} {} {} {}".format(*d.sample(SENTENCES, 4))),
    (
        6,
        lambda d: (
            f"List the {d.choice(LISTS)}{d.choice(('.', ', one per line.', ', numbered.', ' as bullet points.'))}"
        ),
    ),
    (6, lambda d: f"{_code(d)} that {d.choice(TASKS)}."),
    (3, lambda d: f"Give me a short {d.choice(LANGUAGES)} program which {d.choice(TASKS)}."),
    (4, lambda d: f"In {d.choice(LANGUAGES)}, write code that {d.choice(TASKS)}."),
    (8, lambda d: f"Write a JSON object for a person named {d.choice(NAMES)}, age {_age(d)}, living in {_city(d)}."),
    (3, lambda d: f"Write a JSON array with {d.randint(2, 8)} people, each with a name and an age."),
    (7, lambda d: f"Write an HTML list of {d.randint(3, 10)} {d.choice(KINDS)} in {_city(d)}."),
    (4, lambda d: f"Create an unordered HTML list about {_city(d)} with {d.randint(3, 12)} entries."),
    (3, lambda d: f"Write an HTML table with {d.randint(2, 6)} rows about {d.choice(KINDS)} in {_city(d)}."),
    (3, lambda d: "Write a markdown table of the names {}, {} and {} with their ages.".format(*d.sample(NAMES, 3))),
)
"""How often, and a prompt of that kind."""


def demo_prompts() -> tuple[str, ...]:
    """`N_STRUCTURED` structured prompts and `N_GENERAL` others, mixed."""
    draw = _Draw(SEED)
    makers = [make for times, make in STRUCTURED for _ in range(times)]
    structured = _distinct(N_STRUCTURED, lambda: draw.choice(makers)(draw))
    general = _distinct(
        N_GENERAL, lambda: draw.choice(GENERAL).format(topic=draw.choice(TOPICS), job=draw.choice(JOBS))
    )
    prompts = [*structured, *general]
    draw.shuffle(prompts)
    return tuple(prompts)


def _distinct(n: int, make: Callable[[], str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    while len(found) < n:
        found[make()] = None
    return tuple(found)


def _range(draw: _Draw, highest_start: int, shortest: int, longest: int) -> tuple[int, int]:
    start = draw.randint(0, highest_start)
    return start, start + draw.randint(shortest, longest)


def _code(draw: _Draw) -> str:
    language = draw.choice(LANGUAGES)
    return draw.choice((f"Show me a {language} function", f"Implement a function in {language}"))


def _step(draw: _Draw) -> int:
    return draw.randint(2, 12)


def _age(draw: _Draw) -> int:
    return draw.randint(18, 80)


def _city(draw: _Draw) -> str:
    return draw.choice(CITIES)
