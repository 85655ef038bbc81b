"""Choices through the loop's seam: the text is that of the target alone, whatever is drafted, kept or taken back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from choices import filters_of, penalties_of
from hypothesis import given
from hypothesis import strategies as st
from scripted import Drafter, Target, loop_of
from tiny_vocab import EOS_ID, EOT_ID

from dflash_gguf import DflashError, _core
from dflash_gguf.runner.models import Model
from dflash_gguf.runner.vocabulary import Vocabulary

N_VOCAB = 512
N_TEXT = 40
ENDS = (EOS_ID, EOT_ID)

TABLE = (np.random.default_rng(6).standard_normal((211, N_VOCAB)) * 2.5).astype(np.float32)
TABLE[:, 262:330] += 2.0  # tokens that come again, for penalties to act on
TABLE[:, list(ENDS)] = 0.0

GRAMMARS = {
    r"root ::= ([a-z]+ [0-9])+": r"([a-z]+[0-9])+",
    r'root ::= "(" item* ")"' + "\nitem ::= [a-e] | root": r"[(][a-e()]*[)]",
    r"root ::= [xyz]{6}": r"[xyz]{6}",
    r'root ::= "so be it"': "so be it",
}


def logits_of(history: list[int]) -> np.ndarray:
    """float32 [N_VOCAB] that depend on the newest three tokens."""
    value = 5
    for token in history[-3:]:
        value = (value * 131 + token + 1) % 1_000_003
    return TABLE[value % len(TABLE)]


class Noisy(Target):
    """A target with a whole row of logits at each place."""

    n_vocab = N_VOCAB

    def __init__(self, **options: Any) -> None:
        super().__init__(choose=lambda _: 0, **options)

    def decode(self, tokens, pos, n_logits):
        super().decode(tokens, pos, 0)
        self.passes[-1] = (len(tokens), n_logits)
        end = len(self.cache)
        rows = [logits_of(self.cache[: i + 1]) for i in range(end - n_logits, end)]
        return np.stack(rows) if rows else np.zeros((0, N_VOCAB), np.float32)


@dataclass(frozen=True, slots=True)
class Case:
    """What an answer is chosen by."""

    filters: dict[str, Any] = field(default_factory=dict)
    penalties: dict[str, Any] = field(default_factory=dict)
    bias: tuple[tuple[int, float], ...] = ()
    grammar: str = ""
    seed: int = 0

    def sampler(self, prompt: list[int]) -> _core.Sampler:
        return _core.Sampler(
            N_VOCAB,
            filters_of(**self.filters),
            self.seed,
            list(self.bias),
            penalties_of(**self.penalties),
            prompt,
            self.grammar,
            VOCABULARY[0].address,
        )


VOCABULARY: list[Vocabulary] = []


@pytest.fixture(autouse=True, scope="module")
def vocabulary(tiny_target):
    model = Model(tiny_target)
    VOCABULARY[:] = [Vocabulary(model)]
    yield VOCABULARY[0]
    VOCABULARY.clear()
    model.close()


def alone(prompt: list[int], case: Case, n: int = N_TEXT) -> list[int]:
    """The target's own text, one choice after the other, without the loop."""
    sampler, ids = case.sampler(prompt), list(prompt)
    while len(ids) < len(prompt) + n and not (case.grammar and ids[-1] in ENDS and len(ids) > len(prompt)):
        chosen = sampler.choose(logits_of(ids), len(ids))
        sampler.accept(chosen)
        ids.append(chosen)
    return ids[len(prompt) :]


def drafting(whole: list[int], rounds: list[tuple[int, list[int]]]):
    """Each round is right for so many tokens, then goes on with others."""
    calls = iter(range(10**9))

    def propose(history, n):
        right, rest = rounds[next(calls) % len(rounds)]
        return (whole[len(history) : len(history) + right] + rest)[:n]

    return propose


def through_the_loop(loop, prompt, case, n, kept=len):
    """As ``alone``; ``kept``: how many tokens of a round are committed."""
    loop.begin()
    loop.choose_by(case.sampler(prompt))
    for start in range(0, len(prompt), loop.n_batch):
        piece = prompt[start : start + loop.n_batch]
        first = loop.prefill(piece, start + len(piece) == len(prompt))
    ids = [first]
    while len(ids) < n and not (case.grammar and ids[-1] in ENDS):
        tokens = loop.round(n - len(ids) - 1)
        k = min(kept(tokens), len(tokens))
        loop.commit(k)
        ids += tokens[:k]
    return ids


PROMPTS = st.lists(st.integers(6, N_VOCAB - 1), min_size=1, max_size=30)
DRAFTS = st.lists(
    st.tuples(st.integers(0, 7), st.lists(st.integers(0, N_VOCAB - 1), max_size=7)), min_size=1, max_size=6
)
FILTERS = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.0, 0.2, 0.7, 1.0, 2.0])},
    optional={
        "top_k": st.integers(1, 60),
        "top_p": st.floats(0.1, 0.99),
        "min_p": st.floats(0.01, 0.9),
        "typical_p": st.floats(0.1, 0.99),
        "top_n_sigma": st.floats(0.3, 3),
        "dynatemp_range": st.floats(0.1, 2),
        "xtc_probability": st.floats(0.1, 1),
        "min_keep": st.integers(0, 5),
    },
)
PENALTIES = st.fixed_dictionaries(
    {},
    optional={
        "last_n": st.integers(0, 50),
        "repeat": st.floats(0.5, 2),
        "frequency": st.floats(-1, 2),
        "presence": st.floats(-1, 2),
        "dry_multiplier": st.floats(0.1, 4),
        "dry_allowed_length": st.integers(0, 3),
        "dry_breakers": st.sampled_from([[], ["\n", ":"], ["e"]]),
    },
)
CASES = st.builds(
    Case,
    filters=FILTERS,
    penalties=st.one_of(st.just({}), PENALTIES),
    bias=st.one_of(st.just(()), st.tuples(st.tuples(st.integers(0, N_VOCAB - 1), st.floats(-9, 9)))),
    grammar=st.sampled_from(["", "", *GRAMMARS]),
    seed=st.integers(0, 2**64 - 1),
)


