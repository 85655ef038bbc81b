"""The noise: known answers, golden values that no platform or release may change, and what it is distributed like."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf import _core

WORD = st.integers(0, 2**32 - 1)
SEEDS = st.integers(0, 2**64 - 1)
PLACES = st.integers(0, 2**31 - 1)


def python_philox(counter, key):
    """Philox4x32-10 in Python's whole numbers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            (second >> 32) ^ c[1] ^ k[0],
            second & 0xFFFFFFFF,
            (first >> 32) ^ c[3] ^ k[1],
            first & 0xFFFFFFFF,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def python_uniform(seed, pos, token, draw=0):
    low, high, *_ = python_philox((pos, token, draw, 0), (seed & 0xFFFFFFFF, seed >> 32))
    bits = (high << 32 | low) >> 11
    return bits / 2**53 if bits else 2.0**-54


# Source: kat_vectors of Random123, `philox4x32 10`.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_the_known_answers_of_random123(counter, key, words):
    assert tuple(_core.philox(counter, key)) == words
    assert tuple(python_philox(counter, key)) == words


@given(counter=st.tuples(WORD, WORD, WORD, WORD), key=st.tuples(WORD, WORD))
def test_an_independent_philox_agrees(counter, key):
    assert list(_core.philox(counter, key)) == python_philox(counter, key)


@given(seed=SEEDS, pos=PLACES, token=PLACES)
def test_a_uniform_number_is_53_bits_of_the_first_two_words(seed, pos, token):
    found = _core.uniform(seed, pos, token)
    assert found == python_uniform(seed, pos, token)
    assert 0 < found < 1


def python_log(x):
    """The logarithm as docs/sampling.md writes it down."""
    m, k = math.frexp(x)
    m, k = (2 * m, k - 1) if m <= 1.41421356237309504880 / 2 else (m, k)
    s = (m - 1) / (m + 1)
    z, r = s * s, 0.0
    for n in range(21, 2, -2):
        r = (r + 1.0 / n) * z
    return k * 6.93147180369123816490e-01 + (2 * s + (2 * s * r + k * 1.90821492927058770002e-10))


@given(seed=SEEDS, pos=PLACES, token=PLACES)
def test_gumbel_noise_is_that_of_the_uniform_number_to_the_last_bit(seed, pos, token):
    uniform, found = python_uniform(seed, pos, token), _core.gumbel(seed, pos, token)
    assert found == -python_log(-python_log(uniform))
    expected = -np.log(-np.log(np.longdouble(uniform)))
    assert abs(found - expected) <= 4e-15 * max(1, abs(expected))


GOLDEN = {
    (0, 0, 0): ("0x1.c2d38b1acc4fdp-1", "0x1.07e484179cd9ep+1"),
    (0, 0, 1): ("0x1.d446c492d5a18p-1", "0x1.3543f6639883dp+1"),
    (0, 1, 0): ("0x1.72c8036fe3932p-2", "-0x1.01cd2beafc8c1p-6"),
    (1, 0, 0): ("0x1.ca141d79c7d00p-1", "0x1.190bbd0d0d8c6p+1"),
    (42, 7, 123): ("0x1.943008c56fc63p-1", "0x1.7129655e16da1p+0"),
    (4294967296, 0, 0): ("0x1.f4fcb16dfbbc7p-1", "0x1.ea091e304c595p+1"),
    (18446744073709551615, 2147483647, 2147483647): ("0x1.7937e63d239dcp-1", "0x1.2f90dc8aac64ep+0"),
    (3735928559, 1000, 248319): ("0x1.1ba86755ddb30p-4", "-0x1.f6d2ddc7e2c2dp-1"),
}


@pytest.mark.parametrize("place", GOLDEN)
def test_golden_values(place):
    uniform, gumbel = GOLDEN[place]
    assert _core.uniform(*place).hex() == uniform
    assert _core.gumbel(*place).hex() == gumbel


def test_noise_of_many_places_is_gumbels():
    """Mean: Euler's constant; variance: pi^2/6; distribution: exp(-exp(-x)), by Kolmogorov and Smirnov's test."""
    noise = np.array([_core.gumbel(7, pos, token) for pos in range(200) for token in range(500)])
    n = len(noise)
    assert abs(noise.mean() - np.euler_gamma) < 5 * np.pi / (6 * n) ** 0.5
    assert noise.var() == pytest.approx(np.pi**2 / 6, rel=0.03)
    expected = np.exp(-np.exp(-np.sort(noise)))
    assert np.abs(expected - np.arange(1, n + 1) / n).max() < 1.95 / n**0.5, "less likely than 1 in 1,000"


def test_neighbouring_seeds_places_and_tokens_share_nothing():
    base = [_core.uniform(1, pos, 5) for pos in range(2000)]
    others = (
        [_core.uniform(2, pos, 5) for pos in range(2000)],
        [_core.uniform(1, pos, 6) for pos in range(2000)],
        [_core.uniform(1, pos + 1, 5) for pos in range(2000)],
        [_core.uniform(1 + (1 << 32), pos, 5) for pos in range(2000)],
    )
    for other in others:
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.09


