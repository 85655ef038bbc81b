"""`bench` on a real pair of tiny models: its figures against a count of our own, from the events and from the core."""

import pytest

from dflash_gguf import Session
from dflash_gguf.bench.measure import Plan, measured, series
from dflash_gguf.bench.prompts import BenchPrompt
from dflash_gguf.bench.summary import setting
from dflash_gguf.demo.pair import checkpoint_folder, target_file
from dflash_gguf.errors import BenchError
from dflash_gguf.runner.session import Finished, Round, Text

GREEDY = {"temperature": 0.0, "seed": 1}
N = 24
OPTIONS = {"n_ctx": 512, "n_threads": 1, "flash_attention": "on"}


@pytest.fixture
def pair(tiny_target, tiny_drafter):
    """Two sessions on random weights: fast, and next to nothing is accepted."""
    with Session(tiny_target, **OPTIONS) as plain, Session(tiny_target, tiny_drafter, **OPTIONS) as drafted:
        yield plain, drafted


@pytest.fixture
def demo(tmp_path):
    """A session on the demonstration pair, whose drafts are accepted often enough to count."""
    from dflash_gguf.convert.api import convert

    convert(checkpoint_folder(), target_file(), "Q8_0", tmp_path / "draft.gguf")
    with Session(target_file(), tmp_path / "draft.gguf", depth="fixed", **OPTIONS) as session:
        yield session


class Recorded:
    """A session whose events are kept, so that the very requests which `bench` made can be counted once more."""

    def __init__(self, session):
        self.session, self.requests = session, []

    def __getattr__(self, name):
        return getattr(self.session, name)

    def generate(self, *args, **options):
        events = []
        self.requests.append(events)
        for event in self.session.generate(*args, **options):
            events.append(event)
            yield event


def counted(events):
    """Tokens, text, and of every verify pass how many tokens were drafted and accepted, as the events tell."""
    tokens, text, passes = [], "", []
    for event in events:
        match event:
            case Round(kept, draft_n, accepted):
                passes += [(draft_n, accepted)] if tokens else []
                tokens += kept
            case Text(piece):
                text += piece
            case Finished(reason):
                assert reason == "length"
    return tokens, text, passes


def test_a_request_agrees_with_a_count_of_its_events(demo):
    recorded = Recorded(demo)
    found = measured(recorded, demo.tokenize("Count from 15 to 60."), N, GREEDY)
    tokens, text, passes = counted(recorded.requests[-1])
    assert found.ids == tuple(tokens)
    assert len(found.ids) == found.stats.predicted_n == N
    assert found.text == text
    assert found.stats.draft_n == sum(n for n, _ in passes) > 0
    assert found.stats.draft_n_accepted == sum(accepted for _, accepted in passes) > 0
    assert found.stats.verify_calls == len(passes)
    # Each pass brings one token beside the accepted ones; the first token of all is the prompt's.
    assert 1 + len(passes) + found.stats.draft_n_accepted == N
    deepest = max(n for n, _ in passes)
    assert found.drafted_at == tuple(sum(n > i for n, _ in passes) for i in range(deepest))
    assert found.accepted_at == tuple(sum(accepted > i for _, accepted in passes) for i in range(deepest))
    rates = tuple(kept / n for n, kept in zip(found.drafted_at, found.accepted_at, strict=True))
    assert found.stats.accepted_per_position == pytest.approx(rates)


def test_a_series_sums_up_to_the_same_counts(pair):
    plain, drafted = pair[0], Recorded(pair[1])
    prompts = [BenchPrompt("structured", ("Count from 15 to 60.",)), BenchPrompt("prose", ("Describe a village.",))]
    pairs = list(series(plain, drafted, prompts, Plan(N, 2, GREEDY)))
    assert [(p.prompt, p.run) for p in pairs] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    for one in pairs:
        assert one.same, one
        assert one.plain.stats.draft_n == 0
        assert one.plain.stats.cache_n == one.drafted.stats.cache_n == 0
        assert one.plain.first_token_ms >= one.plain.stats.prompt_ms * 0.99
    # The first request is the warm-up. No other is made than those that are measured: each begins depth control anew.
    counts = [counted(events) for events in drafted.requests[1:]]
    assert len(counts) == len(pairs)
    for row, mine in zip(setting(None, pairs).kinds, (counts[0::2], counts[1::2]), strict=True):
        passes = [one for _, _, found in mine for one in found]
        accepted = sum(kept for _, kept in passes)
        assert row.n_tokens == sum(len(tokens) for tokens, _, _ in mine)
        assert row.drafts.verify_calls == len(passes)
        assert row.drafts.draft_n == sum(n for n, _ in passes)
        assert row.drafts.draft_n_accepted == accepted
        assert row.drafts.acceptance_length == 1 + accepted / len(passes)
        assert sum(row.shares.values()) == pytest.approx(1.0)
        assert row.shares["verify"] > 0
        assert row.n_same == row.n == 2


def test_nothing_is_reused_of_the_same_prompt(pair):
    _, drafted = pair
    ids = drafted.tokenize("Count from 15 to 60.")
    first, second = (measured(drafted, ids, 4, GREEDY) for _ in range(2))
    assert (first.stats.cache_n, second.stats.cache_n) == (0, 0)
    assert (first.stats.prompt_n, first.ids) == (second.stats.prompt_n, second.ids)
    for _ in drafted.generate(ids, max_tokens=4, **GREEDY):
        pass
    assert drafted.stats.cache_n == len(ids) - 1, "without `forget` all but the last token would be"


def test_both_are_told_the_answers_of_the_one_without_the_drafter(pair):
    plain, drafted = pair
    chat = BenchPrompt("chat", ("Name a colour.", "Another."), (("system", "Be brief."),))
    first, second = series(plain, drafted, [chat], Plan(12, 1, GREEDY))
    assert (first.turn, second.turn) == (0, 1)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": first.plain.text},
        {"role": "user", "content": "Another."},
    ]
    n = len(plain.tokenize(messages))
    assert second.plain.stats.prompt_n == second.drafted.stats.prompt_n == n


def test_raw_text_is_sent_as_it_is(pair):
    plain, drafted = pair
    (one,) = series(plain, drafted, [BenchPrompt("code", ("1 2 3 4", "ignored"))], Plan(8, 1, GREEDY, raw=True))
    assert one.plain.stats.prompt_n == len(plain.tokenize("1 2 3 4", raw=True))


def test_a_prompt_that_does_not_fit_is_named_before_anything_runs(pair):
    plain, drafted = pair
    prompts = [BenchPrompt("a", ("fine",)), BenchPrompt("a", ("one two " * 600,))]
    with pytest.raises(BenchError, match=r"the prompt 'one two .* tokens, expected fewer than the context's 512; ask"):
        next(series(plain, drafted, prompts, Plan(8, 1, GREEDY)))
