"""The native loop through its seam: what it writes never depends on the drafter, and its state is always right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import N_VOCAB, Drafter, Target, agreeing, continuation, hashed, loop_of, perfect, wrong

from dflash_gguf import DflashError
from dflash_gguf.runner.depth import Depths
from dflash_gguf.runner.generation import Finished, Generation, Round, Text, common_prefix
from dflash_gguf.runner.vocabulary import TextStream

prompts = st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=40)
proposals = st.lists(st.lists(st.integers(0, N_VOCAB - 1), max_size=7), min_size=1, max_size=12)


def never(_):
    return False


def written(loop, prompt, n, is_end=never):
    generation = Generation(loop, is_end, n)
    tokens = [t for step in generation.rounds(prompt) for t in step.tokens]
    return tokens, generation


def check_state(loop, target, drafter, history):
    """Both caches end just before the newest token; what was not needed yet of a prompt waits outside the drafter's."""
    assert loop.last == history[-1]
    assert loop.n_past == len(history) - 1
    assert target.cache == history[:-1]
    given = [t for _, t in drafter.cache]
    assert given == history[: len(given)]
    assert len(given) == len(history) - 1 or loop.stats.n_verify == 0
    assert loop.stats.n_injected <= len(given)


@given(prompt=prompts, blocks=proposals, n=st.integers(1, 60), n_batch=st.integers(8, 64))
def test_output_equals_the_target_alone_for_any_drafter(prompt, blocks, n, n_batch):
    calls = iter(range(10**9))
    target = Target(n_batch=n_batch)
    drafter = Drafter(target, lambda _, k: blocks[next(calls) % len(blocks)][:k])
    loop = loop_of(target, drafter)
    tokens, _ = written(loop, prompt, n)
    assert tokens == continuation(prompt, n)
    check_state(loop, target, drafter, prompt + tokens)
    assert loop.stats.n_injected == len(drafter.cache)


@given(prompt=prompts, counts=st.lists(st.integers(0, 7), min_size=1, max_size=8))
def test_every_accepted_length_leaves_the_state_right(prompt, counts):
    target = Target()
    drafter = Drafter(target, agreeing(counts))
    loop = loop_of(target, drafter)
    loop.begin()
    history = [*prompt, loop.prefill(prompt, True)]
    for i in range(2 * len(counts)):
        tokens = loop.round(7)
        assert len(tokens) == counts[i % len(counts)] + 1
        loop.commit(len(tokens))
        history += tokens
        check_state(loop, target, drafter, history)
    assert history == prompt + continuation(prompt, len(history) - len(prompt))


@given(prompt=prompts, n=st.integers(1, 40), plain=st.lists(st.booleans(), min_size=1, max_size=5))
def test_requests_without_drafts_between_others(prompt, n, plain):
    """The same text; the drafter is asked for nothing, and has all it needs when it is asked again."""
    target = Target()
    drafter = Drafter(target, agreeing([7, 0, 3]))
    loop, cached = loop_of(target, drafter), []
    for alone in [*plain, False]:
        asked = len(drafter.asked)
        generation = Generation(loop, never, n, cached=cached, drafter="x", speculative=not alone)
        tokens = [t for step in generation.rounds(prompt) for t in step.tokens]
        assert tokens == continuation(prompt, n)
        if alone:
            stats = generation.summary()
            assert (len(drafter.asked), stats.draft_n, stats.drafter) == (asked, 0, None)
            assert stats.verify_calls == n - 1


def test_depth_control_learns_nothing_of_a_request_without_drafts():
    target = Target()
    loop = loop_of(target, Drafter(target, perfect()), automatic=True)
    loop.calibrate(0.01)
    written(loop, [5], 60)
    before = Depths.of(loop.control, loop.n_max)
    generation = Generation(loop, never, 60, speculative=False)
    assert sum(len(step.tokens) for step in generation.rounds([6])) == 60
    assert Depths.of(loop.control, loop.n_max) == before


@pytest.mark.parametrize("n_passes", [0, 1, 2, 3])
def test_nothing_more_is_done_once_an_answer_is_not_wanted(n_passes):
    """Between the pieces of a prompt, too; the caches say what they hold, and the next request is right."""
    target = Target(n_batch=8)
    loop, cached = loop_of(target, Drafter(target, wrong())), []
    prompt, passes = list(range(1, 13)), iter([True] * n_passes)
    generation = Generation(loop, never, 9, cached=cached, wanted=lambda: next(passes, False))
    events = list(generation.events(prompt))
    assert not any(isinstance(event, Finished) for event in events)
    assert (len(target.passes), len(events)) == (n_passes, max(0, n_passes - 1))
    assert cached == target.cache[: len(cached)]
    assert len(cached) == [0, 8, 12, 13][n_passes]
    again = Generation(loop, never, 9, cached=cached)
    assert [t for step in again.rounds(prompt) for t in step.tokens] == continuation(prompt, 9)