@pytest.mark.parametrize("automatic", [False, True], ids=["fixed", "auto"])
@given(prompt=PROMPTS, case=CASES, rounds=DRAFTS, n_max=st.integers(1, 7), recurrent=st.booleans(), data=st.data())
def test_any_drafts_and_any_partial_commits_leave_the_text_alone(
    automatic, prompt, case, rounds, n_max, recurrent, data
):
    expected = alone(prompt, case)
    partly = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=5), label="kept")
    counts = iter(range(10**9))
    target = Noisy(n_batch=16, recurrent=recurrent)
    drafter = Drafter(target, drafting(prompt + expected, rounds), n_max)
    loop = loop_of(target, drafter, n_max, automatic=automatic)
    if automatic:
        loop.calibrate(0.01)
    for kept in (len, lambda _: partly[next(counts) % len(partly)]):
        found = through_the_loop(loop, prompt, case, N_TEXT, kept)
        assert found == expected
    assert through_the_loop(loop_of(Noisy(), None, 0), prompt, case, N_TEXT) == expected


@given(prompt=PROMPTS, case=CASES, rounds=DRAFTS, grammar=st.sampled_from([*GRAMMARS]))
def test_a_grammar_is_never_violated(prompt, case, rounds, grammar):
    case = Case(case.filters, case.penalties, case.bias, grammar, case.seed)
    target = Noisy()
    loop = loop_of(target, Drafter(target, drafting([], rounds)))
    ids = through_the_loop(loop, prompt, case, N_TEXT)
    text = b"".join(VOCABULARY[0].piece(i) for i in ids if i not in ENDS).decode()
    assert not set(ids[:-1]) & set(ENDS)
    if ids[-1] in ENDS:
        assert re.fullmatch(GRAMMARS[grammar], text)
    else:
        assert len(ids) == N_TEXT


def test_right_drafts_are_accepted_under_every_setting():
    """Lest the tests above pass because nothing is ever accepted."""
    for filters in ({"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.8, "top_k": 40, "top_p": 0.95}):
        for grammar in ("", *GRAMMARS):
            case, prompt = Case(filters, {"repeat": 1.2}, ((300, 1.0),), grammar, 7), [9, 8, 7]
            expected = alone(prompt, case)
            target = Noisy()
            loop = loop_of(target, Drafter(target, drafting(prompt + expected, [(7, [])])))
            assert through_the_loop(loop, prompt, case, N_TEXT) == expected
            ends = bool(grammar)  # an end token is not counted
            assert loop.stats.draft_n_accepted >= loop.stats.draft_n - ends > 0
            assert len(target.passes) <= 2 + len(expected) / 8


@given(prompt=PROMPTS, filters=FILTERS)
def test_another_seed_makes_another_text(prompt, filters):
    filters = {"temperature": max(0.7, filters["temperature"]), "top_k": 40}
    texts = {tuple(alone(prompt, Case(filters, seed=seed))) for seed in (0, 1, 2, 1 << 32, 2**64 - 1)}
    assert len(texts) == 5
    cold = {tuple(alone(prompt, Case({"temperature": 0.0}, seed=seed))) for seed in (0, 1, 2)}
    assert len(cold) == 1


@given(prompt=PROMPTS, rounds=DRAFTS, kept=st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_penalties_count_what_was_written_alone(prompt, rounds, kept):
    """With a presence penalty above every logit no token is written twice; drafts that were refused do not count."""
    case = Case({"temperature": 1.0}, {"presence": 1e4, "last_n": 512}, seed=3)
    counts = iter(range(10**9))
    expected = alone(prompt, case)
    target = Noisy()
    loop = loop_of(target, Drafter(target, drafting(prompt + expected, rounds)))
    ids = through_the_loop(loop, prompt, case, N_TEXT, lambda _: kept[next(counts) % len(kept)])
    assert ids == expected
    assert len(set(ids)) == len(ids)
    assert not set(ids) & set(prompt)


def test_the_next_request_forgets_what_chose_the_last():
    target = Noisy()
    loop = loop_of(target, Drafter(target, drafting([], [(0, [6] * 7)])))
    warm, cold = Case({"temperature": 1.0}, {"presence": 9.0}, seed=5), Case({"temperature": 0.0})
    for case in (warm, cold, warm):
        assert through_the_loop(loop, [10, 11], case, N_TEXT) == alone([10, 11], case)
    loop.begin()
    first = loop.prefill([10, 11], True)
    assert first == logits_of([10, 11]).argmax(), "without a sampler the best is taken"


def test_a_round_behind_the_end_of_a_grammar_is_refused():
    target = Noisy()
    loop = loop_of(target, Drafter(target, drafting([], [(0, [6] * 7)])))
    case = Case(grammar='root ::= "a"')
    assert through_the_loop(loop, [10, 11], case, N_TEXT)[-1] in ENDS
    with pytest.raises(DflashError, match="the grammar is at its end"):
        loop.round(3)
