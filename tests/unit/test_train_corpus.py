"""Examples of a corpus, its two parts, and the numbers that features are kept in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.train.bf16 import narrowed, widened
from dflash_gguf.train.corpus import ALIKE, Corpus, drawn


def corpus_of(lengths, width=6):
    """Token t of example e is 100 * e + t, and its features are all of that number."""
    ids = np.concatenate([100 * e + np.arange(n, dtype=np.int32) for e, n in enumerate(lengths)])
    features = narrowed(np.repeat(ids[:, None].astype(np.float32), width, axis=1))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    n_prompts = np.arange(1, len(lengths) + 1, dtype=np.int32)
    return Corpus(ids, starts, n_prompts, features, (0, 1), np.arange(len(lengths)))


def test_an_example_is_its_own_tokens_and_their_rows():
    corpus = corpus_of([3, 2, 4])
    assert (len(corpus), corpus.n_features) == (3, 6)
    assert [list(example.ids) for example in corpus] == [[0, 1, 2], [100, 101], [200, 201, 202, 203]]
    assert [example.n_prompt for example in corpus] == [1, 2, 3]
    assert widened(corpus[1].features).tolist() == [[100.0] * 6, [101.0] * 6]
    assert np.shares_memory(corpus[2].features, corpus.features)


@given(st.integers(1, 20), st.data())
def test_a_split_parts_the_examples(n, data):
    corpus = corpus_of([2] * n)
    held_out, seed = data.draw(st.integers(0, n)), data.draw(st.integers(0, 99))
    train, held = corpus.split(held_out, seed)
    parts = [{int(example.ids[0]) for example in part} for part in (train, held)]
    assert (len(train), len(held)) == (n - held_out, held_out)
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == {100 * e for e in range(n)}
    again = corpus.split(held_out, seed)
    assert [list(part.order) for part in (train, held)] == [list(part.order) for part in again]


@pytest.mark.parametrize(("n", "learnt"), [(ALIKE, [2, 4]), (ALIKE - 1, [0, 2, 3, 4])])
def test_an_answer_that_is_held_out_is_learnt_from_under_no_other_prompt(n, learnt):
    """Of three prompts that are answered alike one is held out. Short answers, such as labels, are learnt anyway."""
    answer = list(range(7, 7 + n))
    texts = [[1, *answer], [2, *answer], [3, *answer[:-1]], [4, *answer], [5, 6, *answer]]
    ids = np.concatenate([np.array(text, np.int32) for text in texts])
    starts = np.cumsum([0, *map(len, texts)])
    features = np.zeros((len(ids), 2), np.uint16)
    corpus = Corpus(ids, starts, np.ones(5, np.int32), features, (1,), np.arange(5))
    seed = next(seed for seed in range(99) if drawn(5, 1, seed) == [1])
    train, held = corpus.split(1, seed)
    assert (train.order.tolist(), held.order.tolist()) == (learnt, [1])


def test_a_split_is_the_same_in_every_process():
    assert corpus_of([2] * 10).split(3, seed=7)[1].order.tolist() == [2, 5, 6]
    assert len(corpus_of([2] * 10).split(3, 7)[0].split(2, 7)[0]) == 5


@given(st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda value: abs(value) < 3e38))
def test_rounding_is_to_the_nearest(value):
    exact = np.array([[value]], np.float32)
    rounded = widened(narrowed(exact))
    cut = exact.view(np.uint32) & np.uint32(0xFFFF0000)
    neighbours = (cut, cut + np.uint32(0x10000))
    nearest = min(abs(float(bits.view(np.float32)[0, 0]) - value) for bits in neighbours)
    assert abs(float(rounded[0, 0]) - value) == nearest


@pytest.mark.parametrize("bits", [0x0000, 0x8000, 0x3F80, 0x7F7F, 0x0001])
def test_what_is_bf16_stays(bits):
    rows = np.array([[bits]], np.uint16)
    assert narrowed(widened(rows)).tolist() == [[bits]]


def test_ties_go_to_even():
    ties = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)[None]
    assert narrowed(ties).tolist() == [[0x3F80, 0x3F82]]
