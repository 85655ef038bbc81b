"""The filters, beside libllama's own samplers: the same candidates, with the same probabilities."""

import ctypes

import llama_cpp
import numpy as np
import pytest
from choices import OFF, Chain, filters_of, p_value, penalties_of, softmax, survivors
from hypothesis import given
from hypothesis import strategies as st
from libllama import Model

from dflash_gguf import _core

SIZES = (1, 2, 63, 300, 5000)
CASES = {
    "nothing": {},
    "defaults": {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    "top_k 1": {"top_k": 1},
    "top_k 7": {"top_k": 7},
    "top_k 200": {"top_k": 200},
    "top_k beyond the vocabulary": {"top_k": 10**6},
    "top_p 0.5": {"top_p": 0.5},
    "top_p 0.99": {"top_p": 0.99},
    "top_p 0": {"top_p": 0.0},
    "min_p 0.02": {"min_p": 0.02},
    "min_p 0.5": {"min_p": 0.5},
    "min_p 1": {"min_p": 1.0},
    "typical_p 0.3": {"typical_p": 0.3, "top_k": 100},
    "typical_p 0.9": {"typical_p": 0.9, "top_k": 100},
    "typical_p of all": {"typical_p": 0.7},
    "top_n_sigma 1": {"top_n_sigma": 1.0},
    "top_n_sigma 2.5": {"top_n_sigma": 2.5, "temperature": 0.6},
    "top_n_sigma and top_p": {"top_n_sigma": 1.5, "top_p": 0.8},
    "temperature 0.2": {"temperature": 0.2},
    "temperature 3": {"temperature": 3.0, "top_k": 50},
    "dynatemp": {"dynatemp_range": 0.5, "top_k": 50},
    "dynatemp of all": {"dynatemp_range": 0.7, "dynatemp_exponent": 2.0},
    "dynatemp below 0": {"dynatemp_range": 2.0, "dynatemp_exponent": 0.5, "top_p": 0.9},
    "min_keep with top_p": {"top_p": 0.1, "min_keep": 9},
    "min_keep with min_p": {"min_p": 0.9, "min_keep": 12},
    "min_keep with typical_p": {"typical_p": 0.01, "min_keep": 6, "top_k": 100},
    "all": {
        "top_n_sigma": 1.9,
        "top_k": 20,
        "typical_p": 0.97,
        "top_p": 0.9,
        "min_p": 0.03,
        "temperature": 0.9,
        "dynatemp_range": 0.3,
        "dynatemp_exponent": 1.3,
    },
}


def row_of(seed, n, scale=3.0):
    return (np.random.default_rng(seed).standard_normal(n) * scale).astype(np.float32)


def rows():
    return [row_of(100 * n + seed, n, scale) for n in SIZES for seed, scale in enumerate((0.5, 3.0, 12.0))]


def same(row, ours, theirs):
    """Candidates are equal, and so are their probabilities to within 1e-5."""
    ids, chances = ours
    assert set(ids) == set(theirs)
    assert len(set(ids)) == len(ids)
    assert [row[i] for i in ids] == sorted((row[i] for i in ids), reverse=True), "the best first"
    expected = softmax(np.array([theirs[i] for i in ids], np.float64))
    np.testing.assert_allclose(chances, expected, atol=1e-5)


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_candidates_and_probabilities_are_libllamas(values):
    settings = OFF | values
    with Chain.of(**settings) as chain:
        clear = [row for row in rows() if not at_the_edge(row, settings)]
        assert len(clear) >= len(rows()) - 2
        for row in clear:
            same(row, survivors(row, **settings), chain.apply(row))


SETTINGS = st.fixed_dictionaries(
    {"temperature": st.floats(0.1, 3)},
    optional={
        "top_k": st.integers(1, 400),
        "top_p": st.floats(0.05, 0.999),
        "min_p": st.floats(0.001, 0.999),
        "typical_p": st.floats(0.05, 0.999),
        "top_n_sigma": st.floats(0.2, 3),
        "min_keep": st.integers(0, 30),
    },
)


def at_the_edge(row, settings):
    """Whether single precision may decide otherwise.

    A filter that is a hair stricter or laxer leaves another set, or logits do that are a hair apart from these: of two
    candidates as far from the typical one, on either side, rounding decides.
    """
    sets = set()
    for step in (-1e-5, 0, 1e-5):
        moved = {
            name: value * (1 + step) + (step if name in ("top_p", "typical_p") else 0)
            for name, value in settings.items()
            if isinstance(value, float) and value != OFF.get(name)
        }
        sets.add(frozenset(survivors(row, **settings | moved)[0]))
    noise = np.random.default_rng(0)
    for _ in range(16):
        sets.add(frozenset(survivors(row + noise.normal(scale=2e-5, size=len(row)).astype(np.float32), **settings)[0]))
    return len(sets) > 1


def test_a_tie_of_typicality_is_at_the_edge():
    """Two candidates whose distances differ by 6e-6 where the entropy is 5.45."""
    assert at_the_edge(row_of(237, 237, 0.16813521642720694), OFF | {"temperature": 1.0, "typical_p": 0.1640625})


@given(seed=st.integers(0, 10**6), n=st.integers(1, 400), scale=st.floats(0.1, 10), values=SETTINGS)
def test_any_settings_leave_what_libllama_leaves(seed, n, scale, values):
    row, settings = row_of(seed, n, scale), OFF | values
    if "top_n_sigma" in values and "typical_p" in values:
        del settings["top_n_sigma"], values["top_n_sigma"]  # libllama's entropy of masked candidates is no number
    if at_the_edge(row, settings):
        return
    with Chain.of(**settings) as chain:
        same(row, survivors(row, **settings), chain.apply(row))


@pytest.mark.parametrize("threshold", [0.02, 0.1, 0.3, 0.6])
def test_xtc_leaves_what_libllamas_leaves_when_it_is_drawn(threshold):
    settings = OFF | {"top_k": 30}
    with Chain.of(**settings, xtc=(1.0, threshold)) as chain:
        for row in rows():
            ours = survivors(row, draw=0.5, xtc_probability=0.5, xtc_threshold=threshold, **settings)
            same(row, ours, chain.apply(row))
    row = row_of(1, 50)
    off = survivors(row, draw=0.5001, xtc_probability=0.5, xtc_threshold=threshold, **settings)
    assert off[0] == survivors(row, **settings)[0], "drawn above the probability, it leaves all"


def test_at_temperature_0_the_best_token_is_taken_whatever_the_filters_leave():
    row = np.log(np.array([0.2, 0.6, 0.12, 0.08], np.float32))
    for values in ({"typical_p": 0.1}, {"xtc_probability": 1.0, "xtc_threshold": 0.1}, {"top_k": 2, "top_p": 0.1}):
        for temperature in (0.0, 1e-7):
            chooser = _core.Sampler(4, filters_of(**OFF | values | {"temperature": temperature}), 1)
            assert {chooser.choose(row, pos) for pos in range(50)} == {1}


def test_xtc_draws_by_seed_and_position_with_its_probability():
    row = np.log(np.array([0.6, 0.3, 0.06, 0.04], np.float32))
    values = OFF | {"xtc_probability": 0.3, "xtc_threshold": 0.1}
    chooser = _core.Sampler(4, filters_of(**values), 11)
    chosen = [chooser.choose(row, pos) for pos in range(4000)]
    assert chosen == [_core.Sampler(4, filters_of(**values), 11).choose(row, pos) for pos in range(4000)]
    without = np.array([0.6, 0.3, 0.06, 0.04])
    with_xtc = np.array([0, 0.3, 0.06, 0.04]) / 0.4
    expected = 4000 * (0.7 * without + 0.3 * with_xtc)
    assert p_value(np.bincount(chosen, minlength=4), expected) > 1e-4
    assert p_value(np.bincount(chosen, minlength=4), 4000 * without) < 1e-9


def test_without_top_k_typical_p_does_not_depend_on_the_order_of_equals():
    """Of equally surprising ones the likely and the lower ids come first, where libllama's sort is free."""
    row = np.zeros(40, np.float32)
    assert survivors(row, **OFF | {"typical_p": 0.51})[0] == list(range(21))


@given(values=SETTINGS, data=st.data())
def test_no_number_and_minus_infinity_never_survive(values, data):
    row = row_of(data.draw(st.integers(0, 99)), 120)
    holes = data.draw(st.lists(st.integers(0, 119), max_size=119, unique=True))
    row[holes] = [np.nan if i % 2 else -np.inf for i in holes]
    ids, chances = survivors(row, **OFF | values)
    assert len(ids) >= 1
    assert np.isfinite(row[ids]).all()
    assert np.isfinite(chances).all()
    clean = np.delete(row, holes)
    expected, _ = survivors(clean, **OFF | values)
    assert [row[i] for i in ids] == [clean[i] for i in expected], "as if they were not there"


@given(values=SETTINGS, seed=st.integers(0, 99))
def test_equal_logits_are_taken_by_id(values, seed):
    row = np.round(row_of(seed, 200)).astype(np.float32)
    ids, _ = survivors(row, **OFF | values)
    assert ids == sorted(ids, key=lambda i: (-row[i], i))


@pytest.fixture(scope="module")
def model(tiny_target):
    with Model(tiny_target) as model:
        yield model


def chosen_row(n, row, **keywords):
    """The order behind biases and penalties: the best, then the best without it, and so on."""
    bans, order = [], []
    bias = keywords.pop("logit_bias", [])
    for _ in range(12):
        chooser = _core.Sampler(n, filters_of(), logit_bias=[*bias, *bans], **keywords)
        best = chooser.choose(row, 0)
        order.append(best)
        bans.append((best, -np.inf))
    return order


def upstream_order(chain, row, n=12):
    logits = chain.apply(row)
    return sorted(logits, key=lambda i: (-logits[i], i))[:n]


@pytest.mark.parametrize(
    "values",
    [
        {"repeat": 1.3},
        {"repeat": 0.7},
        {"frequency": 0.9},
        {"presence": 2.5},
        {"repeat": 1.1, "frequency": 0.4, "presence": 0.7, "last_n": 9},
        {"frequency": -0.5, "last_n": 500},
    ],
    ids=str,
)
def test_penalties_are_libllamas(values):
    s = {"last_n": 64, "repeat": 1.0, "frequency": 0.0, "presence": 0.0} | values
    for seed in range(6):
        rng = np.random.default_rng(seed)
        history, row = rng.integers(0, 60, 80).tolist(), row_of(seed, 60)
        samplers = [llama_cpp.llama_sampler_init_penalties(60, s["last_n"], s["repeat"], s["frequency"], s["presence"])]
        with Chain(samplers) as chain:
            chain.accept(history)
            assert chosen_row(60, row, penalties=penalties_of(**s), prompt=history) == upstream_order(chain, row)


@pytest.mark.parametrize("values", [{}, {"dry_base": 1.2, "dry_allowed_length": 1}, {"dry_last_n": 12}], ids=str)
@pytest.mark.parametrize("breakers", [[], ["\n", ":"], ["ab"]], ids=str)
def test_dry_is_libllamas(values, breakers, model):
    s = {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 2, "dry_last_n": 64} | values
    address = ctypes.cast(model.vocab, ctypes.c_void_p).value
    texts = (ctypes.c_char_p * len(breakers))(*(text.encode() for text in breakers))
    n_changed = 0
    for seed in range(4):
        phrase = model.tokenize("so it goes ab: on and on\n")
        history = [*phrase, *model.tokenize(" x"), *phrase[: len(phrase) - seed]] * 2
        row = row_of(seed, model.n_vocab, 0.5)
        row[sorted(set(phrase))] += 2.0
        dry = llama_cpp.llama_sampler_init_dry(model.vocab, *s.values(), texts, len(breakers))
        with Chain([dry]) as chain:
            chain.accept(history)
            penalties = penalties_of(**s, dry_breakers=breakers)
            found = chosen_row(model.n_vocab, row, penalties=penalties, prompt=history, vocab=address)
            assert found == upstream_order(chain, row)
        n_changed += found != np.argsort(-row, kind="stable")[:12].tolist()
    assert n_changed


def test_logit_bias_is_libllamas():
    bias = [(3, 4.0), (7, -2.5), (9, -np.inf), (11, 100.0)]
    pairs = (llama_cpp.llama_logit_bias * len(bias))(*bias)
    for seed in range(6):
        row = row_of(seed, 40)
        with Chain([llama_cpp.llama_sampler_init_logit_bias(40, len(bias), pairs)]) as chain:
            assert chosen_row(40, row, logit_bias=bias) == upstream_order(chain, row)


def test_what_was_taken_back_is_penalized_no_more():
    row = np.array([5.0, 4.5, 4.0], np.float32)
    chooser = _core.Sampler(3, filters_of(), penalties=penalties_of(presence=2.0), prompt=[])
    for token in (0, 1):
        assert chooser.choose(row, 0) == token
        chooser.accept(token)
    assert chooser.choose(row, 0) == 2
    chooser.truncate(1)
    assert chooser.choose(row, 0) == 1
    chooser.truncate(0)
    assert chooser.choose(row, 0) == 0


KEYED = {
    "unfiltered": {"temperature": 1.0},
    "temperature 0.5": {"temperature": 0.5},
    "temperature 2": {"temperature": 2.0, "top_k": 20},
    "defaults": CASES["defaults"],
    "top_p": {"temperature": 1.0, "top_p": 0.7},
    "typical_p": {"temperature": 1.0, "typical_p": 0.6},
    "dynatemp": {"temperature": 1.0, "dynatemp_range": 0.6},
}
N_DRAWS = 12_000


@pytest.mark.parametrize("values", KEYED.values(), ids=KEYED)
def test_keyed_choices_are_draws_from_libllamas_filtered_softmax(values):
    row, settings = row_of(5, 120, 1.5), OFF | values
    with Chain.of(**settings) as chain:
        logits = chain.apply(row)
    chances = np.zeros(120)
    chances[list(logits)] = softmax(np.array(list(logits.values()), np.float64))
    chooser = _core.Sampler(120, filters_of(**settings), 20_260)
    counts = np.bincount([chooser.choose(row, pos) for pos in range(N_DRAWS)], minlength=120)
    assert p_value(counts, N_DRAWS * chances) > 1e-4
    seeds = [_core.Sampler(120, filters_of(**settings), seed).choose(row, 3) for seed in range(N_DRAWS)]
    assert p_value(np.bincount(seeds, minlength=120), N_DRAWS * chances) > 1e-4


def test_a_temperature_off_by_a_tenth_would_be_noticed():
    row = row_of(5, 120, 1.5)
    chooser = _core.Sampler(120, filters_of(temperature=1.1), 20_260)
    counts = np.bincount([chooser.choose(row, pos) for pos in range(N_DRAWS)], minlength=120)
    assert p_value(counts, N_DRAWS * softmax(row.astype(np.float64))) < 1e-9
