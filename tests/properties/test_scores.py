"""What the target thought of each token of the text: its own softmax, whatever chose the token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import N_VOCAB, Drafter, Target, agreeing, continuation, hashed, loop_of

from dflash_gguf import DflashError, Session
from dflash_gguf.runner.generation import Finished, Generation, Round, Text
from dflash_gguf.runner.vocabulary import TextStream


def row_of(history):
    """Logits that depend on the whole history; a token has none."""
    row = np.random.default_rng(hashed(history)).normal(0, 3, N_VOCAB).astype(np.float32)
    row[5] = -np.inf
    return row


def best_of(history):
    return int(row_of(history).argmax())


class Noisy(Target):
    """A target whose rows are not flat."""

    def decode(self, tokens, pos, n_logits):
        super().decode(tokens, pos, n_logits)
        ends = range(len(self.cache) - n_logits + 1, len(self.cache) + 1)
        return np.array([row_of(self.cache[:end]) for end in ends], np.float32).reshape(n_logits, N_VOCAB)


def logprobs_of(row):
    row = row.astype(np.float64)
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


LETTERS = [chr(97 + token).encode() for token in range(N_VOCAB)]


def events_of(counts, n, n_best, *, stop=(), is_end=lambda _: False, letters=LETTERS, prompt=(1, 2)):
    target = Noisy(choose=best_of)
    loop = loop_of(target, Drafter(target, agreeing(counts, best_of)))
    text = TextStream(letters.__getitem__, stop)
    return list(Generation(loop, is_end, n, text=text, logprobs=n_best).events(list(prompt)))


@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    n=st.integers(1, 30),
    n_best=st.integers(0, N_VOCAB + 2),
)
def test_each_token_has_the_targets_own_log_probability(counts, n, n_best):
    history = [1, 2]
    scores = [score for event in events_of(counts, n, n_best) if isinstance(event, Text) for score in event.scores]
    assert [score.token for score in scores] == continuation(history, n, best_of)
    for place, score in enumerate(scores):
        row = row_of(history)
        expected = logprobs_of(row)
        order = sorted(np.flatnonzero(np.isfinite(row)), key=lambda token: (-row[token], token))[:n_best]
        assert score.logprob == pytest.approx(expected[score.token], abs=1e-6)
        assert [token for token, _ in score.best] == order
        assert [logprob for _, logprob in score.best] == pytest.approx(expected[order], abs=1e-6)
        assert score.offset == place
        history.append(score.token)


@settings(max_examples=40)
@given(counts=st.lists(st.integers(0, 7), min_size=1, max_size=4), start=st.integers(0, 12), length=st.integers(1, 4))
def test_tokens_behind_a_stop_string_have_none(counts, start, length):
    whole = b"".join(LETTERS[token] for token in continuation([1, 2], 30, best_of)).decode()
    events = events_of(counts, 30, 1, stop=[whole[start : start + length]])
    texts = [event for event in events if isinstance(event, Text)]
    said = "".join(event.text for event in texts)
    assert "".join(LETTERS[score.token].decode() for event in texts for score in event.scores) == said
    assert all(len(event.text) == len(event.scores) for event in texts)  # each with its own text


def test_an_end_token_has_none_and_tokens_without_text_have_theirs():
    answer = continuation([1, 2], 30, best_of)
    end = answer[9]
    kept = answer[: answer.index(end)]
    silent = [b"" if token == kept[-1] else text for token, text in enumerate(LETTERS)]
    events = events_of([3], 30, 0, is_end=lambda token: token == end, letters=silent)
    scores = [score.token for event in events if isinstance(event, Text) for score in event.scores]
    assert scores == kept == [token for event in events if isinstance(event, Round) for token in event.tokens]


def test_a_character_of_several_tokens_comes_with_all_of_them():
    halves = [bytes([b"\xc3\xa4"[token % 2]]) for token in range(N_VOCAB)]
    events = events_of([2], 12, 0, letters=halves)
    assert sum(len(event.scores) for event in events if isinstance(event, Text)) == 12
    said = ""
    for event in events:
        if isinstance(event, Text):
            assert all(len(said) <= score.offset for score in event.scores)
            said += event.text


def test_nobody_asked():
    target = Noisy(choose=best_of)
    loop = loop_of(target, None)
    assert all(
        not event.scores for event in Generation(loop, lambda _: False, 4).events([1]) if isinstance(event, Text)
    )
    assert loop.scores == []
    loop.begin()
    loop.report(2)
    loop.prefill([1], True)
    assert len(loop.scores) == 1
    loop.begin()
    loop.prefill([1], True)
    assert loop.scores == []  # what was asked for is forgotten with the request


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 2.0, "logit_bias": {7: 9.0}, "top_k": 3}])
def test_what_chose_a_token_does_not_matter(tiny_target, sampling):
    prompt = [7, 8, 9]
    with Session(tiny_target, n_ctx=64, n_threads=1) as session:
        options = {"seed": 3, "repeat_penalty": 1.5, **sampling}
        events = list(session.generate(prompt, max_tokens=6, logprobs=4, **options))
        scores = [score for event in events if isinstance(event, Text) for score in event.scores]
        assert isinstance(events[-1], Finished)
        assert len(scores) == events[-1].stats.predicted_n > 0
        for place, score in enumerate(scores):
            list(session.generate(prompt, max_tokens=place + 1, **options))
            expected = logprobs_of(session.newest_logits())
            assert score.logprob == pytest.approx(expected[score.token], abs=1e-4)
            assert [token for token, _ in score.best] == np.argsort(-expected, kind="stable")[:4].tolist()
        with pytest.raises(DflashError, match="logprobs"):
            session.generate(prompt, logprobs=-1)