def row_of(seed, n=1000, scale=2.0):
    return (np.random.default_rng(seed).integers(-512, 512, n) * np.float32(scale / 256)).astype(np.float32)


def sampler(n, seed, **filters):
    settings = _core.FilterSettings()
    for name, value in filters.items():
        setattr(settings, name, value)
    return _core.Sampler(n, settings, seed)


UNFILTERED = {"temperature": 1.0}
NARROW = {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
GOLDEN_CHOICES = {
    (0, "unfiltered"): [551, 47, 48, 137, 263, 447, 87, 716, 98, 45, 608, 437],
    (0, "narrow"): [551, 47, 48, 137, 263, 250, 867, 224, 258, 45, 973, 437],
    (42, "unfiltered"): [310, 98, 243, 594, 142, 589, 212, 851, 277, 2, 8, 400],
    (42, "narrow"): [829, 59, 751, 684, 142, 208, 888, 117, 392, 752, 760, 889],
    (18446744073709551615, "unfiltered"): [803, 122, 321, 915, 856, 615, 382, 176, 860, 814, 279, 58],
    (18446744073709551615, "narrow"): [53, 394, 228, 979, 758, 400, 382, 176, 860, 814, 829, 58],
}


@pytest.mark.parametrize("case", GOLDEN_CHOICES)
def test_golden_choices(case):
    seed, filters = case
    chooser = sampler(1000, seed, **(NARROW if filters == "narrow" else UNFILTERED))
    assert [chooser.choose(row_of(pos), pos) for pos in range(12)] == GOLDEN_CHOICES[case]


@pytest.mark.parametrize("filters", [UNFILTERED, NARROW, {"temperature": 0.8, "dynatemp_range": 0.7}], ids=str)
def test_a_choice_depends_on_nothing_that_was_chosen_before(filters):
    chooser = sampler(1000, 42, **filters)
    forwards = [chooser.choose(row_of(pos), pos) for pos in range(12)]
    assert forwards == [sampler(1000, 42, **filters).choose(row_of(pos), pos) for pos in range(12)]
    assert forwards[::-1] == [chooser.choose(row_of(pos), pos) for pos in reversed(range(12))]


def test_as_many_threads_as_one_likes_choose_the_same():
    def chosen(case):
        seed, filters = case
        chooser = sampler(1000, seed, **(NARROW if filters == "narrow" else UNFILTERED))
        return [chooser.choose(row_of(pos), pos) for pos in range(12)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(chosen, [*GOLDEN_CHOICES] * 8)) == [*GOLDEN_CHOICES.values()] * 8


@pytest.mark.parametrize("n", [1, 2, 15, 16, 255, 256, 257, 1000])
@pytest.mark.parametrize("temperature", [1e-5, 0.3, 1.0, 30.0, 1e5])
def test_the_scan_over_all_tokens_is_the_plain_argmax_of_noisy_scores(n, temperature):
    for seed in range(4):
        row = row_of(seed, n, 4.0)
        row[seed % n :: 7] = -np.inf if n > 7 else row[seed % n]
        noise = np.array([_core.gumbel(seed, 9, token) for token in range(n)])
        scores = row.astype(np.float64) / temperature + noise
        assert sampler(n, seed, temperature=temperature).choose(row, 9) == scores.argmax()
        assert sampler(n, seed, temperature=temperature, top_k=n).choose(row, 9) == scores.argmax()


def test_ties_of_noisy_scores_go_to_the_lower_id():
    """A temperature so low that equal logits alone would tie: the noise is lost in rounding."""
    row = np.zeros(300, np.float32)
    row[[40, 77, 290]] = 3e35
    assert sampler(300, 1, temperature=1e-5).choose(row, 0) == 40
    assert sampler(300, 1, temperature=1e-5, top_k=50).choose(row, 0) == 40


@pytest.mark.parametrize("temperature", [1e-7, 1e-30, 1e-300, 5e-324])
@pytest.mark.parametrize("filters", [{}, {"top_k": 20}, {"top_p": 0.9}])
def test_next_to_no_temperature_is_none(temperature, filters):
    for seed in range(5):
        row = row_of(seed)
        assert sampler(1000, seed, temperature=temperature, **filters).choose(row, 3) == row.argmax()


@pytest.mark.parametrize("filters", [{}, UNFILTERED, NARROW, {"temperature": 1.0, "top_n_sigma": 1.0}], ids=str)
def test_rows_without_a_finite_maximum_are_errors(filters):
    from dflash_gguf import DflashError

    chooser = sampler(300, 1, **filters)
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(DflashError, match="no finite maximum"):
            chooser.choose(np.full(300, value, np.float32), 0)
    with pytest.raises(DflashError, match="no finite maximum"):
        chooser.choose(np.where(np.arange(300) == 17, np.inf, 1).astype(np.float32), 0)
    row = np.full(300, np.nan, np.float32)
    row[123] = -5.0
    assert chooser.choose(row, 0) == 123
