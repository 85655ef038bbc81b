"""Depth control on traces: near the best fixed depth where drafting pays, near plain decoding where it does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import cycle, islice

import pytest
from depth_traces import (
    COSTS,
    PLAIN,
    Adversary,
    Noise,
    Played,
    Trace,
    controller,
    fixed_speeds,
    informed,
    joined,
    play,
    recorded,
    steady,
)

NEAR = 0.95
"""Of the best fixed depth's tokens a second; depth 0 is plain decoding."""

PAY = 1.2
"""Times plain decoding: less than that at the best depth is not worth its risk where a round costs several passes."""

KEPT = 0.97
"""Of plain decoding's tokens a second, whatever the drafter does."""

STAKE = 8.0
"""Plain passes that may be lost once, on top: those that a control begins with, and a round's."""

PAYING = ("Q4_0", "IQ4_NL", "Q4_K_M", "BF16", "GPU")
"""Tables on which a draft that is nine tenths right pays by a quarter or more."""

KINDS = ("structured", "code", "prose")

anywhere = pytest.mark.parametrize("table", COSTS)


@cache
def of_pair(temperature: float) -> dict[str, list[Trace]]:
    tuned, tested = recorded("tune", temperature), recorded("test", temperature)
    return {kind: tuned[kind] + tested[kind] for kind in KINDS}


def speed(runs: list[Played]) -> float:
    return float(sum(run.tokens for run in runs) / sum(run.seconds for run in runs))


def verified(played: Played) -> list[int]:
    return [m for *_, m in played.rounds]


@anywhere
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_recorded_texts_of_each_kind_go_about_as_fast_as_at_their_best_depth(table: str, temperature: float) -> None:
    costs = COSTS[table]
    for kind, traces in of_pair(temperature).items():
        runs = [play(trace, controller(costs), costs) for trace in traces]
        assert speed(runs) >= NEAR * max(fixed_speeds(traces, costs)), kind


@anywhere
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_one_control_over_all_kinds_loses_no_more_than_a_fresh_one(table: str, temperature: float) -> None:
    costs, control = COSTS[table], controller(COSTS[table])
    for kind, traces in of_pair(temperature).items():
        runs = [play(trace, control, costs) for trace in traces]
        assert speed(runs) >= NEAR * max(fixed_speeds(traces, costs)), kind


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_over_all_kinds_it_beats_every_single_depth(temperature: float) -> None:
    costs, control = COSTS["BF16"], controller(COSTS["BF16"])
    texts = of_pair(temperature)
    ours = [speed([play(trace, control, costs) for trace in texts[kind]]) for kind in KINDS]
    fixed = [fixed_speeds(texts[kind], costs) for kind in KINDS]
    together = [3 / sum(1 / speeds[depth] for speeds in fixed) for depth in range(len(fixed[0]))]
    assert 3 / sum(1 / found for found in ours) >= max(1.25 * max(together[1:]), 0.98 * together[0])


def converged(traces: list[Trace], table: str, noise: Noise | None = None) -> bool:
    """Whether the second halves go about as fast as at the best fixed depth, or, if that is below PAY, as without."""
    costs, plain, half = COSTS[table], 1 / COSTS[table].verify[0], len(traces[0]) // 2
    found = speed([play(trace, controller(costs, noise), costs, noise).part(half, len(trace)) for trace in traces])
    best = max(fixed_speeds([trace[half:] for trace in traces], costs))
    return found >= NEAR * best or (best < PAY * plain and found >= KEPT * plain)


@anywhere
@pytest.mark.parametrize("rate", [0.0, 0.6, 0.8, 0.9, 0.97])
def test_it_converges_to_the_best_fixed_depth(table: str, rate: float) -> None:
    assert converged([steady(rate, 2000, seed) for seed in range(2)], table)


@anywhere
def test_it_converges_when_confidences_tell(table: str) -> None:
    assert converged([informed(2000)], table)


@anywhere
def test_it_converges_when_confidences_are_too_low(table: str) -> None:
    assert converged([steady(0.85, 2000, confidence=0.3)], table)


