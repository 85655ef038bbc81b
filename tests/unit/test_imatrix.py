"""Importance matrices: read as llama-quantize reads them, refused before anything is written."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import quant_cases
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from quant_cases import CASES, Sums

from dflash_gguf.errors import DflashError, OutputError, QuantizeError
from dflash_gguf.quantize.api import planned, quantize
from dflash_gguf.quantize.imatrix import read_imatrix

CASE = CASES["blocks of 32"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return quant_cases.write_source(tmp_path_factory.mktemp("source") / "source.gguf", CASE)


@pytest.fixture(scope="module")
def entries():
    return quant_cases.sums_of(CASE)


@pytest.mark.parametrize("legacy", [False, True])
def test_both_forms_hold_the_same_mean_squares(tmp_path, entries, legacy):
    found = read_imatrix(quant_cases.write_matrix(tmp_path / "m", entries, legacy=legacy))
    assert found.entries.keys() == entries.keys()
    for name, entry in entries.items():
        expected = (entry.sums / np.float32(entry.counts[0])).reshape(-1)
        np.testing.assert_allclose(found.entries[name].weights, expected, rtol=1e-6)
        assert found.entries[name].unused == (0, 1)
    assert (found.dataset, found.n_chunks) == ("text.txt", 7 if legacy else 5)


def test_an_expert_that_was_never_used_counts_all_columns_the_same(tmp_path):
    sums = np.arange(8, dtype=np.float32).reshape(2, 4)
    found = read_imatrix(quant_cases.write_matrix(tmp_path / "m", {"blk.0.ffn_up_exps.weight": Sums(sums, (0, 2))}))
    (entry,) = found.entries.values()
    assert entry.weights.tolist() == [1, 1, 1, 1, 2, 2.5, 3, 3.5]
    assert entry.unused == (1, 2)


BROKEN = {
    "counts of zero": ({"counts": (0,)}, r"entry `fc.weight`: its counts are zero: nothing ever went through it"),
    "negative counts": ({"counts": (-1,)}, "a count is negative or not finite"),
    "counts that are no number": ({"counts": (float("nan"),)}, "a count is negative or not finite"),
    "a sum that is no number": ({"sums": np.full((1, 288), np.nan, np.float32)}, "a sum is negative or not finite"),
    "an endless sum": ({"sums": np.full((1, 288), np.inf, np.float32)}, "a sum is negative or not finite"),
    "a negative sum": ({"sums": np.full((1, 288), -1, np.float32)}, "a sum is negative or not finite"),
    "more counts than sums": ({"sums": np.ones((1, 3), np.float32), "counts": (1, 1)}, "3 sums of 2 matrices"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_matrix_that_says_nothing_leaves_no_output(tmp_path, source, entries, name):
    changes, message = BROKEN[name]
    matrix = quant_cases.write_matrix(
        tmp_path / "m.gguf", entries | {"fc.weight": replace(entries["fc.weight"], **changes)}
    )
    refused(tmp_path, source, matrix, message)


def refused(tmp_path, source, matrix, message):
    """Nothing is written, and the plan says the same."""
    for act in (lambda: planned(source, "Q4_0", imatrix=matrix), lambda: write(tmp_path, source, matrix)):
        with pytest.raises(DflashError, match=message):
            act()
    assert [path.name for path in tmp_path.iterdir()] == [matrix.name]


def write(tmp_path, source, matrix):
    return quantize(source, tmp_path / "out.gguf", "Q4_0", imatrix=matrix, n_threads=1)


def test_a_matrix_of_another_model(tmp_path, source, entries):
    more = {f"blk.{i}.attn_q.weight": entries["blk.0.attn_q.weight"] for i in range(3, 9)}
    matrix = quant_cases.write_matrix(tmp_path / "m.gguf", entries | more)
    message = r"is of another model: 6 of its 35 entries name no tensor of this drafter, `blk.3.attn_q.weight`"
    refused(tmp_path, source, matrix, message)


def test_a_matrix_of_fewer_layers(tmp_path, source, entries):
    less = {name: entry for name, entry in entries.items() if not name.startswith("blk.2.")}
    matrix = quant_cases.write_matrix(tmp_path / "m.gguf", less)
    refused(tmp_path, source, matrix, r"has no entry for 9 tensors of this drafter's layers, `blk.2.attn_conv_proj")


def test_a_matrix_of_another_width(tmp_path, source, entries):
    other = Sums(np.ones((1, 256), np.float32), (3,))
    matrix = quant_cases.write_matrix(tmp_path / "m.gguf", entries | {"blk.1.ffn_up.weight": other})
    refused(tmp_path, source, matrix, "weights of `blk.1.ffn_up.weight`: got 256, expected 288")


def test_files_that_are_no_matrix(tmp_path, source):
    (tmp_path / "m").write_bytes(b"")
    refused(tmp_path, source, tmp_path / "m", "ends inside its number of entries")
    (tmp_path / "m").write_bytes(b"some text, and more of it")
    refused(tmp_path, source, tmp_path / "m", "is no importance matrix: it would have 1701670771 entries")
    with pytest.raises(QuantizeError, match="no such file"):
        read_imatrix(tmp_path / "none")
    with pytest.raises(QuantizeError, match="no regular file"):
        read_imatrix(tmp_path)
    with pytest.raises(QuantizeError, match=r"it has no key `imatrix.datasets`"):
        read_imatrix(source)


def test_two_entries_of_one_name(tmp_path, entries):
    data = quant_cases.write_matrix(tmp_path / "m", {"fc.weight": entries["fc.weight"]}, legacy=True).read_bytes()
    body = data[4:-16]
    (tmp_path / "m").write_bytes(b"\2\0\0\0" + body + body)
    with pytest.raises(QuantizeError, match=r"two entries `fc.weight`"):
        read_imatrix(tmp_path / "m")


def test_sums_without_counts(tmp_path):
    matrix = tiny.write_gguf(
        tmp_path / "m.gguf",
        "x",
        {"imatrix.datasets": ["a"], "imatrix.chunk_count": 1, "imatrix.chunk_size": 512},
        {"fc.weight.in_sum2": np.ones((1, 8), np.float32)},
    )
    with pytest.raises(QuantizeError, match=r"only sums or only counts of `fc.weight`"):
        read_imatrix(matrix)


@pytest.mark.parametrize("legacy", [False, True])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_matrix_that_is_cut_off_is_refused(tmp_path_factory, legacy, data):
    entries = {"fc.weight": Sums(np.ones((1, 8), np.float32)), "blk.0.attn_q.weight": Sums(np.ones((1, 4), np.float32))}
    folder = tmp_path_factory.mktemp("cut")
    path = quant_cases.write_matrix(folder / "m", entries, legacy=legacy)
    whole = path.stat().st_size
    # An older file may end behind its entries, or behind the number of its chunks; a GGUF's last bytes are padding.
    optional = {whole - 16, whole - 12} if legacy else set(range(whole - 28, whole))
    length = data.draw(st.integers(0, whole - 1).filter(lambda n: n not in optional))
    os.truncate(path, length)
    with pytest.raises(DflashError):
        read_imatrix(path)


@settings(max_examples=150, deadline=None)
@given(where=st.integers(0, 4000), byte=st.integers(0, 255), legacy=st.booleans())
def test_a_changed_byte_is_read_or_refused(tmp_path_factory, where, byte, legacy):
    entries = {"fc.weight": Sums(np.ones((1, 8), np.float32)), "blk.0.attn_q.weight": Sums(np.ones((1, 4), np.float32))}
    path = quant_cases.write_matrix(tmp_path_factory.mktemp("byte") / "m", entries, legacy=legacy)
    content = bytearray(path.read_bytes())
    content[where % len(content)] = byte
    path.write_bytes(content)
    try:
        found = read_imatrix(path)
    except DflashError:
        return
    assert all(np.isfinite(entry.weights).all() for entry in found.entries.values())


def test_the_matrix_is_an_input(tmp_path, source, entries):
    matrix = quant_cases.write_matrix(tmp_path / "m.gguf", entries)
    with pytest.raises(OutputError, match="is one of the inputs"):
        quantize(source, matrix, "Q4_0", imatrix=matrix, force=True)


def test_a_float_type_takes_none(tmp_path, source, entries):
    matrix = quant_cases.write_matrix(tmp_path / "m.gguf", entries)
    with pytest.raises(QuantizeError, match="`imatrix` has no effect on a file of BF16"):
        planned(source, "BF16", imatrix=matrix)


def test_tables_that_are_only_looked_up_have_no_entry(tmp_path, entries):
    case = replace(
        CASES["blocks of 256"], dims=CASES["blocks of 256"].dims | {"kind": "dflash2", "rank": 256, "top_k": 8}
    )
    path = quant_cases.write_source(tmp_path / "s.gguf", case)
    matrix = quant_cases.write_matrix(tmp_path / "m.gguf", quant_cases.sums_of(case))
    message = r"IQ2_XS makes `selector_predecessor.weight` IQ2_XS.*only looks rows of it up"
    with pytest.raises(QuantizeError, match=message):
        planned(path, "IQ2_XS", imatrix=matrix)
    with pytest.raises(QuantizeError, match=r"--tensor-type selector_predecessor=q8_0"):
        planned(path, "IQ2_XS")
    plan = planned(path, "IQ2_XS", imatrix=matrix, tensor_types={"selector_(pre|suc)": "q8_0"})
    assert plan.tensor_types["IQ2_XS"] > 10
    assert any("no entry for `selector_predecessor.weight`, `selector_successor.weight`" in n for n in plan.notes)
    other = replace(case, dims=case.dims | {"kind": "dspark"})
    markov = quant_cases.write_source(tmp_path / "d.gguf", other)
    with pytest.raises(QuantizeError, match=r"`markov_w1.weight` IQ3_XXS.*only looks rows"):
        planned(markov, "IQ3_XXS", imatrix=quant_cases.write_matrix(tmp_path / "n", quant_cases.sums_of(other)))


@pytest.mark.parametrize("name", ["IQ1_S", "IQ2_XXS", "IQ2_XS"])
@pytest.mark.parametrize("option", ["output_tensor_type", "token_embedding_type"])
def test_what_ggml_cannot_make_without_weights_is_refused_before_it_is_tried(tmp_path, name, option):
    path = quant_cases.write_source(tmp_path / "s.gguf", CASES["embeddings and head"])
    with pytest.raises(QuantizeError, match=rf"Q4_0 makes `(output|token_embd).weight` {name}, which needs"):
        planned(path, "Q4_0", **{option: name})
    assert planned(path, "Q4_0", **{option: "IQ2_S"}).tensor_types["IQ2_S"] == 1
