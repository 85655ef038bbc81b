"""Depth control as a function of what it is shown: any observations, the limits, what it estimates, when it probes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from depth_traces import COSTS, N_MAX, PLAIN, Adversary, Noise, controller, informed, joined, play, steady
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_gguf import _core
from dflash_gguf._core import DepthControl, DepthRound
from dflash_gguf.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Sequence

counts = st.integers(-3, 12) | st.sampled_from([-(2**31), 2**31 - 1])
seconds = st.sampled_from([0.0, -1.0, 1e-12, 1e-3, 0.02, 0.1, 1e9, math.nan, math.inf, -math.inf]) | st.floats(
    1e-4, 10.0
)
confidences = st.lists(
    st.sampled_from([0.0, 1.0, -1.0, 2.0, math.nan, math.inf, -math.inf]) | st.floats(0, 1, width=32), max_size=12
)
steps = st.one_of(
    st.tuples(st.just("begin")),
    st.tuples(st.just("draft"), counts),
    st.tuples(st.just("verify"), confidences, counts),
    st.tuples(st.just("judge"), confidences, counts, counts),
    st.tuples(st.just("observe"), counts, counts, counts, seconds, seconds),
    st.tuples(st.sampled_from(["measured_verify", "measured_draft"]), counts, seconds),
)


def answer(control: DepthControl, name: str, *arguments: Any) -> Any:
    if name == "observe":
        return control.observe(DepthRound(*arguments))
    return getattr(control, name)(*arguments)


def in_range(depth: int, n_limit: int, n_min: int) -> bool:
    return depth == 0 or max(1, n_min) <= depth <= min(n_limit, N_MAX)


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=60), st.integers(0, N_MAX), st.floats(0, 1, width=32), st.booleans())
def test_whatever_it_is_shown_depths_stay_in_range(
    sequence: list[tuple[Any, ...]], n_min: int, p_min: float, measured: bool
) -> None:
    fresh = DepthControl(n_max=N_MAX, n_min=n_min, p_min=p_min, seed=1)
    control = controller(COSTS["GPU"], n_min=n_min, p_min=p_min) if measured else fresh
    for name, *arguments in sequence:
        found = answer(control, name, *arguments)
        if name == "draft":
            assert in_range(found, arguments[0], n_min)
        if name == "verify":
            shown = arguments[0][:N_MAX]
            assert in_range(found, min(arguments[1], len(shown)), n_min)
            assert not any(confidence < np.float32(p_min) for confidence in shown[:found])
    assert all(math.isfinite(value) for value in (control.gain, control.balance))
    assert 0 <= control.interval <= 128
    assert all(math.isfinite(control.cost_verify(i)) and 0 <= control.chance(i) <= 1 for i in range(-1, N_MAX + 3))


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=60), st.integers(0, 2**64 - 1))
def test_the_same_observations_and_seed_give_the_same_decisions(sequence: list[tuple[Any, ...]], seed: int) -> None:
    one, other = (DepthControl(n_max=N_MAX, seed=seed) for _ in range(2))
    for control in (one, other):
        control.measured_verify(1, 0.02)
    assert [answer(one, *step) for step in sequence] == [answer(other, *step) for step in sequence]


def test_a_trace_is_played_the_same_twice() -> None:
    text, costs = joined([informed(300), steady(0.2, 300), informed(300)]), COSTS["BF16"]
    one, other = (play(text, controller(costs, Noise(3, 0.1)), costs, Noise(4, 0.1)).rounds for _ in range(2))
    assert one == other


def test_the_seed_says_which_drafts_look_further_than_the_best_width() -> None:
    text, costs = steady(0.8, 600), COSTS["IQ4_NL"]

    def looks(seed: int) -> list[int]:
        control = DepthControl(n_max=N_MAX, seed=seed)
        for width in range(1, N_MAX + 2):
            control.measured_verify(width, costs.verify[width - 1])
        for width in range(1, N_MAX + 1):
            control.measured_draft(width, costs.draft[width - 1])
        return [n for *_, n, _ in play(text, control, costs).rounds]

    assert looks(1) == looks(1) != looks(2)
    assert {3, N_MAX} <= set(looks(1))


@pytest.mark.parametrize("n_max", [0, -1, 4097, 2**31 - 1])
def test_a_limit_that_is_none_is_refused(n_max: int) -> None:
    with pytest.raises(SessionError, match=f"over {n_max} drafted tokens is of no use"):
        DepthControl(n_max=n_max)


def test_nothing_is_drafted_until_a_target_pass_was_timed() -> None:
    control = DepthControl(n_max=N_MAX)
    assert control.draft(N_MAX) == 0
    control.observe(DepthRound(0, 0, 0, 0.0, 0.02))
    assert control.draft(N_MAX) > 0


@pytest.mark.parametrize("n_min", [0, 1, 4, N_MAX])
def test_drafts_shorter_than_n_min_are_not_verified(n_min: int) -> None:
    costs = COSTS["GPU"]
    rounds = play(joined([steady(0.9, 200), steady(0.3, 200)]), controller(costs, n_min=n_min), costs).rounds
    depths = {m for *_, m in rounds}
    assert min(depths - {0}) >= n_min
    assert {n for *_, n, _ in rounds if n} <= set(range(max(1, n_min), N_MAX + 1))


def test_nothing_is_drafted_where_less_than_n_min_fits() -> None:
    control = controller(COSTS["GPU"], n_min=4)
    assert control.draft(3) == 0
    assert control.draft(4) == 4


def trusting(**limits: Any) -> DepthControl:
    """A control that has seen drafts of full width turn out right."""
    costs = COSTS["GPU"]
    control = controller(costs, **limits)
    play(steady(1.0, 200, confidence=0.9), control, costs)
    control.draft(N_MAX)
    return control


@pytest.mark.parametrize(
    ("shown", "depth"),
    [
        ([0.9] * 7, 7),
        ([0.9, 0.9, 0.9, 0.49, 0.9, 0.9, 0.9], 3),
        ([0.9, 0.9, 0.5, 0.9, 0.4, 0.9, 0.9], 4),
        ([0.3] + [0.9] * 6, 0),
        ([math.nan] * 7, 7),
    ],
)
def test_a_draft_ends_before_the_first_token_below_p_min(shown: Sequence[float], depth: int) -> None:
    assert trusting(p_min=0.5).verify(shown, N_MAX) == depth


def test_a_draft_that_p_min_leaves_shorter_than_n_min_is_not_verified() -> None:
    shown = [0.9, 0.9, 0.9, 0.4, 0.9, 0.9, 0.9]
    assert trusting(p_min=0.5, n_min=3).verify(shown, N_MAX) == 3
    assert trusting(p_min=0.5, n_min=4).verify(shown, N_MAX) == 0


def test_no_more_is_verified_than_fits() -> None:
    control = trusting()
    assert [control.verify([0.9] * 7, n_limit) for n_limit in (-1, 0, 1, 5, 7, 100)] == [0, 0, 1, 5, 7, 7]


def test_probing_intervals_grow_to_what_the_share_of_time_allows() -> None:
    costs, control = COSTS["BF16"], controller(COSTS["BF16"])
    rounds = play(steady(0.0, 800), control, costs).rounds
    probes = [i for i, (*_, n, _) in enumerate(rounds) if n]
    gaps = [after - before - 1 for before, after in pairwise(probes)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 16
    assert 32 <= gaps[-1] <= 128


def test_a_new_request_is_probed_soon_and_does_not_hand_on_more_than_it_began_with() -> None:
    costs, control = COSTS["BF16"], controller(COSTS["BF16"])
    play(steady(0.0, 800), control, costs)
    before = control.interval
    control.begin()
    assert control.interval == min(before // 2, 8)
    play(steady(0.95, 400), control, costs)
    assert control.balance > 10 * PLAIN
    control.begin()
    assert control.balance <= 4 * PLAIN + 1e-9


def test_what_was_won_pays_for_a_new_beginning() -> None:
    """After a request that ends in debt; without winnings the debt stays."""
    costs = COSTS["BF16"]
    won, poor = controller(costs), controller(costs)
    play(steady(0.95, 400), won, costs)
    for control in (won, poor):
        play(Adversary(40), control, costs)
        assert control.balance < 0
    debt = poor.balance
    won.begin()
    poor.begin()
    assert won.balance == pytest.approx(0.5 * PLAIN)
    assert poor.balance == debt


def test_costs_are_the_median_of_what_was_seen() -> None:
    control = DepthControl(n_max=N_MAX)
    for value in (0.02, 0.5, 0.021, 0.019, 0.02):
        control.measured_verify(1, value)
    for value in (math.nan, math.inf, 0.0, -1.0, 1e6):
        control.measured_verify(1, value)
    assert control.cost_verify(1) == 0.02


def test_widths_never_seen_lie_between_their_neighbours() -> None:
    control = DepthControl(n_max=N_MAX)
    assert control.cost_verify(3) == control.cost_draft(3) == 0.0
    control.measured_verify(1, 0.02)
    assert 0.02 < control.cost_verify(2) < control.cost_verify(3)
    control.measured_verify(5, 0.06)
    assert 0.02 < control.cost_verify(3) < 0.04
    assert control.cost_verify(0) == control.cost_verify(1)
    assert control.cost_verify(100) == control.cost_verify(N_MAX + 1) > 0.06


def test_a_slowdown_seen_at_one_width_holds_for_all() -> None:
    control = controller(COSTS["BF16"])
    before = control.cost_verify(1)
    for _ in range(12):
        control.measured_verify(5, 2 * COSTS["BF16"].verify[4])
    assert control.cost_verify(1) == pytest.approx(2 * before, rel=0.2)


def test_a_plain_pass_is_taken_to_cost_no_more_than_a_wider_one() -> None:
    control = DepthControl(n_max=N_MAX)
    control.measured_verify(1, 0.03)
    control.measured_verify(2, 0.02)
    assert control.cost_verify(1) == 0.02


def test_chances_follow_what_the_text_says() -> None:
    control = controller(COSTS["BF16"])
    for _ in range(60):
        control.judge([0.5] * 7, 2, 3)
    assert control.chance(0) > 0.8
    assert control.chance(2) < 0.5
    for _ in range(60):
        control.judge([0.5] * 7, 0, 1)
    assert control.chance(0) < 0.15
    assert control.chance(-1) == control.chance(N_MAX) == 0.0


def test_drafts_are_told_apart_by_their_confidence() -> None:
    costs, control = COSTS["GPU"], controller(COSTS["GPU"])
    play(informed(600), control, costs)
    control.draft(N_MAX)
    assert control.verify([0.98] * 7, N_MAX) > control.verify([0.6] * 7, N_MAX) > control.verify([0.02] * 7, N_MAX) - 1


@pytest.mark.parametrize("n", [2, 3, 15, 16, 17, 1000])
def test_the_lead_is_what_a_sort_says(n: int) -> None:
    for seed in range(20):
        row = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
        row[row < -1.0] = -math.inf
        row[:2] = (3.0, 3.0) if seed == 0 else (7.0 + seed, 6.5)
        second, best = np.sort(row)[-2:]
        assert _core.lead(row) == best - second


def waited(lead: float) -> int:
    """Plain passes before the next probe, once nothing has paid for long."""
    control, passes = controller(COSTS["BF16"]), 0
    for _ in range(400):
        n = control.draft(N_MAX)
        m = control.verify([0.1] * n, N_MAX) if n else 0
        control.observe(DepthRound(n, m, 0, 0.008, 0.019))
        control.judge([0.1] * n, 0, 1)
    while control.draft(N_MAX) == 0:
        control.observe(DepthRound(0, 0, 0, 0.0, 0.019, lead))
        passes += 1
    return passes


def test_sure_tokens_bring_the_next_probe_nearer() -> None:
    assert waited(8.0) < waited(0.0) / 3
    assert waited(2.9) == waited(0.0)
