"""The native quantizer's edges: arguments are checked before ggml sees them."""

from __future__ import annotations

import threading
import time

import ggml
import gguf
import gguf.quants
import numpy as np
import pytest

from dflash_gguf.errors import QuantizeError
from dflash_gguf.ggml_types import BF16, BY_NAME, F16, F32, GGML_TYPES, row_bytes
from dflash_gguf.quantize.kernels import quantize_rows

Q8_0, Q4_K = BY_NAME["Q8_0"].id, BY_NAME["Q4_K"].id
LAST_TYPE = 43


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("<f4")


def run(src, src_type, dst_type, n_per_row, *, n_threads=1, dst_bytes=None):
    raw = np.ascontiguousarray(src).view(np.uint8).reshape(-1)
    rows = raw.size // (4 if src_type == F32 else 2) // n_per_row if n_per_row > 0 else 0
    size = rows * row_bytes(dst_type, n_per_row) if dst_bytes is None else dst_bytes
    dst = np.full(size, 0xAB, np.uint8)
    quantize_rows("t", raw, src_type, dst, dst_type, n_per_row=n_per_row, n_threads=n_threads)
    return dst.tobytes()


def test_the_table_of_types_is_ggmls():
    lib = ggml.library()
    for number in range(LAST_TYPE):
        block = lib.ggml_blck_size(number)
        assert (number in GGML_TYPES) == (block > 0)
        if block:
            kind = GGML_TYPES[number]
            assert (kind.block, kind.nbytes) == (block, lib.ggml_type_size(number))
            assert lib.ggml_type_name(number).decode().upper() == kind.name


@pytest.mark.parametrize(
    "name", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"]
)
@pytest.mark.parametrize("n_threads", [1, 5])
def test_blocks_equal_ggmls(name, n_threads):
    values, kind = floats(33, 512), BY_NAME[name].id
    assert run(values, F32, kind, 512, n_threads=n_threads) == ggml.quantize(values, kind)


SLOW = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S")
"""Their grids take seconds: see test_quants.py."""
MADE = tuple(kind.name for kind in GGML_TYPES.values() if kind.block > 1 and kind.name not in {*SLOW, "Q8_1", "Q8_K"})


@pytest.mark.parametrize("name", MADE)
def test_blocks_equal_ggmls_with_importance(name):
    values, kind = floats(9, 512), BY_NAME[name].id
    weights = np.square(floats(512))
    out = np.empty(9 * row_bytes(kind, 512), np.uint8)
    raw = values.view(np.uint8).reshape(-1)
    quantize_rows("t", raw, F32, out, kind, n_per_row=512, n_threads=2, importance=weights)
    assert out.tobytes() == ggml.quantize(values, kind, weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(31, np.float32), "31 importance weights for rows of 32 values"),
        (np.full(32, -1, np.float32), "an importance weight is negative, more than 1e12, or not"),
        (np.full(32, np.nan, np.float32), "an importance weight is negative, more than 1e12, or not"),
        (np.full(32, 2e12, np.float32), "an importance weight is negative, more than 1e12, or not"),
        (np.full(32, np.inf, np.float32), "an importance weight is negative, more than 1e12, or not"),
    ],
)
def test_importance_that_does_not_fit(weights, message):
    raw, out = floats(32).view(np.uint8), np.empty(18, np.uint8)
    with pytest.raises(QuantizeError, match=f"tensor `t`: {message}"):
        quantize_rows("t", raw, F32, out, BY_NAME["Q4_0"].id, n_per_row=32, n_threads=1, importance=weights)


def test_casts():
    values = floats(7, 96)
    half = values.astype("<f2")
    assert run(values, F32, F16, 96) == half.tobytes()
    assert run(half, F16, F32, 96) == half.astype("<f4").tobytes()
    assert run(half, F16, F16, 96) == half.tobytes()
    brain = (values.view("<u4") >> 16).astype("<u2")
    assert run(brain, BF16, F32, 96) == (brain.astype("<u4") << 16).tobytes()
    assert run(brain, BF16, BF16, 96) == brain.tobytes()


def test_every_finite_half_and_brain_float_survives():
    bits = np.arange(1 << 16, dtype="<u2")
    half = bits[np.isfinite(bits.view("<f2"))]
    assert run(half, F16, F32, 1) == half.view("<f2").astype("<f4").tobytes()
    brain = bits[(bits & 0x7F80) != 0x7F80]
    wide = (brain.astype("<u4") << 16).view("<f4")
    assert run(brain, BF16, F32, 1) == wide.tobytes()
    assert run(wide, F32, BF16, 1) == brain.tobytes()


def test_no_rows_is_nothing():
    assert run(floats(0), F32, Q8_0, 32) == b""


