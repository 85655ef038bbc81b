"""The figures of `bench` on values worked out by hand."""

import pytest
from bench_pairs import measured, pair, stats

from dflash_gguf.bench.cost import costs, per_million, users
from dflash_gguf.bench.measure import Pair, positions
from dflash_gguf.bench.spread import Cost, balanced, interval, quantile, ratio, seconds_per_token
from dflash_gguf.bench.summary import best, best_for, setting, slower
from dflash_gguf.bench.verdict import verdicts
from dflash_gguf.runner.prompts import PROMPTS
from dflash_gguf.runner.session import Round


def test_quantiles_lie_between_values_by_proportion():
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([0.0, 10.0], 0.25) == 2.5
    assert quantile([7.0], 0.975) == 7.0


def test_a_ratio_is_over_all_tokens_of_a_group_and_the_groups_count_alike():
    code = [Cost(10.0, 100, 5.0, 100), Cost(2.0, 100, 1.0, 100)]
    prose = [Cost(1.0, 10, 2.0, 10)]
    assert seconds_per_token(code) == (12 / 200, 6 / 200)
    # code: 0.06 s a token against 0.03, prose: 0.1 against 0.2.
    assert balanced([code, prose]) == (pytest.approx(0.08), pytest.approx(0.115))
    assert ratio([code, prose]) == pytest.approx(0.08 / 0.115)


def test_an_interval_needs_prompts_holds_the_ratio_and_is_the_same_each_time():
    costs_of = [Cost(1.0, 100, drafted, 100) for drafted in (0.4, 0.5, 0.6, 0.7)]
    assert interval([costs_of[:2]]) is None
    low, high = interval([costs_of])
    assert 1 / 0.7 <= low < ratio([costs_of]) < high <= 1 / 0.4
    assert interval([costs_of]) == (low, high)
    same = [Cost(1.0, 100, 0.5, 100)] * 3
    assert interval([same]) == (pytest.approx(2.0), pytest.approx(2.0))


def test_an_interval_over_groups_needs_prompts_in_each_of_them():
    three, two = [Cost(1.0, 100, 1.0, 100)] * 3, [Cost(1.0, 100, 0.5, 100), Cost(1.0, 100, 0.4, 100)]
    slow, fast = Cost(1.0, 100, 1 / 0.5, 100), Cost(1.0, 100, 1 / 3.3, 100)
    assert interval([three, [slow], [fast]]) is None
    assert interval([three, two]) is None
    low, high = interval([three, [*two, two[0]]])
    # With all of the second group at one of its costs: 2 / (1 + 0.5), and 2 / (1 + 0.4).
    assert low == pytest.approx(2 / 1.5)
    assert high == pytest.approx(2 / 1.4)
    assert interval([two, three]) is None


def test_the_built_in_prose_has_too_few_prompts_for_an_interval():
    pairs = [pair(one.kind, i, drafted_ms=500.0 + i) for i, one in enumerate(PROMPTS)]
    found = {row.kind: row.speed for row in setting(None, pairs).rows}
    assert {kind: speed.low is None for kind, speed in found.items()} == {
        "structured": False,
        "code": False,
        "prose": True,
        "all": True,
    }
    assert verdicts([setting(None, pairs)])[-1].endswith("times the tokens per second)")


def test_one_kind():
    pairs = [
        pair(prompt=0, plain_ms=1000.0, drafted_ms=500.0),
        pair(prompt=0, run=1, plain_ms=1000.0, drafted_ms=400.0),
        pair(prompt=1, plain_ms=2000.0, drafted_ms=1000.0, same=False),
    ]
    found = setting(None, pairs)
    (code,) = found.kinds
    assert found.rows == found.kinds
    # 300 tokens in 4.0 s, and in 1.9 s.
    assert code.speed.plain == pytest.approx(75.0)
    assert code.speed.drafted == pytest.approx(300 / 1.9)
    assert code.speed.ratio == pytest.approx(4.0 / 1.9)
    assert (code.speed.lowest, code.speed.highest) == (2.0, 2.5)
    assert code.speed.low is None
    assert (code.n, code.n_same, code.n_tokens) == (3, 2, 303)
    assert code.drafts.acceptance_length == 1 + 150 / 150
    assert (code.drafts.draft_n, code.drafts.draft_n_accepted, code.drafts.verify_calls) == (300, 150, 150)
    assert code.drafts.accepted_per_position == (0.8, 0.2)
    assert code.shares == pytest.approx({"draft": 0.25, "verify": 0.5, "accept": 0.05, "inject": 0.1, "other": 0.1})
    assert code.first_token_ms == (60.0, 70.0)
    assert code.verdict == "faster"


def test_kinds_count_alike_in_the_record_of_all():
    pairs = [pair("code", i, drafted_ms=500.0) for i in range(3)] + [pair("prose", 3, drafted_ms=2000.0)]
    found = setting(7, pairs)
    assert [row.kind for row in found.rows] == ["code", "prose", "all"]
    # A token takes 10 ms without; with it 5 and 20, 12.5 on average.
    assert found.all.speed.ratio == pytest.approx(10 / 12.5)
    assert [row.verdict for row in found.rows] == ["faster", "slower", "slower"]
    assert slower(found) == ("prose", "all")