@pytest.mark.parametrize("table", ["BF16", "GPU"])
@pytest.mark.parametrize("rate", [0.05, 0.9])
def test_times_that_jump_do_not_mislead_it(table: str, rate: float) -> None:
    assert converged([steady(rate, 1000, seed) for seed in range(4)], table, Noise(0, jitter=0.1, outliers=0.02))


@pytest.mark.parametrize("table", PAYING)
@pytest.mark.parametrize("seed", range(2))
def test_depth_falls_within_a_few_rounds_of_a_change(table: str, seed: int) -> None:
    texts = [steady(0.93, 300, seed), steady(0.1, 300, seed + 10)]
    played = play(joined(texts), controller(COSTS[table]), COSTS[table])
    after = played.part(300, 600)
    assert sum(1 for m in verified(after) if m > 2) <= 3
    assert after.speed * PLAIN >= KEPT


@pytest.mark.parametrize("table", PAYING)
@pytest.mark.parametrize("seed", range(2))
def test_the_first_drafts_after_a_change_are_enough_to_start(table: str, seed: int) -> None:
    texts = [steady(0.93, 300, seed), steady(0.1, 400, seed + 10), steady(0.93, 400, seed + 20)]
    played = play(joined(texts), controller(COSTS[table]), COSTS[table]).part(700, 1100)
    depths = verified(played)
    start = next(i for i in range(len(depths)) if all(depths[i : i + 4]))
    assert start <= 128
    assert sum(1 for *_, n, _ in played.rounds[:start] if n) <= (8 if table == "GPU" else 2)


@anywhere
def test_dear_injections_do_not_end_drafting_for_good(table: str) -> None:
    costs = replace(COSTS[table], inject=0.05 * PLAIN)
    played = play(joined([steady(0.1, 600), steady(0.97, 600)]), controller(costs), costs).part(600, 1200)
    assert played.speed >= 0.85 * max(fixed_speeds([steady(0.97, 600)], costs))


@anywhere
@pytest.mark.parametrize("period", [10, 50, 150])
@pytest.mark.parametrize("confidence", [None, 0.8])
def test_kinds_that_alternate_never_cost_more_than_three_percent(
    table: str, period: int, confidence: float | None
) -> None:
    rates = islice(cycle((0.05, 0.95)), 600 // period)
    texts = [steady(rate, period, seed, confidence=confidence) for seed, rate in enumerate(rates)]
    assert play(joined(texts), controller(COSTS[table]), COSTS[table]).speed * PLAIN >= KEPT


@anywhere
@pytest.mark.parametrize("confidence", [0.5, 0.97])
def test_drafts_that_are_wrong_whenever_they_are_verified_cost_less_than_three_percent(
    table: str, confidence: float
) -> None:
    costs = COSTS[table]
    assert play(Adversary(1000, confidence=confidence), controller(costs), costs).speed * PLAIN >= KEPT
    short = play(Adversary(100, confidence=confidence), controller(costs), costs)
    assert short.seconds / PLAIN <= 100 / KEPT + STAKE


@anywhere
@pytest.mark.parametrize("patience", [1, 2, 5])
def test_drafts_that_turn_wrong_once_they_are_trusted_cost_less_than_three_percent(table: str, patience: int) -> None:
    costs = COSTS[table]
    assert play(Adversary(1000, patience), controller(costs), costs).speed * PLAIN >= KEPT


@anywhere
@pytest.mark.parametrize("confidence", [None, 0.97])
def test_a_random_drafter_costs_less_than_three_percent(table: str, confidence: float | None) -> None:
    costs = COSTS[table]
    assert play(steady(0.0, 500, confidence=confidence), controller(costs), costs).speed * PLAIN >= KEPT


@anywhere
@pytest.mark.parametrize("length", [4, 16, 64])
def test_many_short_requests_together_cost_less_than_three_percent(table: str, length: int) -> None:
    costs, control = COSTS[table], controller(COSTS[table])
    runs = [play(Adversary(length), control, costs) for _ in range(1000 // length)]
    assert speed(runs) * PLAIN >= KEPT
