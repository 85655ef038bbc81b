"""Every type is llama-quantize's, byte for byte: golden digests of what that program made of the same weights.

Where this machine's kind has no digests, the blocks are compared with ``ggml_quantize_chunk`` instead. And every type
runs: one layer's pass on quantized weights is the pass on the same weights dequantized. All that needs ggml's search
grids of two bits and less is in this file: they take a process 15 seconds.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

import ggml
import gguf
import gguf.quants
import numpy as np
import pytest
import quant_cases
import tiny
from libllama import Model
from quant_cases import CASES, NAMES, OPTIONS
from test_reference import PRECISE, PROMPT

import dflash_gguf
from dflash_gguf import _core
from dflash_gguf.convert import api
from dflash_gguf.errors import QuantizeError
from dflash_gguf.ggml_types import BY_NAME, F32, GGML_TYPES, row_bytes, type_name
from dflash_gguf.gguf_header import read_header
from dflash_gguf.quantize.api import planned, quantize
from dflash_gguf.quantize.kernels import quantize_rows
from dflash_gguf.quantize.quants import ALIASES, QUANTS
from dflash_gguf.quantize.recipe import TENSOR_TYPES

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "quants.json").read_text())
TYPES = GOLDEN["types"]
DIGESTS = GOLDEN["sha256"].get(platform.machine())
REFUSALS = {"this quantization requires an imatrix!": "needs an importance matrix"}
"""llama-quantize's words -> ours, where they differ."""
MADE = [
    (name, label) for name, rows in TYPES["cases"].items() for label, types in rows.items()
    if label.removesuffix(" imatrix") in CASES[name].digests and ": " in types
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Source and importance matrix of a case, written once."""
    made: dict[str, tuple[Path, Path]] = {}

    def write(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("case")
            matrix = quant_cases.write_matrix(folder / "imatrix.gguf", quant_cases.sums_of(CASES[name]))
            made[name] = quant_cases.write_source(folder / "source.gguf", CASES[name]), matrix
        return made[name]

    return write


def types_of(plan):
    return quant_cases.by_type([f"{tensor.name} {type_name(tensor.type)}" for tensor in plan.tensors])


def test_the_table_is_llama_quantizes():
    assert set(QUANTS) | {"Q3_K", "Q4_K", "Q5_K"} == set(NAMES)
    assert set(ALIASES) == {"Q3_K", "Q4_K", "Q5_K", "int4", "int8"}


@pytest.mark.parametrize("given", [False, True], ids=["plain", "imatrix"])
@pytest.mark.parametrize("name", CASES)
def test_tensors_get_llama_quantizes_types(files, name, given):
    source, matrix = files(name)
    for quant in NAMES:
        theirs = TYPES["cases"][name][f"{quant}{' imatrix' if given else ''}"]
        imatrix = matrix if given and QUANTS[ALIASES.get(quant, quant)].mixed else None
        if ": " in theirs or not theirs:
            assert types_of(planned(source, quant, imatrix=imatrix)) == theirs, quant
        else:
            with pytest.raises(QuantizeError, match=REFUSALS.get(theirs, theirs)):
                planned(source, quant, imatrix=imatrix)


@pytest.mark.parametrize(("name", "label"), MADE)
def test_the_bytes_are_llama_quantizes(tmp_path, files, name, label):
    source, matrix = files(name)
    quant, _, given = label.partition(" ")
    imatrix = matrix if given and QUANTS[ALIASES.get(quant, quant)].mixed else None
    result = quantize(source, tmp_path / "ours.gguf", quant, imatrix=imatrix, n_threads=1)
    if DIGESTS is not None:
        assert quant_cases.described(result.path)["sha256"] == DIGESTS["cases"][name][label]
        return
    compare_with_ggml(source, result.path, quant_cases.sums_of(CASES[name]) if imatrix else {})


def compare_with_ggml(source, made, sums):
    before, after = read_header(source), read_header(made)
    for info in after.tensors.values():
        values = decoded(source, before, info.name)
        if info.type in (F32, BY_NAME["F16"].id, BY_NAME["BF16"].id, before.tensors[info.name].type):
            continue
        entry = sums.get(info.name)
        weights = None if entry is None else (entry.sums / np.float32(entry.counts[0])).astype(np.float32).reshape(-1)
        start = after.data_offset + info.offset
        blocks = made.read_bytes()[start : start + info.nbytes]
        assert blocks == ggml.quantize(values.reshape(-1, info.shape[0]), info.type, weights), info.name


def decoded(path, header, name):
    """The values of a tensor as float32."""
    info = header.tensors[name]
    start = header.data_offset + info.offset
    raw = np.frombuffer(path.read_bytes()[start : start + info.nbytes], np.uint8)
    out = np.empty(raw.size * GGML_TYPES[info.type].block * 4 // GGML_TYPES[info.type].nbytes, np.uint8)
    quantize_rows(name, raw.copy(), info.type, out, F32, n_per_row=info.shape[0], n_threads=1)
    return out.view("<f4")


def test_the_comparison_for_other_machines_agrees(tmp_path, files):
    source, matrix = files("blocks of 32")
    result = quantize(source, tmp_path / "ours.gguf", "Q4_1", imatrix=matrix, n_threads=1)
    compare_with_ggml(source, result.path, quant_cases.sums_of(CASES["blocks of 32"]))


def options_of(words):
    """llama-quantize's words as keywords."""
    options: dict[str, object] = {"tensor_types": []}
    words = list(words)
    while words:
        word = words.pop(0)
        if word in ("--pure", "--leave-output-tensor"):
            options[word[2:].replace("-", "_")] = True
        elif word == "--tensor-type":
            options["tensor_types"].append(tuple(words.pop(0).split("=")))
        else:
            options[word[2:].replace("-", "_")] = words.pop(0)
    return options


@pytest.mark.parametrize("name", OPTIONS)
def test_options_mean_what_they_do_there(tmp_path, files, name):
    case, quant, words = OPTIONS[name]
    options = options_of(words)
    assert types_of(planned(files(case)[0], quant, **options)) == TYPES["options"][name]
    if DIGESTS is not None:
        result = quantize(files(case)[0], tmp_path / "ours.gguf", quant, n_threads=1, **options)
        assert quant_cases.described(result.path)["sha256"] == DIGESTS["options"][name]


@pytest.mark.parametrize(
    ("name", "quant", "given"),
    [
        ("blocks of 256", "Q4_K_M", False),
        ("blocks of 256", "IQ3_XXS", True),
        ("blocks of 32", "Q5_K_M", True),
        ("no blocks", "Q4_0", False),
        ("embeddings and head", "Q4_0", False),
    ],
)
def test_a_checkpoint_becomes_the_same_tensors(tmp_path, files, name, quant, given):
    source, matrix = files(name)
    case = CASES[name]
    checkpoint = quant_cases.write_checkpoint(tmp_path / "checkpoint", case)
    target = write_target(tmp_path / "target.gguf", case)
    imatrix = matrix if given else None
    direct = api.convert(checkpoint, target, quant, tmp_path / "direct.gguf", imatrix=imatrix, n_threads=1)
    again = quantize(source, tmp_path / "again.gguf", quant, imatrix=imatrix, n_threads=1)
    ours, theirs = (quant_cases.described(result.path) for result in (direct, again))
    assert ours["types"] == theirs["types"]
    assert ours["sha256"] == theirs["sha256"]
    added = [f"quantize.imatrix.{key}" for key in ("file", "dataset", "entries_count", "chunks_count")]
    assert ours["keys"][-6:] == ["general.quantization_version", "general.file_type", *added] if given else True


def write_target(path, case):
    """A target that the case's drafter fits: only its header is read."""
    dims = {**case.dims, "layers": 4, "kind": "dflash"}
    return tiny.write_target(path, type="F32", tied=False, **dims)


def test_the_public_function_is_this_one():
    assert dflash_gguf.quantize is quantize


@pytest.mark.parametrize("name", ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"])
def test_values_that_are_on_no_grid_are_refused(name):
    """ggml ends the process for them, or makes blocks of something else."""
    kind, values = BY_NAME[name].id, np.random.default_rng(0).standard_normal(256).astype("<f4")
    out = np.empty(row_bytes(kind, 256), np.uint8)
    options = {"n_per_row": 256, "n_threads": 1, "importance": np.ones(256, np.float32)}
    for scale in (1e-30, 1.0, 1e4):
        quantize_rows("t", (values * np.float32(scale)).view(np.uint8), F32, out, kind, **options)
    for scale in (1e9, 1e15, 1e18, 1e25, 1e37):
        with pytest.raises(QuantizeError, match="tensor `t`: a value is too large for iq"):
            quantize_rows("t", (values * np.float32(scale)).view(np.uint8), F32, out, kind, **options)


# ---------------------------------------------------------------- in libllama

ONE_LAYER = {"kind": "dflash", "layers": 1, "hidden": 256, "ffn": 256, "heads": 4, "kv_heads": 2, "taps": (0,)}
MATRICES = "fc|attn_(q|k|v|output)|ffn"


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory):
    """A target, its drafter as F32, and a matrix that says that all columns count the same."""
    folder = tmp_path_factory.mktemp("types")
    target = tiny.write_target(folder / "target.gguf", type="F32", hidden=256, ffn=256, heads=4, kv_heads=2)
    drafter = tiny.write_drafter(folder / "drafter.gguf", **ONE_LAYER)
    tensors = read_header(drafter).tensors
    names = [name for name, info in tensors.items() if len(info.shape) > 1]
    entries = {name: quant_cases.Sums(np.ones((1, tensors[name].shape[0]), np.float32), (1,)) for name in sorted(names)}
    return target, drafter, quant_cases.write_matrix(folder / "imatrix.gguf", entries)


def logits(target_path, drafter_path):
    """Of the proposals behind the prompt, float32 [7, n_vocab]."""
    with (
        Model(target_path, n_ubatch=64) as target,
        Model(drafter_path, other=target, n_batch=64, n_ubatch=64, n_outputs_max=8, **PRECISE) as drafter,
    ):
        core_target = _core.LlamaTarget(target.context, 1 << 20, [1], 1)
        core = _core.LlamaDrafter(drafter.context, _core.Kind.dflash, anchor_first=False)
        core_target.decode(PROMPT, 0, 1)
        core.inject(core_target.features(0, len(PROMPT)), 0)
        return core.rows(PROMPT[3], len(PROMPT), 7)


@pytest.mark.parametrize("name", TENSOR_TYPES)
def test_a_pass_is_that_of_the_dequantized_weights(tmp_path, one_layer, name):
    target, drafter, matrix = one_layer
    options = {"tensor_types": [(MATRICES, name)]}
    packed = quantize(drafter, tmp_path / "packed.gguf", "Q8_0", imatrix=matrix, n_threads=1, **options).path
    plain = quantize(packed, tmp_path / "plain.gguf", "F32", allow_requantize=True, n_threads=1).path
    types = {info.type for info in read_header(packed).tensors.values() if len(info.shape) > 1}
    assert {GGML_TYPES[number].name for number in types} == {name}
    ours, expected = logits(target, packed), logits(target, plain)
    tolerance = 1e-4 if name == "F32" else 0.03
    assert np.linalg.norm(ours - expected) < tolerance * np.linalg.norm(expected)
    check_against_gguf(packed, plain)


def check_against_gguf(packed, plain):
    """gguf-py, where it knows the type, dequantizes the blocks to the same values."""
    before, after = read_header(packed), read_header(plain)
    for info in before.tensors.values():
        if len(info.shape) < 2 or info.type not in set(map(int, gguf.GGMLQuantizationType)):
            continue
        kind = gguf.GGMLQuantizationType(info.type)
        start = before.data_offset + info.offset
        blocks = np.frombuffer(packed.read_bytes()[start : start + info.nbytes], np.uint8)
        try:
            expected = gguf.quants.dequantize(blocks.reshape(info.shape[1], -1), kind)
        except NotImplementedError:
            continue
        start = after.data_offset + after.tensors[info.name].offset
        values = np.frombuffer(plain.read_bytes(), "<f4", expected.size, start).reshape(expected.shape)
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
