"""Settings of a choice that are none: which, what it was, what was expected."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from libllama import Model

from dflash_gguf.errors import SessionError
from dflash_gguf.runner.bounds import BOUNDS, SEEDS
from dflash_gguf.runner.sampling import Sampling, SamplingOptions
from dflash_gguf.runner.vocabulary import Vocabulary

N_VOCAB = 512


class Address:
    """A model for `Vocabulary`."""

    def __init__(self, model):
        self.address = model.model


@pytest.fixture(scope="module")
def vocabulary(tiny_target):
    with Model(tiny_target) as model:
        yield Vocabulary(Address(model))


def sampler(vocabulary, prompt=(7,), **values):
    return Sampling(**{"seed": 1, **values}).sampler(vocabulary, N_VOCAB, 64, prompt)


def test_the_keywords_are_the_fields():
    assert list(SamplingOptions.__annotations__) == list(Sampling.__dataclass_fields__)


def test_the_documentation_names_each_of_them():
    text = (Path(__file__).parents[2] / "docs" / "sampling.md").read_text(encoding="utf-8")
    assert [name for name in Sampling.__dataclass_fields__ if f"`{name}`" not in text] == []


@pytest.mark.parametrize("seed", [-1, SEEDS, 10**30, True, 1.0, "1", math.nan, b"", [1]], ids=ascii)
def test_seeds(seed):
    with pytest.raises(SessionError, match=rf"`seed`: got .*expected a whole number from 0 to {SEEDS - 1}, or None"):
        Sampling(seed=seed)


def test_a_seed_is_drawn_where_there_is_none():
    drawn = {Sampling().with_seed()[1] for _ in range(20)}
    assert len(drawn) == 20
    sampling, seed = Sampling(seed=5, top_k=3).with_seed()
    assert (sampling.seed, seed, sampling.top_k) == (5, 5, 3)
    assert Sampling(seed=0).with_seed()[1] == 0
    assert Sampling(seed=SEEDS - 1).with_seed()[1] == SEEDS - 1


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -1e300, "1", None, True, [], 1j], ids=ascii)
def test_numbers(name, value):
    with pytest.raises(SessionError, match=rf"`{name}`: got .*expected a number from") as raised:
        Sampling(**{name: value})
    assert str(BOUNDS[name]) in str(raised.value)


@pytest.mark.parametrize("name", BOUNDS)
def test_both_ends_are_allowed(name):
    for value in (BOUNDS[name].least, BOUNDS[name].most):
        assert getattr(Sampling(**{name: value}), name) == value


@pytest.mark.parametrize("name", ["top_k", "min_keep", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n"])
@pytest.mark.parametrize("value", [-(1 << 32), 1 << 31, 1.5, math.nan, "1", None, True, Fraction(1, 2)], ids=ascii)
def test_whole_numbers(name, value):
    with pytest.raises(SessionError, match=f"`{name}`"):
        Sampling(**{name: value})


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        ({-1: 1.0}, r"a token of `logit_bias`: got -1, expected 0 to 511"),
        ({N_VOCAB: 1.0}, r"a token of `logit_bias`: got 512, expected 0 to 511"),
        ({1 << 40: 1.0}, r"a token of `logit_bias`: got 1099511627776"),
        ({"5": 1.0}, r"a token of `logit_bias`: got '5'"),
        ({True: 1.0}, r"a token of `logit_bias`: got True"),
        ({1.0: 1.0}, r"a token of `logit_bias`: got 1.0"),
        ({5: math.nan}, r"`logit_bias\[5\]`: got nan, expected a number from"),
        ({5: math.inf}, r"`logit_bias\[5\]`: got inf"),
        ({5: 1e30}, r"`logit_bias\[5\]`: got 1e\+30"),
        ({5: "x"}, r"`logit_bias\[5\]`: got 'x'"),
        ({5: None}, r"`logit_bias\[5\]`: got None"),
        ([(5, 1.0)], r"`logit_bias`: got .*expected token ids with a number each"),
        (None, r"`logit_bias`: got None"),
        (dict.fromkeys(range(N_VOCAB), -math.inf), r"`logit_bias` bans every token"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_biases(bias, message, vocabulary):
    with pytest.raises(SessionError, match=message):
        sampler(vocabulary, logit_bias=bias)


def test_a_ban_holds(vocabulary):
    row = np.zeros(N_VOCAB, np.float32)
    row[[9, 12]] = 30, 20
    for temperature in (0.0, 1.0):
        assert sampler(vocabulary, temperature=temperature).choose(row, 0) == 9
        assert sampler(vocabulary, temperature=temperature, logit_bias={9: -math.inf}).choose(row, 0) == 12


@pytest.mark.parametrize("breakers", ["ab", None, 5, [""], ["a\0"], [5], ["\ud800"], {"a": 1}, [b"a"]], ids=ascii)
def test_breakers(breakers):
    with pytest.raises(SessionError, match=r"sequence.breaker"):
        Sampling(dry_sequence_breakers=breakers)


@pytest.mark.parametrize("breaker", ["x" * 500, "\u20ac" * 100, "a" + "\U0001f600" * 30, "\n\n\n", "\x01"], ids=ascii)
def test_breakers_that_libllama_cuts_off(breaker, vocabulary, capfd):
    chooser = sampler(vocabulary, dry_multiplier=1.0, dry_sequence_breakers=[breaker], prompt=[7, 8, 9] * 6)
    assert chooser.choose(np.zeros(N_VOCAB, np.float32), 18) >= 0
    capfd.readouterr()


def test_the_largest_numbers_together_still_choose(vocabulary):
    """Whatever is allowed leaves numbers: penalties at their ends, on logits of any size."""
    ends = {name: bounds.most for name, bounds in BOUNDS.items() if "penalty" in name or "dry" in name}
    lows = {name: bounds.least for name, bounds in BOUNDS.items() if "penalty" in name or "dry" in name}
    for scale in (1e-30, 1.0, 1e30):
        row = np.random.default_rng(2).standard_normal(N_VOCAB).astype(np.float32) * np.float32(scale)
        for values in (ends, lows):
            for temperature in (0.0, 1e-9, 1.0, 1e6):
                chooser = sampler(vocabulary, [7, 8, 9] * 9, temperature=temperature, repeat_last_n=-1, **values)
                assert 0 <= chooser.choose(row, 30) < N_VOCAB
