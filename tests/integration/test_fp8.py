"""FP8 rows become F32 natively: every byte, groups of columns, wrong sizes."""

from __future__ import annotations

import numpy as np
import pytest

from dflash_gguf import _core
from dflash_gguf.errors import QuantizeError


def value(byte, mantissa_bits):
    """By the format's definition."""
    sign, rest = (-1.0 if byte & 0x80 else 1.0), byte & 0x7F
    exponent, mantissa = divmod(rest, 1 << mantissa_bits)
    bias = {3: 7, 2: 15}[mantissa_bits]
    if rest == 0x7F if mantissa_bits == 3 else exponent == 31:
        return np.nan
    fraction = mantissa / (1 << mantissa_bits)
    return sign * (fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias))


def widened(src, bits, factors, n_across, n_per_row):
    out = np.full(src.size * 4, 0xAB, np.uint8)
    _core.widen_fp8(src, bits, factors, n_across, out, n_per_row)
    return out.view(np.float32)


@pytest.mark.parametrize("bits", [2, 3])
def test_every_byte(bits):
    every = np.arange(256, dtype=np.uint8)
    found = widened(every, bits, np.ones((1, 1), np.float32), 256, 256)
    expected = np.array([value(byte, bits) for byte in range(256)], np.float32)
    np.testing.assert_array_equal(found, expected)
    assert np.signbit(found[128])


@pytest.mark.parametrize(("n_per_row", "n_across"), [(6, 6), (6, 4), (6, 1), (6, 100)])
def test_each_group_of_columns_has_a_factor(n_per_row, n_across):
    rng = np.random.default_rng(0)
    src = rng.integers(0, 0x70, 3 * n_per_row, np.uint8)
    factors = rng.standard_normal((3, -(-n_per_row // n_across))).astype(np.float32)
    plain = np.array([value(byte, 3) for byte in src.tolist()], np.float32).reshape(3, n_per_row)
    expected = plain * np.repeat(factors, n_across, axis=1)[:, :n_per_row]
    assert widened(src, 3, factors, n_across, n_per_row).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 4}, "4 mantissa bits"),
        ({"n_per_row": 0}, "whole rows"),
        ({"n_per_row": 5}, "whole rows"),
        ({"n_across": 0}, "whole rows"),
        ({"n_across": 1}, "differ in size"),
        ({"factors": np.ones((3, 2), np.float32)}, "differ in size"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    arguments = {"bits": 3, "factors": np.ones((2, 2), np.float32), "n_across": 2, "n_per_row": 4} | changes
    with pytest.raises(QuantizeError, match=message):
        widened(np.zeros(8, np.uint8), **arguments)
    with pytest.raises(QuantizeError, match="differ in size"):
        _core.widen_fp8(np.zeros(8, np.uint8), 3, np.ones((2, 1), np.float32), 4, np.zeros(31, np.uint8), 4)
