"""Our quantizing kernels make ggml's bytes: every type, with and without importance, on every width that is here."""

from __future__ import annotations

import ggml
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_gguf import _core, environment
from dflash_gguf.errors import QuantizeError
from dflash_gguf.ggml_types import BF16, BY_NAME, F16, F32, GGML_TYPES, row_bytes
from dflash_gguf.quantize.kernels import kernel_lanes, quantize_rows

TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")
SUPER = 256
"""A length that every type's block divides."""


def blocks(values, kind, lanes, importance=None, source=F32):
    """``values`` [rows, n_per_row] in the source's own dtype -> bytes."""
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    out = np.full(values.shape[0] * row_bytes(kind, values.shape[1]), 0xAB, np.uint8)
    _core.quantize_rows(raw, source, out, kind, values.shape[1], 1, importance, lanes)
    return out.tobytes()


def same(values, kind, importance=None):
    expected = ggml.quantize(values, kind, importance)
    for lanes in _core.kernel_lanes():
        assert _core.kernel_is_exact(kind, importance is not None, lanes)
        found = blocks(values, kind, lanes, importance)
        if found != expected:
            size = GGML_TYPES[kind].nbytes
            at = next(i for i, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
            pytest.fail(f"{GGML_TYPES[kind].name}, {lanes} lanes: block {at // size} differs at byte {at % size}")


def importances(n, rng):
    """None, plain ones, and ones of which some are zero or far from the others."""
    plain = np.square(rng.standard_normal(n)).astype(np.float32)
    odd = np.where(rng.random(n) < 0.3, 0, plain * 10.0 ** rng.integers(-8, 8, n)).astype(np.float32)
    return (None, plain, odd, np.zeros(n, np.float32), np.ones(n, np.float32))


def alternating(n):
    return np.where(np.arange(n) % 2 == 0, 0.5, -0.5)


ROWS = {
    "normal": lambda rng, n: rng.standard_normal(n) * 0.02,
    "heavy-tailed": lambda rng, n: rng.standard_t(1.5, n),
    "constant": lambda _, n: np.full(n, 0.375),
    "negative constant": lambda _, n: np.full(n, -0.1),
    "zero": lambda _, n: np.zeros(n),
    "negative zero": lambda _, n: np.full(n, -0.0),
    "single outlier": lambda rng, n: np.where(np.arange(n) == n // 3, 1e4, rng.standard_normal(n) * 1e-3),
    "lone value": lambda _, n: np.where(np.arange(n) == n - 1, -3.0, 0.0),
    "denormal": lambda rng, n: rng.standard_normal(n) * 1e-41,
    "hardly a number": lambda rng, n: rng.integers(-3, 4, n) * 1.4e-45,
    "alternating": lambda _, n: alternating(n),
    "alternating and growing": lambda _, n: alternating(n) * np.arange(n),
    "huge": lambda rng, n: rng.standard_normal(n) * 1e3,
    "tiny": lambda rng, n: rng.standard_normal(n) * 1e-18,
    "below the least scale": lambda rng, n: rng.standard_normal(n) * 1e-16,
    "far from zero": lambda rng, n: -1 - 1e-6 * rng.integers(0, 8, n),
    "far above zero": lambda rng, n: 100 + 1e-4 * rng.standard_normal(n),
    "whole numbers": lambda rng, n: rng.integers(-128, 128, n),
    "halves": lambda rng, n: rng.integers(-255, 256, n) / 2,
    "groups of zeros": lambda rng, n: np.where(np.arange(n) // 16 % 3 == 0, rng.standard_normal(n), 0),
    "groups of every size": lambda rng, n: rng.standard_normal(n) * 2.0 ** (np.arange(n) // 16 % 24 - 20),
    "positive": lambda rng, n: np.abs(rng.standard_normal(n)),
    "two values": lambda rng, n: rng.choice([-1.0, 0.7], n),
}


@pytest.mark.parametrize("name", TYPES)
def test_every_kind_of_row(name):
    rng = np.random.default_rng(1)
    values = np.stack([make(rng, 2 * SUPER) for make in ROWS.values()]).astype(np.float32)
    for importance in importances(values.shape[1], rng):
        same(values, BY_NAME[name].id, importance)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("kind", ROWS)
def test_a_tensor_of_one_kind(name, kind):
    """No lane holds another kind of block."""
    rng = np.random.default_rng(2)
    values = np.stack([ROWS[kind](rng, SUPER) for _ in range(17)]).astype(np.float32)
    same(values, BY_NAME[name].id)
    same(values, BY_NAME[name].id, np.abs(rng.standard_normal(SUPER)).astype(np.float32))


@pytest.mark.parametrize("name", TYPES)
def test_every_length_of_rows(name):
    kind, rng = BY_NAME[name], np.random.default_rng(3)
    for n_blocks in range(1, 36):
        n = n_blocks * kind.block
        rows = 1 if n > 4096 else int(rng.integers(1, 20))
        values = (rng.standard_normal((rows, n)) * 0.1).astype(np.float32)
        same(values[:1] if n > 2048 else values, kind.id)
        same(values[:1], kind.id, np.abs(rng.standard_normal(n)).astype(np.float32))


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 9),
    columns=st.integers(1, 5),
    exponent=st.integers(-30, 4),
    spread=st.sampled_from([0, 1, 4, 10]),
    shift=st.sampled_from([0.0, -3.0, 3.0, 100.0]),
    weighted=st.booleans(),
)
def test_any_values(name, seed, rows, columns, exponent, spread, shift, weighted):
    rng = np.random.default_rng(seed)
    shape = (rows, columns * SUPER)
    values = (rng.standard_normal(shape) + shift) * 10.0**exponent * 2.0 ** rng.integers(-spread, spread + 1, shape)
    importance = np.square(rng.standard_normal(shape[1])).astype(np.float32) if weighted else None
    # Q4_1 and Q5_1 keep a row's lowest value as a 16-bit float.
    same(np.clip(values, -6e4, 6e4).astype(np.float32), BY_NAME[name].id, importance)


@pytest.mark.parametrize("name", TYPES)
def test_any_bits_that_a_block_can_hold(name):
    """Floats of random bits, far larger and smaller than weights are, as long as ggml's own blocks are finite."""
    rng = np.random.default_rng(4)
    values = rng.integers(0, 1 << 32, (40, SUPER), np.uint32)
    values = np.where((values >> 23 & 0xFF) > 140, values & 0xC0FFFFFF, values).astype(np.uint32).view(np.float32)
    importance = np.abs(rng.standard_normal(SUPER)).astype(np.float32)
    same(values, BY_NAME[name].id)
    same(values, BY_NAME[name].id, importance)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_sources_are_widened_on_the_way(name, weighted):
    rng, kind = np.random.default_rng(5), BY_NAME[name].id
    values = (rng.standard_normal((33, 2 * SUPER)) * 0.02).astype(np.float32)
    importance = np.square(rng.standard_normal(2 * SUPER)).astype(np.float32) if weighted else None
    half, brain = values.astype(np.float16), (values.view(np.uint32) >> 16).astype(np.uint16)
    wide = (brain.astype(np.uint32) << 16).view(np.float32)
    eighth = np.frombuffer(ggml.quantize(values, BY_NAME["Q8_0"].id), np.uint8).reshape(33, -1)
    for lanes in _core.kernel_lanes():
        expected = ggml.quantize(half.astype(np.float32), kind, importance)
        assert blocks(half, kind, lanes, importance, F16) == expected
        assert blocks(brain, kind, lanes, importance, BF16) == ggml.quantize(wide, kind, importance)
        if name != "Q8_0":
            out = np.empty(33 * row_bytes(kind, 2 * SUPER), np.uint8)
            arguments = (BY_NAME["Q8_0"].id, out, kind, 2 * SUPER, 2, importance)
            _core.quantize_rows(eighth.reshape(-1), *arguments, lanes)
            theirs = np.empty_like(out)
            _core.quantize_rows(eighth.reshape(-1), *arguments[:1], theirs, *arguments[2:], 0)
            assert out.tobytes() == theirs.tobytes()


def test_every_half_is_widened_exactly():
    bits = np.arange(1 << 16, dtype=np.uint16)
    half = bits[np.isfinite(bits.view(np.float16))].view(np.float16)
    half = half[: half.size // SUPER * SUPER].reshape(-1, SUPER)
    for lanes in _core.kernel_lanes():
        expected = ggml.quantize(half.astype(np.float32), BY_NAME["Q8_0"].id)
        assert blocks(half, BY_NAME["Q8_0"].id, lanes, source=F16) == expected


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("source", "dtype"), [(F32, np.float32), (F16, np.float16), (BF16, np.uint16)])
def test_a_value_that_is_not_finite_is_found_in_any_lane(name, source, dtype):
    kind = BY_NAME[name].id
    values = np.zeros((20, SUPER), dtype)
    bad = {F32: (np.inf, np.nan), F16: (np.inf, np.nan), BF16: (0x7F80, 0xFFC1)}[source]
    for lanes in _core.kernel_lanes():
        for row, column in ((0, 0), (7, SUPER - 1), (19, 100)):
            for value in bad:
                broken = values.copy()
                broken[row, column] = value
                with pytest.raises(QuantizeError, match="a value is not finite"):
                    blocks(broken, kind, lanes, source=source)


@pytest.mark.parametrize("name", TYPES)
def test_a_factor_that_is_too_large_is_found_in_any_lane(name):
    for lanes in (0, *_core.kernel_lanes()):
        values = np.zeros((19, SUPER), np.float32)
        values[18, 5] = 3e9
        with pytest.raises(QuantizeError, match=f"a value is too large for {name.lower()}".replace("_k", "_K")):
            blocks(values, BY_NAME[name].id, lanes)


# ---------------------------------------------------------------- which code quantizes


def test_the_types_and_widths():
    assert tuple(GGML_TYPES[number].name for number in _core.kernel_types()) == TYPES
    widths = _core.kernel_lanes()
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == 4
    assert not _core.kernel_is_exact(BY_NAME["IQ2_XXS"].id, True, widths[0])
    assert not _core.kernel_is_exact(BY_NAME["Q4_K"].id, False, 5)
    assert not _core.kernel_is_exact(BY_NAME["Q4_K"].id, False, 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_self_check_tells_a_kernel_whose_bytes_are_others(weighted):
    """Q4_0 and IQ4_NL have blocks of one size: each kernel makes its own type's, not the other's."""
    for lanes in _core.kernel_lanes():
        for kernel, other in (("Q4_0", "IQ4_NL"), ("IQ4_NL", "Q4_0")):
            kernel_type, type_id = BY_NAME[kernel].id, BY_NAME[other].id
            assert _core.kernel_makes(kernel_type, kernel_type, weighted, lanes)
            assert not _core.kernel_makes(kernel_type, type_id, weighted, lanes)
    with pytest.raises(QuantizeError, match="different sizes"):
        _core.kernel_makes(BY_NAME["Q4_0"].id, BY_NAME["Q8_0"].id, weighted, _core.kernel_lanes()[0])


def test_the_user_chooses(monkeypatch):
    monkeypatch.delenv(environment.KERNELS, raising=False)
    assert kernel_lanes() == _core.kernel_lanes()[0]
    monkeypatch.setenv(environment.KERNELS, "")
    assert kernel_lanes() == _core.kernel_lanes()[0]
    monkeypatch.setenv(environment.KERNELS, "ggml")
    assert kernel_lanes() == 0
    monkeypatch.setenv(environment.KERNELS, "4")
    assert kernel_lanes() == 4
    monkeypatch.setenv(environment.KERNELS, "5")
    with pytest.raises(QuantizeError, match=r"`DFLASH_GGUF_KERNELS`: got '5', expected one of `ggml`, .*`4`"):
        kernel_lanes()


def test_what_the_user_chooses_reaches_the_rows(monkeypatch):
    values, kind = np.random.default_rng(6).standard_normal((5, SUPER)).astype(np.float32), BY_NAME["Q4_K"].id
    asked = []

    def note(_src, _src_type, _dst, _dst_type, _n_per_row, _n_threads, _importance, lanes):
        asked.append(lanes)

    monkeypatch.setattr(_core, "quantize_rows", note)
    raw, out = values.view(np.uint8).reshape(-1), np.empty(5 * row_bytes(kind, SUPER), np.uint8)
    for choice in ("ggml", "4"):
        monkeypatch.setenv(environment.KERNELS, choice)
        quantize_rows("t", raw, F32, out, kind, n_per_row=SUPER, n_threads=1)
    assert asked == [0, 4]