def test_a_source_that_is_not_aligned():
    values = floats(4, 64)
    raw = np.zeros(values.nbytes + 1, np.uint8)
    raw[1:] = values.view(np.uint8).reshape(-1)
    dst = np.empty(4 * row_bytes(Q8_0, 64), np.uint8)
    quantize_rows("t", raw[1:], F32, dst, Q8_0, n_per_row=64, n_threads=1)
    assert dst.tobytes() == ggml.quantize(values, Q8_0)


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_blocks_become_floats(name):
    kind, values = BY_NAME[name].id, floats(9, 512)
    blocks = np.frombuffer(ggml.quantize(values, kind), np.uint8)
    out = np.empty(values.nbytes, np.uint8)
    quantize_rows("t", blocks, kind, out, F32, n_per_row=512, n_threads=2)
    expected = gguf.quants.dequantize(blocks.reshape(9, -1), gguf.GGMLQuantizationType(kind))
    np.testing.assert_allclose(out.view("<f4").reshape(9, 512), expected, rtol=1e-6, atol=1e-6)
    same = np.empty_like(blocks)
    quantize_rows("t", blocks, kind, same, kind, n_per_row=512, n_threads=1)
    assert same.tobytes() == blocks.tobytes()


def test_blocks_that_are_no_numbers():
    blocks = np.frombuffer(ggml.quantize(floats(1, 32), Q8_0), np.uint8).copy()
    blocks[:2] = (0x00, 0x7C)
    with pytest.raises(QuantizeError, match="a value is not finite"):
        quantize_rows("t", blocks, Q8_0, np.empty(128, np.uint8), F32, n_per_row=32, n_threads=1)


@pytest.mark.parametrize(
    ("src_type", "dst_type", "n_per_row", "options", "message"),
    [
        (BY_NAME["Q8_1"].id, F32, 32, {}, "source rows of q8_1"),
        (BY_NAME["I32"].id, F32, 32, {}, "source rows of i32"),
        (Q4_K, F32, 32, {}, "rows of 32 values do not fit the blocks of q4_K"),
        (99, F32, 32, {}, "source rows of type 99"),
        (-1, F32, 32, {}, "source rows"),
        (F32, 99, 32, {"dst_bytes": 8}, "rows of type 99 cannot be made"),
        (F32, 4, 32, {"dst_bytes": 8}, "rows of type 4 cannot be made"),
        (F32, BY_NAME["Q8_1"].id, 32, {}, "rows of q8_1 cannot be made"),
        (F32, BY_NAME["I32"].id, 32, {}, "rows of i32 cannot be made"),
        (F32, BY_NAME["IQ2_XXS"].id, 256, {}, "rows of iq2_xxs cannot be made without importance"),
        (F32, Q4_K, 32, {}, "rows of 32 values do not fit the blocks of q4_K"),
        (F32, Q8_0, 0, {"dst_bytes": 8}, "do not fit"),
        (F32, Q8_0, -32, {"dst_bytes": 8}, "do not fit"),
        (F32, F32, 1 << 62, {"dst_bytes": 8}, "do not fit"),
        (F32, F32, 96, {"dst_bytes": 8}, "not made of whole rows"),
        (F32, Q8_0, 32, {"dst_bytes": 33}, "the destination has 33 bytes"),
        (F32, Q8_0, 32, {"n_threads": 0}, "0 threads"),
        (F32, Q8_0, 32, {"n_threads": 10**6}, "threads"),
    ],
)
def test_wrong_arguments_are_refused(src_type, dst_type, n_per_row, options, message):
    with pytest.raises(QuantizeError, match=message):
        run(floats(256), src_type, dst_type, n_per_row, **options)


def test_a_bad_value_in_any_thread_is_found():
    values = floats(2000, 256)
    values[1999, 255] = np.nan
    with pytest.raises(QuantizeError, match="tensor `t`: a value is not finite"):
        run(values, F32, Q4_K, 256, n_threads=4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "llama"}, "knows the architecture `dflash`"),
        ({"n_layer": 0}, "size is zero"),
        ({"n_layer": 600}, "more than 512 layers"),
        ({"ftype": 9999}, "file type 9999"),
        ({"names": ["a", "b"]}, "differ in number"),
        ({"names": [""]}, "empty or too long"),
        ({"names": ["n" * 64]}, "empty or too long"),
        ({"shapes": [[]]}, "no valid shape"),
        ({"shapes": [[1] * 5]}, "no valid shape"),
        ({"shapes": [[0, 4]]}, "empty dimension"),
        ({"types": [77]}, "no valid shape and type"),
    ],
)
def test_type_selection_checks_its_arguments(changes, message):
    from dflash_gguf import _core

    arguments = {
        "arch": "dflash", "n_embd": 256, "n_ff": 512, "n_layer": 1, "n_head": 4, "n_head_kv": 2, "n_expert": 0,
        "head_dim": 64,
        "ftype": 15, "names": ["blk.0.attn_q.weight"], "shapes": [[256, 256]], "types": [F32],
    }  # fmt: skip
    assert _core.quant_types(**arguments) == [(Q4_K, True)]
    with pytest.raises(QuantizeError, match=message):
        _core.quant_types(**arguments | changes)


def test_the_gil_is_free_while_rows_are_quantized():
    values = floats(1 << 12, 256)
    worker = threading.Thread(target=run, args=(values, F32, BY_NAME["IQ3_S"].id, 256), kwargs={"n_threads": 1})
    worker.start()
    ticks = 0
    while worker.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 10
