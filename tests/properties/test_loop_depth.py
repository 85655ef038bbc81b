"""The native loop under depth control, and with short and unlikely drafts left out: the text stays the target's own."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Drafter, Target, agreeing, continuation, loop_of, perfect, wrong
from test_loop import never, prompts, proposals, shared_and_new, written
from test_loop_interrupts import Interrupting

from dflash_gguf.runner.generation import Generation

SLOW = 2e-4
"""Seconds of a pass that is to cost what it costs whatever else the machine does."""


class Slow:
    """A method that takes ``seconds`` longer, ``each`` of them for every item of its first argument."""

    def __init__(self, method, seconds=0.0, each=0.0):
        self.method, self.seconds, self.each = method, seconds, each

    def __call__(self, *arguments):
        until = time.perf_counter() + self.seconds + self.each * (len(arguments[0]) if self.each else 0)
        while time.perf_counter() < until:
            pass
        return self.method(*arguments)


def automatic_loop(target, drafter, **options):
    loop = loop_of(target, drafter, automatic=True, **options)
    loop.calibrate(1.0)
    target.passes.clear()
    drafter.asked.clear()
    return loop


def check_drafter(target, drafter):
    """What it was given are the features of the first positions."""
    assert [token for _, token in drafter.cache] == target.cache[: len(drafter.cache)]


@given(prompt=prompts, blocks=proposals, n=st.integers(1, 60), n_batch=st.integers(8, 64), sure=st.floats(0, 1))
def test_output_equals_the_target_alone_for_any_drafter(prompt, blocks, n, n_batch, sure):
    calls = iter(range(10**9))
    target = Target(n_batch=n_batch)
    drafter = Drafter(target, lambda _, k: blocks[next(calls) % len(blocks)][:k])
    drafter.confidence = lambda k: [sure] * k
    loop = automatic_loop(target, drafter)
    tokens, _ = written(loop, prompt, n)
    assert tokens == continuation(prompt, n)
    check_drafter(target, drafter)
    assert loop.stats.n_injected == len(drafter.cache)


@given(data=st.data(), counts=st.lists(st.integers(0, 7), min_size=1, max_size=3), recurrent=st.booleans())
def test_rows_that_wait_go_back_with_the_text(data, counts, recurrent):
    first, second = shared_and_new(data)
    target = Target(recurrent=recurrent)
    drafter = Drafter(target, agreeing(counts))
    drafter.draft = Slow(drafter.draft, SLOW / 4)
    loop, cached = automatic_loop(target, drafter), []
    for prompt in (first, second, second, first):
        generation = Generation(loop, never, 12, cached=cached)
        assert [t for step in generation.rounds(prompt) for t in step.tokens] == continuation(prompt, 12)
        assert cached == target.cache
        check_drafter(target, drafter)


def test_a_drafter_that_is_always_wrong_is_hardly_asked_and_its_rows_wait():
    target = Target()
    drafter = Drafter(target, wrong())
    target.decode = Slow(target.decode, SLOW, SLOW)
    drafter.draft = Slow(drafter.draft, SLOW)
    given = []
    inject = drafter.inject
    drafter.inject = lambda rows, pos: (given.append(len(rows)), inject(rows, pos))
    loop = automatic_loop(target, drafter)
    given.clear()
    tokens, _ = written(loop, [5], 200)
    assert tokens == continuation([5], 200)
    assert 1 <= len(drafter.asked) <= 20
    assert len(given) <= 40
    assert max(given) > 8


def test_a_drafter_that_is_always_right_is_asked_for_all_it_may():
    target = Target()
    drafter = Drafter(target, perfect())
    target.decode = Slow(target.decode, 5 * SLOW)
    loop = automatic_loop(target, drafter)
    tokens, _ = written(loop, [5], 200)
    assert tokens == continuation([5], 200)
    assert loop.stats.n_verify <= 60
    assert loop.stats.accepted_at[6] > 0


def test_calibration_times_every_width_and_forgets_its_tokens():
    target = Target()
    drafter = Drafter(target, perfect())
    loop = loop_of(target, drafter, automatic=True)
    target.decode = Slow(target.decode, 0, SLOW)
    drafter.draft = Slow(drafter.draft, SLOW)
    loop.calibrate(1.0)
    assert {width for width, _ in target.passes} == set(range(1, 9))
    assert set(drafter.asked) == set(range(1, 8))
    assert target.cache == drafter.cache == []
    for width in range(1, 9):
        assert loop.control.cost_verify(width) >= width * SLOW
    assert loop.control.cost_draft(7) >= SLOW
    assert loop.control.cost_verify(8) > 2 * loop.control.cost_verify(2)


def test_calibration_without_time_knows_the_narrowest_and_the_widest():
    target = Target()
    drafter = Drafter(target, perfect())
    loop = loop_of(target, drafter, automatic=True)
    loop.calibrate(0.0)
    assert sorted({width for width, _ in target.passes}) == [1, 8]
    loop = loop_of(target, drafter)
    target.passes.clear()
    loop.calibrate(1.0)
    assert (loop.control, target.passes) == (None, [])


@pytest.mark.parametrize(
    ("p_min", "n_min", "verified"),
    [(0.0, 0, 7), (0.5, 0, 2), (0.5, 2, 2), (0.5, 3, 0), (0.95, 0, 0), (0.0, 7, 7)],
)
def test_unlikely_and_short_drafts_are_not_verified(p_min, n_min, verified):
    target = Target()
    drafter = Drafter(target, perfect())
    drafter.confidence = lambda _: [0.9, 0.5, 0.4, 0.9, 0.9, 0.9, 0.9]
    loop = loop_of(target, drafter, n_min=n_min, p_min=p_min)
    loop.begin()
    loop.prefill([5], True)
    assert loop.round(7) == continuation([5], verified + 2)[1:]
    loop.commit(verified + 1)
    assert (loop.stats.n_drafts, loop.stats.draft_n, loop.n_drafted) == (1, verified, verified)
    assert loop.stats.drafted_at == [1] * verified + [0] * (7 - verified)


def test_where_too_little_is_left_for_a_draft_nothing_is_drafted():
    target = Target()
    drafter = Drafter(target, perfect())
    loop = loop_of(target, drafter, n_min=5)
    loop.begin()
    loop.prefill([5], True)
    assert len(loop.round(4)) == 1
    loop.commit(1)
    assert drafter.asked == []
    assert len(loop.round(5)) == 6


@given(prompt=prompts, n=st.integers(1, 40), n_min=st.integers(0, 7), p_min=st.floats(0, 1), data=st.data())
def test_limits_on_drafts_leave_the_text_alone(prompt, n, n_min, p_min, data):
    target = Target()
    drafter = Drafter(target, agreeing([3, 0, 7]))
    drafter.confidence = lambda k: data.draw(st.lists(st.floats(0, 1, width=32), min_size=k, max_size=k))
    loop = loop_of(target, drafter, n_min=n_min, p_min=p_min, automatic=data.draw(st.booleans()))
    loop.calibrate(0.0)
    assert written(loop, prompt, n)[0] == continuation(prompt, n)
    assert all(width == 1 or width > n_min for width, n_logits in target.passes if n_logits == width)


@pytest.mark.parametrize("recurrent", [False, True], ids=["plain", "recurrent"])
def test_whatever_is_raised_anywhere_leaves_the_next_request_right(recurrent):
    reached = 0
    for k in range(1, 60):
        target = Target(n_batch=8, recurrent=recurrent)
        drafter = Drafter(target, agreeing([2, 0, 7]))
        drafter.n_batch = 4
        loop, cached = automatic_loop(target, drafter), []
        list(Generation(loop, never, 6, cached=cached).rounds([1, 2, 3]))
        interrupting = Interrupting(k, KeyboardInterrupt)
        interrupting.around(target, ["decode", "features", "trim", "rewind", "mark"])
        interrupting.around(drafter, ["inject", "draft", "rewind"])
        try:
            list(Generation(loop, never, 9, cached=cached).rounds([1, 2, 3, 4]))
        except KeyboardInterrupt:
            reached += 1
        interrupting.left = 0
        generation = Generation(loop, never, 9, cached=cached)
        assert [t for step in generation.rounds([1, 2, 5]) for t in step.tokens] == continuation([1, 2, 5], 9)
        check_drafter(target, drafter)
    assert reached > 10