def test_accepts_of_every_length_occur():
    target = Target()
    drafter = Drafter(target, agreeing(list(range(8))))
    generation = Generation(loop_of(target, drafter), never, 1 + sum(range(1, 9)))
    steps = list(generation.rounds([1, 2, 3]))
    assert [step.draft_n_accepted for step in steps[1:]] == list(range(8))


@given(prompt=prompts, counts=st.lists(st.integers(0, 7), min_size=1, max_size=4), data=st.data())
def test_a_stop_anywhere_in_a_round_leaves_the_state_right(prompt, counts, data):
    target = Target()
    drafter = Drafter(target, agreeing(counts))
    loop = loop_of(target, drafter)
    loop.begin()
    history = [*prompt, loop.prefill(prompt, True)]
    for _ in range(4):
        tokens = loop.round(7)
        kept = data.draw(st.integers(1, len(tokens)), label="kept")
        loop.commit(kept)
        history += tokens[:kept]
        check_state(loop, target, drafter, history)
    assert history == prompt + continuation(prompt, len(history) - len(prompt))


@given(prompt=prompts, at=st.integers(0, 30), counts=st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_an_end_token_ends_the_text_and_is_not_part_of_it(prompt, at, counts):
    expected = continuation(prompt, at + 1)
    end = expected[-1]
    expected = expected[: expected.index(end)]
    target = Target()
    drafter = Drafter(target, agreeing(counts))
    tokens, generation = written(loop_of(target, drafter), prompt, 64, lambda token: token == end)
    assert tokens == expected
    assert generation._reason == "stop"
    assert [t for _, t in drafter.cache] == target.cache[: len(drafter.cache)]


def test_the_first_token_waits_for_the_target_alone():
    target = Target()
    drafter = Drafter(target, perfect())
    loop = loop_of(target, drafter)
    loop.begin()
    loop.prefill([5, 6, 7], True)
    assert drafter.cache == []
    loop.round(3)
    assert [t for _, t in drafter.cache] == [5, 6, 7]
    loop.begin()
    loop.prefill([1] * 60, True)
    assert len(drafter.cache) == 48, "two full batches"


def test_a_perfect_drafter_has_every_block_accepted():
    target = Target()
    drafter = Drafter(target, perfect())
    loop = loop_of(target, drafter)
    tokens, _ = written(loop, [5], 1 + 8 * 5)
    assert tokens == continuation([5], 41)
    stats = loop.stats
    assert (stats.n_drafts, stats.n_verify, stats.draft_n, stats.draft_n_accepted) == (5, 5, 35, 35)
    assert stats.drafted_at == stats.accepted_at == [5] * 7
    assert target.n_trims == 0, "nothing is trimmed when everything is kept"


def test_a_wrong_drafter_gives_one_token_a_round():
    target = Target()
    loop = loop_of(target, Drafter(target, wrong()))
    tokens, _ = written(loop, [5], 12)
    assert tokens == continuation([5], 12)
    stats = loop.stats
    assert (stats.n_verify, stats.draft_n_accepted) == (11, 0)
    assert stats.accepted_at == [0] * 7


def test_only_the_prompts_last_row_and_verified_rows_ask_for_logits():
    target = Target(n_batch=8)
    loop = loop_of(target, Drafter(target, wrong()))
    written(loop, [*range(16), 0], 3)
    assert target.passes == [(8, 0), (8, 0), (1, 1), (2, 2), (1, 1)]


@given(n_max=st.integers(1, 7), n=st.integers(1, 20))
def test_no_round_drafts_past_the_limits(n_max, n):
    target = Target()
    drafter = Drafter(target, perfect())
    tokens, _ = written(loop_of(target, drafter, n_max), [3, 4], n)
    assert len(tokens) == n
    assert all(asked <= n_max for asked in drafter.asked)
    assert sum(asked + 1 for asked in drafter.asked) <= n


@given(n_prompt=st.integers(1, 20), counts=st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_the_context_fills_exactly_to_its_end(n_prompt, counts):
    target = Target(n_ctx=20)
    drafter = Drafter(target, agreeing(counts))
    prompt = [1] * n_prompt
    tokens, generation = written(loop_of(target, drafter), prompt, -1)
    assert tokens == continuation(prompt, 20 - n_prompt + 1)
    assert generation._reason == "length"


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers():
    target = Target(n_ctx=20)
    with pytest.raises(DflashError, match=r"21 tokens.*at most 20"):
        written(loop_of(target, None, 0), [1] * 21, 5)


@pytest.mark.parametrize("prompt", [[], [N_VOCAB], [-1]])
def test_prompts_that_cannot_be_decoded_are_refused(prompt):
    target = Target()
    with pytest.raises(DflashError):
        written(loop_of(target, None, 0), prompt, 5)
    assert target.passes == []


def test_plain_decoding_reads_no_features():
    target = Target()
    target.features = None
    tokens, _ = written(loop_of(target, None, 0), [1, 2], 9)
    assert tokens == continuation([1, 2], 9)


def test_a_failure_in_a_pass_leaves_the_loop_usable():
    target = Target()
    drafter = Drafter(target, agreeing([2]))
    loop = loop_of(target, drafter)
    target.fail_after = 3
    generation = Generation(loop, never, 30)
    with pytest.raises(RuntimeError, match="scripted failure"):
        list(generation.rounds([1, 2]))
    target.fail_after = None
    assert written(loop, [1, 2], 30)[0] == continuation([1, 2], 30)


def test_a_round_is_kept_in_part_or_dropped_by_the_next_request():
    loop = loop_of(Target(), None, 0)
    loop.begin()
    loop.prefill([1], True)
    loop.round(3)
    with pytest.raises(DflashError, match=r"commit\(0\) after a round of 1 tokens"):
        loop.commit(0)
    assert loop.pending
    loop.begin()
    assert not loop.pending


def test_a_stop_within_a_round_counts_what_was_kept():
    target = Target()
    loop = loop_of(target, Drafter(target, perfect()))
    loop.begin()
    loop.prefill([5], True)
    assert len(loop.round(7)) == 8
    loop.commit(3)
    stats = loop.stats
    assert (stats.draft_n, stats.draft_n_accepted) == (7, 3)
    assert stats.accepted_at == [1, 1, 1, 0, 0, 0, 0]


def test_calls_out_of_order_are_refused():
    loop = loop_of(Target(), None, 0)
    loop.begin()
    with pytest.raises(DflashError, match="no prompt"):
        loop.round(3)
    loop.prefill([1], True)
    with pytest.raises(DflashError, match="prompt is over"):
        loop.prefill([1], True)
    loop.round(3)
    with pytest.raises(DflashError, match="not committed"):
        loop.round(3)
    with pytest.raises(DflashError, match=r"commit\(2\)"):
        loop.commit(2)


def test_a_drafter_of_another_feature_width_is_refused():
    target = Target()
    drafter = Drafter(target, wrong())
    drafter.n_features = 4
    with pytest.raises(DflashError, match=r"4 floats.*have 3"):
        loop_of(target, drafter)


def test_the_choice_is_the_lowest_of_equal_logits_and_never_nan():
    import numpy as np

    target = Target()
    rows = {"row": np.zeros(N_VOCAB, np.float32)}
    target.decode = lambda tokens, pos, n_logits: np.stack([rows["row"]] * n_logits)
    loop = loop_of(target, None, 0)
    loop.begin()
    rows["row"][[3, 9]] = 2.0
    rows["row"][[0, 15]] = np.nan
    assert loop.prefill([1], True) == 3
    rows["row"][:] = np.nan
    with pytest.raises(DflashError, match=r"no finite maximum"):
        loop.round(0)


def test_hashed_depends_on_the_whole_history():
    assert len({hashed([a, 1, 2, 3]) for a in range(N_VOCAB)}) > 4


def shared_and_new(data):
    """A prompt, and another that begins like the first and its answer up to some place."""
    first = data.draw(prompts, label="first")
    whole = first + continuation(first, 12)
    shared = data.draw(st.integers(0, len(whole)), label="shared")
    return first, whole[:shared] + data.draw(prompts, label="rest")


@given(data=st.data(), counts=st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_what_two_prompts_share_is_kept_and_the_answer_is_that_of_a_fresh_run(data, counts):
    first, second = shared_and_new(data)
    target = Target()
    drafter = Drafter(target, agreeing(counts))
    loop, cached = loop_of(target, drafter), []
    for prompt in (first, second):
        generation = Generation(loop, never, 12, cached=cached)
        before = list(target.cache)
        tokens = [t for step in generation.rounds(prompt) for t in step.tokens]
        assert tokens == continuation(prompt, 12)
        check_state(loop, target, drafter, prompt + tokens)
        assert cached == target.cache
        stats = generation.summary()
        assert stats.cache_n == min(common_prefix(before, prompt), len(prompt) - 1)
        assert stats.prompt_n == len(prompt) - stats.cache_n


@given(data=st.data(), counts=st.lists(st.integers(0, 7), min_size=1, max_size=3))
def test_a_recurrent_target_goes_back_to_the_nearest_mark(data, counts):
    first, second = shared_and_new(data)
    target = Target(recurrent=True)
    drafter = Drafter(target, agreeing(counts))
    loop, cached = loop_of(target, drafter), []
    for prompt in (first, second, second):
        before, marks = list(cached), list(target.marks)
        generation = Generation(loop, never, 12, cached=cached)
        assert [t for step in generation.rounds(prompt) for t in step.tokens] == continuation(prompt, 12)
        assert cached == target.cache
        shared = min(common_prefix(before, prompt), len(prompt) - 1)
        kept = shared if shared == len(before) else max([0, *(mark for mark in marks if mark <= shared)])
        assert generation.summary().cache_n == kept
        assert set(target.marks) >= {mark for mark in (len(prompt) - 1, len(prompt) - 17) if mark > kept}
    assert generation.summary().cache_n == len(second) - 1, "the same prompt again"


def test_a_prompt_that_ends_just_behind_the_cache_is_marked_there_too():
    target = Target(recurrent=True)
    loop, cached = loop_of(target, Drafter(target, agreeing([0]))), []
    list(Generation(loop, never, 12, cached=cached).rounds([0, 0]))
    again = [*cached, 0]
    for _ in range(2):
        generation = Generation(loop, never, 12, cached=cached)
        list(generation.rounds(again))
        assert generation.summary().cache_n == len(again) - 1


@given(data=st.data(), least=st.integers(1, 30))
def test_a_memory_that_does_not_reach_back_starts_over(data, least):
    first, second = shared_and_new(data)
    for of_target in (True, False):
        target = Target()
        drafter = Drafter(target, agreeing([3]))
        (target if of_target else drafter).least = least
        loop, cached = loop_of(target, drafter), []
        list(Generation(loop, never, 12, cached=cached).rounds(first))
        shared = min(common_prefix(cached, second), len(second) - 1)
        generation = Generation(loop, never, 12, cached=cached)
        assert [t for step in generation.rounds(second) for t in step.tokens] == continuation(second, 12)
        assert cached == target.cache
        assert generation.summary().cache_n == (shared if shared >= least else 0)


def test_a_failed_pass_makes_the_next_request_start_over():
    target = Target()
    loop, cached = loop_of(target, Drafter(target, perfect())), []
    list(Generation(loop, never, 9, cached=cached).rounds([1, 2, 3]))
    assert cached
    target.fail_after = len(target.passes)
    with pytest.raises(RuntimeError, match="scripted failure"):
        list(Generation(loop, never, 9, cached=cached).rounds([1, 2, 3, 4]))
    assert cached == []
    target.fail_after = None
    generation = Generation(loop, never, 9, cached=cached)
    assert [t for step in generation.rounds([1, 2, 3, 4]) for t in step.tokens] == continuation([1, 2, 3, 4], 9)
    assert generation.summary().cache_n == 0


@pytest.mark.parametrize("n_ctx", [1, 6, 9, 30])
def test_behind_the_end_of_the_drafters_context_nothing_is_drafted(n_ctx):
    target = Target()
    drafter = Drafter(target, perfect())
    drafter.n_ctx = n_ctx
    loop, cached = loop_of(target, drafter), []
    for prompt in ([1, 2, 3, 4], [1, 2, 3, 4, 5]):
        generation = Generation(loop, never, 20, cached=cached)
        assert [t for step in generation.rounds(prompt) for t in step.tokens] == continuation(prompt, 20)
        assert len(drafter.cache) == min(n_ctx, len(target.cache))
    assert generation.summary().cache_n == 4
    assert all(asked + 1 <= n_ctx for asked in drafter.asked)


def test_stop_strings_end_the_round_before_it_is_committed():
    target = Target()
    drafter = Drafter(target, perfect())
    loop, cached = loop_of(target, drafter), []
    answer = continuation([1, 2], 30)
    letters = [chr(97 + t).encode() for t in range(N_VOCAB)]
    written_text = b"".join(letters[t] for t in answer).decode()
    for length in (1, 2, 3):
        for start in range(12):
            stop = written_text[start : start + length]
            text = TextStream(letters.__getitem__, [stop])
            generation = Generation(loop, never, 30, cached=cached, text=text)
            events = list(generation.events([1, 2]))
            assert "".join(e.text for e in events if isinstance(e, Text)) == written_text[: written_text.find(stop)]
            assert events[-1].reason == "stop"
            kept = written_text.find(stop) + length
            assert [t for e in events if isinstance(e, Round) for t in e.tokens] == answer[:kept]
            check_state(loop, target, drafter, [1, 2, *answer[:kept]])
