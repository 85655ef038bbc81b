"""What a user may ask of types, and what is refused for meaning nothing, or for being impossible."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import quant_cases
import tiny
import zoo
from families import target_of
from quant_cases import CASES

from dflash_gguf.convert import api
from dflash_gguf.errors import QuantizeError
from dflash_gguf.ggml_types import BY_NAME, type_name
from dflash_gguf.quantize.api import planned
from dflash_gguf.quantize.imatrix_rules import RULES, changes, needs_matrix
from dflash_gguf.quantize.importance import LOOKED_UP
from dflash_gguf.quantize.mixes import MIXES
from dflash_gguf.quantize.quants import QUANTS
from dflash_gguf.quantize.recipe import Recipe
from dflash_gguf.quantize.selection import ModelSizes


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return quant_cases.write_source(tmp_path_factory.mktemp("source") / "source.gguf", CASES["blocks of 32"])


@pytest.mark.parametrize(
    ("quant", "options", "message"),
    [
        ("Q9", {}, r"unknown output type: got 'Q9', expected one of F32, F16"),
        ("Q4_0", {"tensor_types": [("ffn", "Q9")]}, r"the type of a tensor: got 'Q9', expected one of F32"),
        ("Q4_0", {"tensor_types": [("ffn", "Q8_K")]}, "the type of a tensor: got 'Q8_K'"),
        ("Q4_0", {"tensor_types": [("ffn", "i32")]}, "the type of a tensor: got 'i32'"),
        ("Q4_0", {"tensor_types": [("", "q8_0")]}, "pattern of tensors' names is empty"),
        ("Q4_0", {"output_tensor_type": "q8_1"}, "the type of a tensor: got 'q8_1'"),
        ("BF16", {"pure": True}, "`pure` has no effect on a file of BF16; choose a quantized type"),
        ("F16", {"tensor_types": {"ffn": "q8_0"}}, "`tensor_types` has no effect on a file of F16"),
        ("COPY", {"leave_output_tensor": True}, "`leave_output_tensor` has no effect on a file of COPY"),
        (None, {"mix": "none"}, f"unknown mix: got 'none', expected one of {next(iter(MIXES))}"),
        ("Q4_0", {"mix": next(iter(MIXES))}, "says the type of every tensor: got 'Q4_0', expected no other type"),
        (None, {"mix": next(iter(MIXES)), "pure": True}, "says the type of every tensor: got 'pure'"),
    ],
)
def test_what_means_nothing_is_refused(quant, options, message):
    with pytest.raises(QuantizeError, match=message):
        Recipe.of(quant, **options)


@pytest.mark.parametrize(
    ("quant", "options", "message"),
    [
        ("Q4_0", {"tensor_types": [("a(", "q8_0")]}, r"the pattern `a\(` is no regular expression"),
        ("Q4_0", {"tensor_types": [("a" * 300, "q8_0")]}, "a pattern of 300 characters, expected at most 256"),
        ("Q1_0", {}, "no tensor type fallback is defined for type q1_0; choose another type"),
        ("Q4_0", {"tensor_types": [("fc", "nvfp4")]}, "no tensor type fallback is defined for type nvfp4"),
        ("IQ2_XS", {"tensor_types": [("fc", "iq4_xs")], "pure": True}, None),
    ],
)
def test_what_libllama_throws_is_our_error(source, quant, options, message):
    if message is None:
        assert planned(source, quant, **options).tensor_types["IQ4_NL"] > 10
        return
    with pytest.raises(QuantizeError, match=message):
        planned(source, quant, **options)


@pytest.mark.parametrize("pure", [False, True])
def test_a_pattern_without_effect_is_said(source, pure):
    given = [("FFN_DWON", "q8_0"), ("attn_norm", "q8_0"), ("ffn_", "q8_0"), ("ffn_down", "nvfp4"), (r"blk\.9\.", "f16")]
    idle = [note for note in planned(source, "Q4_0", pure=pure, tensor_types=given).notes if "pattern" in note]
    assert [note.split("`")[1] for note in idle] == ["ffn_dwon", "attn_norm", r"blk\.9\."]
    assert all("no tensor that can be quantized: it has no effect" in note for note in idle)


def test_a_mix_may_name_what_a_drafter_lacks(tmp_path):
    path = quant_cases.write_source(tmp_path / "s.gguf", CASES["8 layers"])
    assert not [note for note in planned(path, mix="even").notes if "pattern" in note]
    assert [
        note for note in planned(path, "IQ4_XS", tensor_types=MIXES["even"].tensor_types).notes if "pattern" in note
    ]


def test_a_head_whose_rows_do_not_divide(tmp_path):
    case = replace(CASES["no blocks"], own=2)
    path = quant_cases.write_source(tmp_path / "s.gguf", case)
    with pytest.raises(
        QuantizeError, match=r"rows of tensor `output.weight` as Q4_K: got 80, expected a multiple of 256"
    ):
        planned(path, "Q4_0", output_tensor_type="q4_k")


def test_fallbacks_are_told_tensor_by_tensor(source):
    plan = planned(source, "Q4_K_M")
    assert {(f.wanted, f.type) for f in plan.fallbacks} == {("Q4_K", "Q5_0"), ("Q6_K", "Q8_0")}
    told = {fallback.tensor: fallback.n_per_row for fallback in plan.fallbacks}
    matrices = [tensor for tensor in plan.tensors if len(tensor.shape) == 2]
    assert told == {tensor.name: tensor.shape[0] for tensor in matrices}
    assert any(
        note.startswith("Q5_0 in the place of Q4_K, whose blocks do not divide rows of 32, 96") for note in plan.notes
    )


def test_rows_that_fit_have_no_fallbacks(tmp_path):
    path = quant_cases.write_source(tmp_path / "s.gguf", CASES["8 layers"])
    assert planned(path, "Q4_K_M").fallbacks == ()


def test_the_rules_name_types_that_exist():
    assert {rule.quant for rule in RULES} | {rule.becomes for rule in RULES} <= set(QUANTS)


@pytest.mark.parametrize(
    ("n_head_kv", "n_expert", "changed"), [(2, 0, True), (1, 0, False), (2, 8, False), (2, 4, True)]
)
def test_a_matrix_keeps_values_of_few_queries(n_head_kv, n_expert, changed):
    sizes = ModelSizes(256, 1, 8, 4, n_head_kv, 64, n_expert)
    assert bool(changes("IQ3_XXS", sizes, ["blk.0.attn_v.weight"], [True])) == changed


def test_layers_are_counted_or_named():
    names = ["blk.5.ffn_down.weight", "blk.0.ffn_down_exps.weight"]
    assert list(changes("Q4_0", ModelSizes(256, 1, 8, 4, 1, 64), names, [True, True])) == [0]
    assert list(changes("Q4_0", ModelSizes(256, 1, 8, 4, 1, 64, 4), names, [True, True])) == [1]
    assert list(changes("Q4_0", ModelSizes(256, 1, 8, 4, 1, 64), names, [False, True])) == [1]


def test_which_types_need_a_matrix():
    q2_k, iq2_s = BY_NAME["Q2_K"].id, BY_NAME["IQ2_S"].id
    assert needs_matrix("Q2_K_S", "fc.weight", q2_k)
    assert not needs_matrix("Q2_K", "fc.weight", q2_k)
    assert needs_matrix("Q4_K_M", "fc.weight", iq2_s)
    assert not needs_matrix("IQ2_S", "output.weight", iq2_s)


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_is_what_it_says_and_llama_quantizes_options(tmp_path, name):
    case = replace(
        CASES["blocks of 256"], dims=CASES["blocks of 256"].dims | {"kind": "dflash2", "rank": 256, "top_k": 8}
    )
    path = quant_cases.write_source(tmp_path / "s.gguf", case)
    matrix = quant_cases.write_matrix(tmp_path / "m.gguf", quant_cases.sums_of(case))
    plan = planned(path, mix=name, imatrix=matrix)
    same = planned(path, MIXES[name].quant, pure=True, tensor_types=MIXES[name].tensor_types, imatrix=matrix)
    assert [tensor.type for tensor in plan.tensors] == [tensor.type for tensor in same.tensors]
    assert plan.quant == name
    assert {pair.key: pair.value for pair in plan.keys}["general.file_type"] == QUANTS[MIXES[name].quant].ftype


def test_a_mix_needs_no_matrix_for_what_is_looked_up():
    for mix in MIXES.values():
        for name in LOOKED_UP:
            kinds = (kind for pattern, kind in mix.tensor_types if re.search(pattern, name))
            kind = BY_NAME[next(kinds, type_name(QUANTS[mix.quant].type)).upper()].id
            assert not needs_matrix(mix.quant, name, kind), (mix.name, name)


def test_a_checkpoint_is_not_copied(tiny_checkpoint, tiny_target):
    with pytest.raises(QuantizeError, match="COPY copies the tensors of a GGUF"):
        api.plan(tiny_checkpoint, tiny_target, "COPY")


def test_options_of_a_float_type_choose_as_llama_quantize(tmp_path, tiny_target):
    names = ("embed_tokens.weight", "lm_head.weight")
    arrays = {name: tiny.target_arrays()["token_embd.weight"] for name in names}
    folder = tiny.write_checkpoint(tmp_path / "c", tensors=arrays)
    plan = api.plan(folder, tiny_target, "F16", output_tensor_type="q8_0")
    types = {tensor.name: type_name(tensor.type) for tensor in plan.tensors}
    assert types["output.weight"] == "Q8_0"
    assert types["token_embd.weight"] == types["fc.weight"] == "F16"


def test_experts_count_for_a_checkpoint_too(tmp_path):
    """A DeepSeek-V4 drafter: three-dimensional tensors, an own rule for eight experts, and its keys."""
    folder = zoo.write_checkpoint("deepseek4", tmp_path)
    plan = api.plan(folder, target_of("deepseek4"), "Q4_K_M")
    assert plan.kind == "dspark"
    assert any(len(tensor.shape) == 3 for tensor in plan.tensors)