@pytest.mark.parametrize(
    ("drafted_ms", "verdict"), [(979.0, "faster"), (981.0, "as fast"), (1019.0, "as fast"), (1022.0, "slower")]
)
def test_a_small_difference_is_none(drafted_ms, verdict):
    assert setting(None, [pair(drafted_ms=drafted_ms)]).all.verdict == verdict


def test_where_the_interval_holds_1_the_verdict_is_open():
    pairs = [pair(prompt=i, drafted_ms=ms) for i, ms in enumerate((600.0, 1300.0, 700.0, 1250.0))]
    found = setting(None, pairs).all
    assert found.speed.ratio > 1.02
    assert found.speed.low < 1 < found.speed.high
    assert found.verdict == "as fast"


def test_without_an_interval_the_verdict_is_open_where_prompts_disagree():
    (two,) = setting(None, [pair(prompt=0, drafted_ms=1250.0), pair(prompt=1, drafted_ms=900.0)]).kinds
    assert (two.speed.low, two.verdict) == (None, "as fast")
    (two,) = setting(None, [pair(prompt=0, drafted_ms=1250.0), pair(prompt=1, drafted_ms=1020.0)]).kinds
    assert two.verdict == "slower"


def test_positions_are_counted_from_the_rounds():
    rounds = [Round((1,), 0, 0), Round((2, 3), 3, 1), Round((4, 5, 6), 2, 2)]
    counts = stats(draft_n=5, accepted=3)
    assert positions(rounds, counts) == ((2, 2, 1), (2, 1, 0))
    # A last round that brought an end token alone is no event.
    assert positions(rounds, stats(draft_n=7, accepted=4)) == ((3, 3, 1), (3, 1, 0))
    # One that an end cut short kept fewer than it had right.
    assert positions(rounds, stats(draft_n=5, accepted=2)) == ((2, 2, 1), (2, 0, 0))
    assert positions([Round((1,), 0, 0)], stats()) == ((), ())


def test_positions_drafted_less_often_are_rated_by_their_own_count():
    deep = measured(stats(draft_n=5, accepted=2, verify=2), drafted_at=(2, 2, 1), accepted_at=(1, 1, 0))
    flat = measured(stats(draft_n=2, accepted=2, verify=2), drafted_at=(2,), accepted_at=(2,))
    pairs = [Pair("code", "p", i, 0, 0, measured(stats()), one) for i, one in enumerate((deep, flat))]
    assert setting(None, pairs).all.drafts.accepted_per_position == (3 / 4, 1 / 2, 0.0)


def test_an_answer_of_one_token_has_no_speed():
    short = measured(stats(1, 0.0001))
    alone = Pair("code", "p", 0, 0, 0, short, short)
    found = setting(None, [alone])
    assert found.all.speed is None
    assert found.all.verdict == "unknown"
    assert verdicts([found]) == ("code: too little was written to tell",)
    both = setting(None, [alone, pair(prompt=1)])
    assert both.all.speed.ratio == pytest.approx(2.0)


def test_cost():
    # 101 tokens in 60 ms and 1000 ms: 1.06 s; with the drafter 0.57 s. An hour costs 3.6: 0.001 a second.
    found = costs([pair()], 3.6)
    assert per_million(3.6, 1.06, 101) == pytest.approx(0.001 * 1.06 / 101 * 1e6)
    assert found.plain_per_million == pytest.approx(0.001 * 1.06 / 101 * 1e6)
    assert found.drafted_per_million == pytest.approx(0.001 * 0.57 / 101 * 1e6)
    assert found.users == pytest.approx(1.06 / 0.57)


def test_users_compares_answers_of_the_same_length():
    longer = Pair("code", "p", 0, 0, 0, pair().plain, pair(n=201, drafted_ms=1000.0).drafted)
    assert users([longer]) == pytest.approx(1.06 / 0.57)


def sweep(*ratios):
    """Settings whose ratios of code and prose are given."""
    return [
        setting(depth, [pair("code", 0, drafted_ms=1000 / code), pair("prose", 1, drafted_ms=1000 / prose)])
        for depth, code, prose in ratios
    ]


def test_a_sweep_names_the_best():
    settings = sweep((None, 1.5, 0.9), (1, 1.2, 0.95), (3, 2.0, 0.9))
    assert best(settings).name == "3"
    assert best_for(settings, "prose")[0].name == "1"
    lines = verdicts(settings)
    assert lines[0] == "code: best at depth 3: faster with the drafter (2.00 times the tokens per second)"
    assert lines[1].startswith("prose: slower than without the drafter: do not use it (best at depth 1: 0.95 ")
    assert lines[2].startswith("best setting: depth 3: faster with the drafter (1.24 ")
    assert lines[2].endswith("; but slower than without the drafter: do not use it for prose")
    assert lines[3] == "with: --depth fixed --spec-draft-n-max 3"


def test_a_sweep_that_only_loses_says_so():
    lines = verdicts(sweep((None, 0.9, 0.8), (1, 0.7, 0.6)))
    assert lines[-1].startswith("all: slower than without the drafter: do not use it (best at depth auto: 0.85 ")
