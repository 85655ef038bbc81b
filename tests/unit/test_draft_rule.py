"""Which draft rule is used: the one of which more is accepted, as far as the target's text tells."""

from __future__ import annotations

import numpy as np
import pytest

from dflash_gguf import _core
from dflash_gguf.cli.session_options import TABLE
from dflash_gguf.runner.bounds import DEPTHS, DRAFT_RULES
from dflash_gguf.runner.settings import Settings

N = 7


def proposal(right):
    """Tokens 0, 1, 2 ... for as long as they are right, then wrong ones."""
    return [i if i < right else 1000 + i for i in range(N)]


def lengths(rng, chance, shared):
    """How many leading tokens each rule has right; ``shared``: how often both rules propose the same token."""
    both = rng.random(N) < shared
    first = rng.random(N) < chance[0]
    second = np.where(both, first, rng.random(N) < chance[1])
    return [int(np.argmin(np.append(right, False))) for right in (first, second)]


def run(chances, shared=0.5, rule=_core.DraftRule.auto, seed=1):
    """Mean acceptance lengths of auto, argmax and keyed over rounds with the given chances of each rule."""
    choice, rng, sums = _core.RuleChoice(rule), np.random.default_rng(seed), np.zeros(3)
    for chance in chances:
        argmax, keyed = lengths(rng, chance, shared)
        used = keyed if choice.keyed else argmax
        sums += used, argmax, keyed
        choice.observe([*range(used + 1)], proposal(argmax), proposal(keyed))
    return 1 + sums / len(chances)


def test_rules_and_depths_are_defined_once():
    assert set(DRAFT_RULES) == {rule.name for rule in _core.DraftRule}
    flags = {row.argument: row for row in TABLE}
    for argument, choices in (("draft_rule", DRAFT_RULES), ("depth", DEPTHS)):
        assert tuple(flags[argument].type.choices) == choices
        assert flags[argument].default == getattr(Settings(), argument)


def test_the_fixed_rules_stay():
    for rule, keyed in ((_core.DraftRule.argmax, False), (_core.DraftRule.keyed, True)):
        choice = _core.RuleChoice(rule)
        for right in ((0, 7), (7, 0)) * 20:
            assert choice.keyed == keyed
            choice.observe([*range(8)], proposal(right[0]), proposal(right[1]))
    assert not _core.RuleChoice(_core.DraftRule.auto).keyed, "auto begins with argmax"


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(
    "chance", [(0.7, 0.7), (0.72, 0.68), (0.6, 0.75), (0.3, 0.5), (0.9, 0.95), (0.95, 0.8), (0.1, 0.1)]
)
def test_auto_is_within_two_percent_of_the_better_rule(chance, shared):
    auto, argmax, keyed = np.mean([run([chance] * 1000, shared, seed=seed) for seed in range(2)], axis=0)
    assert auto >= 0.98 * max(argmax, keyed)


def test_it_follows_a_text_that_changes():
    changing = ([(0.8, 0.5)] * 400 + [(0.5, 0.8)] * 400) * 3
    auto, argmax, keyed = run(changing)
    assert auto > 1.05 * max(argmax, keyed)


def test_what_lies_behind_the_written_text_counts_by_the_running_rate():
    """The rule that is not used is judged by what was written, and credited with what it might have gained."""
    choice = _core.RuleChoice(_core.DraftRule.auto)
    for _ in range(5):
        choice.observe([0, 1], proposal(1), proposal(2))
        assert choice.keyed
    choice = _core.RuleChoice(_core.DraftRule.auto)
    choice.observe([0, 1], proposal(1), proposal(1))
    assert not choice.keyed
    choice.observe([], proposal(0), [])
    assert not choice.keyed
