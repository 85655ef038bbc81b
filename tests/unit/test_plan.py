"""Plans: every key and every tensor, decided before anything is written."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import tiny_vocab

from dflash_gguf.convert import api
from dflash_gguf.convert.encode import array, scalar
from dflash_gguf.convert.planned import Deinterleave
from dflash_gguf.errors import CheckpointError, GGUFError, OutputError, PairError, QuantizeError
from dflash_gguf.ggml_types import BF16, BY_NAME, F16, F32
from dflash_gguf.quantize.quants import ALIASES, QUANT_NAMES, QUANTS, resolve_quant
from dflash_gguf.quantize.selection import quantize_order

DIMS = tiny.DRAFTER


def keys_of(plan):
    return {pair.key: pair.value for pair in plan.keys}


def test_every_key_in_the_converters_order(tiny_checkpoint, tiny_target):
    plan = api.plan(tiny_checkpoint, tiny_target, "BF16")
    names = [pair.key for pair in plan.keys]
    model = names[names.index("dflash.block_count") :]
    tokenizer = [name for name in tiny_vocab.tokenizer_keys(DIMS.vocab) if name.startswith("tokenizer.")]
    assert names[:3] == ["general.architecture", "general.type", "general.name"]
    assert model[:20] == [
        "dflash.block_count", "dflash.context_length", "dflash.embedding_length", "dflash.feed_forward_length",
        "dflash.attention.head_count", "dflash.attention.head_count_kv", "dflash.attention.causal",
        "dflash.rope.freq_base", "dflash.attention.layer_norm_rms_epsilon", "dflash.attention.key_length",
        "dflash.attention.value_length", "general.file_type", "dflash.block_size", "dflash.conv_kernel_size",
        "dflash.conv_group_size", "dflash.selector_rank", "dflash.selector_top_k", "dflash.target_layers",
        "general.quantization_version", "tokenizer.ggml.model",
    ]  # fmt: skip
    assert set(tokenizer) < set(names)
    assert names[-2:] == ["tokenizer.chat_template", "tokenizer.ggml.mask_token_id"]


def test_values_and_types(tiny_checkpoint, tiny_target):
    plan = api.plan(tiny_checkpoint, tiny_target, "Q8_0")
    values, types = keys_of(plan), {pair.key: pair.type for pair in plan.keys}
    assert values["dflash.block_size"] == 8
    assert values["dflash.target_layers"] == (1, 2, 3)
    assert values["dflash.attention.causal"] is False
    assert values["dflash.rope.freq_base"] == 10000.0
    assert values["tokenizer.ggml.mask_token_id"] == DIMS.mask
    assert values["general.file_type"] == 7
    assert types["dflash.target_layers"] == "array[int32]"
    assert types["dflash.rope.freq_base"] == "float32"
    assert [pair.key for pair in plan.keys][-2:] == ["general.quantization_version", "general.file_type"]


def test_a_target_with_sections_of_positions_and_a_window(tmp_path, tiny_checkpoint):
    extra = {"qwen3.rope.dimension_sections": [16, 8, 8, 0]}
    target = tiny.write_target(tmp_path / "t.gguf", extra_keys=extra)
    assert keys_of(api.plan(tiny_checkpoint, target, "F16"))["dflash.rope.dimension_sections"] == (32, 0, 0, 0)
    windowed = tiny.write_checkpoint(tmp_path / "c", window=128)
    values = keys_of(api.plan(windowed, tiny.write_target(tmp_path / "u.gguf"), "F16"))
    assert values["dflash.attention.sliding_window"] == 128
    assert values["dflash.attention.sliding_window_pattern"] == (True, True)
    assert "dflash.rope.dimension_sections" not in values


def test_causal_is_stated_last_when_true(tmp_path, tiny_target):
    folder = tiny.write_checkpoint(tmp_path / "c", config={"is_causal": True})
    names = [pair.key for pair in api.plan(folder, tiny_target, "F16").keys]
    assert names.index("dflash.attention.causal") == names.index("dflash.target_layers") + 1


def test_the_targets_mask_key_is_replaced_in_place(tmp_path, tiny_checkpoint):
    target = tiny.write_target(tmp_path / "t.gguf", extra_keys={"tokenizer.ggml.mask_token_id": 9})
    plan = api.plan(tiny_checkpoint, target, "F16")
    assert keys_of(plan)["tokenizer.ggml.mask_token_id"] == DIMS.mask
    assert [pair.key for pair in plan.keys].count("tokenizer.ggml.mask_token_id") == 1


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_stored_types(tmp_path, tiny_target, dtype):
    folder = tiny.write_checkpoint(tmp_path / "c", dtype=dtype)
    own = BY_NAME[dtype].id
    for tensor in api.plan(folder, tiny_target, "Q4_0").tensors:
        full = len(tensor.shape) == 1 or tensor.name.endswith("_base")
        assert tensor.stored == (F32 if full else own)
        assert tensor.type == (F32 if full else BY_NAME["Q4_0"].id)


@pytest.mark.parametrize(("quant", "kind"), [("F32", F32), ("F16", F16), ("BF16", BF16)])
def test_plain_types_keep_the_checkpoints_order(tiny_checkpoint, tiny_target, quant, kind):
    plan = api.plan(tiny_checkpoint, tiny_target, quant)
    assert [tensor.source.name for tensor in plan.tensors] == sorted(tiny.checkpoint_values())
    for tensor in plan.tensors:
        full = len(tensor.shape) == 1 or tensor.name.endswith(("_base", "_norm.weight"))
        assert tensor.type == (F32 if full else kind)


def test_mixtures_are_in_llama_quantizes_order(tiny_checkpoint, tiny_target):
    names = [tensor.name for tensor in api.plan(tiny_checkpoint, tiny_target, "Q4_K_M").tensors]
    assert names[:4] == [
        "enc.output_norm.weight", "fc.weight", "output_norm.weight", "selector_hidden.weight",
    ]  # fmt: skip
    assert names[6:8] == ["blk.0.attn_conv_base", "blk.0.attn_conv_proj.weight"]
    assert sorted(["blk.10.a", "blk.2.b", "z", "blk.2.a"], key=quantize_order) == [
        "z", "blk.2.a", "blk.2.b", "blk.10.a",
    ]  # fmt: skip


def test_shapes_offsets_and_sizes(tiny_checkpoint, tiny_target):
    plan = api.plan(tiny_checkpoint, tiny_target, "Q4_K_M")
    assert {t.name: t.shape for t in plan.tensors}["blk.0.attn_conv_base"] == (512, 2, 2)
    offset = 0
    for tensor in plan.tensors:
        assert tensor.offset == offset
        offset += -(-tensor.nbytes // 32) * 32
    assert len(plan.header) % 32 == 0
    assert plan.n_bytes == len(plan.header) + offset
    assert plan.n_weights == sum(array.size for array in tiny.checkpoint_values().values())
    assert sum(plan.tensor_types.values()) == len(plan.tensors)


def test_interleaved_rope_marks_queries_and_keys(tmp_path, tiny_target):
    folder = tiny.write_checkpoint(tmp_path / "c", config={"rope_is_neox_style": False})
    marked = {t.name for t in api.plan(folder, tiny_target, "F16").tensors if t.transform == Deinterleave(64)}
    suffixes = ("attn_q.weight", "attn_k.weight", "attn_q_norm.weight", "attn_k_norm.weight")
    assert marked == {f"blk.{i}.{suffix}" for i in range(2) for suffix in suffixes}


def test_a_prefix_before_the_names(tmp_path, tiny_checkpoint, tiny_target):
    folder = tiny.write_checkpoint(tmp_path / "c", prefix="model.")
    shapes = {t.name: (t.shape, t.type) for t in api.plan(folder, tiny_target, "F16").tensors}
    assert shapes == {t.name: (t.shape, t.type) for t in api.plan(tiny_checkpoint, tiny_target, "F16").tensors}


MISFITS = {
    "missing": ({"drop_tensors": ["layers.1.mlp.up_proj.weight"]}, "missing: `layers.1.mlp.up_proj.weight`"),
    "unknown": ({"tensors": {"fc.bias": np.zeros(512, np.float32)}}, "unknown: `fc.bias`"),
    "shape": ({"tensors": {"norm.weight": np.zeros(8, np.float32)}}, r"`norm.weight \[8\] for \[512\]`"),
    "half a selector": (
        {"drop_tensors": ["candidate_selector.successor_codebook"]},
        "missing: `candidate_selector.successor_codebook`",
    ),
    "integers": ({"tensors": {"norm.weight": np.zeros(512, np.int64)}}, "dtype of `norm.weight`"),
    "no query norm": ({"drop_tensors": ["layers.0.self_attn.q_norm.weight"]}, "no vector"),
    "both names": ({"tensors": {"model.fc.weight": np.zeros(1, np.float32)}}, "holds both `fc.weight`"),
    "no family": ({"drop_tensors": sorted(tiny.drafter_arrays())[:-1]}, "of no known family"),
    "no selector": ({"kind": "dflash", "config": {"conv_kernel_size": 2}}, "an incomplete DFlash 2 drafter"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_tensors_that_do_not_fit(tmp_path, tiny_target, name):
    changes, message = MISFITS[name]
    folder = tiny.write_checkpoint(tmp_path / "c", **changes)
    with pytest.raises(CheckpointError, match=message):
        api.plan(folder, tiny_target, "F16")


def test_many_misfits_are_one_error(tmp_path, tiny_target):
    names = [f"layers.{i}.mlp.{part}_proj.weight" for i in range(2) for part in ("up", "down", "gate")]
    extra = {f"extra.{i}": np.zeros(1, np.float32) for i in range(10)}
    folder = tiny.write_checkpoint(tmp_path / "c", drop_tensors=names, tensors=extra)
    with pytest.raises(CheckpointError) as caught:
        api.plan(folder, tiny_target, "F16")
    assert all(name in str(caught.value) for name in names)
    assert "and 2 more" in str(caught.value)


def embeddings(*names):
    return {name: np.zeros((DIMS.vocab, DIMS.hidden), np.float32) for name in names}


def test_embeddings_of_its_own(tmp_path, tiny_target):
    both = tiny.write_checkpoint(tmp_path / "b", tensors=embeddings("embed_tokens.weight", "lm_head.weight"))
    names = {tensor.name for tensor in api.plan(both, tiny_target, "Q4_K_M").tensors}
    assert {"token_embd.weight", "output.weight"} < names
    alone = tiny.write_checkpoint(tmp_path / "a", tensors=embeddings("embed_tokens.weight"))
    plan = api.plan(alone, tiny_target, "F16")
    assert {"token_embd.weight", "output.weight"} < {tensor.name for tensor in plan.tensors}
    assert any("`output.weight` (Q8_0, 278528 bytes) is taken from the target" in note for note in plan.notes)
    tied = tiny.write_target(tmp_path / "tied.gguf", tied=True)
    assert "token_embd.weight" in {tensor.name for tensor in api.plan(alone, tied, "F16").tensors}


def test_embeddings_that_the_config_disowns_are_left_out_with_a_note(tmp_path, tiny_target):
    folder = tiny.write_checkpoint(
        tmp_path / "c", tensors=embeddings("embed_tokens.weight"), config={"has_embed_tokens": False}
    )
    plan = api.plan(folder, tiny_target, "F16")
    assert "token_embd.weight" not in {tensor.name for tensor in plan.tensors}
    assert "embed_tokens.weight" in plan.notes[0]


def test_a_target_that_does_not_fit(tmp_path, tiny_checkpoint):
    with pytest.raises(PairError, match="hidden"):
        api.plan(tiny_checkpoint, tiny.write_target(tmp_path / "h.gguf", hidden=256), "F16")
    with pytest.raises(PairError, match="vocabular"):
        api.plan(tiny_checkpoint, tiny.write_target(tmp_path / "v.gguf", vocab=544), "F16")
    with pytest.raises(GGUFError, match="no such file"):
        api.plan(tiny_checkpoint, tmp_path / "none.gguf", "F16")


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("Qwen3.8 27B", "Qwen3.8-27B"),
        ("org/My Model", "org-My-Model"),
        ("", "Some-Model-27B"),
        ("../..", "Some-Model-27B"),
        ("日本", "Some-Model-27B"),
    ],
)
def test_the_title_of_the_target(tmp_path, tiny_checkpoint, name, title):
    path = tmp_path / "Some-Model-27B-UD-Q4_K_XL-00001-of-00001.gguf"
    target = tiny.write_target(path, extra_keys={"general.name": name})
    assert api.plan(tiny_checkpoint, target, "F16").title == title


def test_the_model_card_gives_the_licence(tmp_path, tiny_target):
    folder = tiny.write_checkpoint(tmp_path / "Tiny-DFlash2")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\ntags: [draft]\n---\n# card\n")
    values = keys_of(api.plan(folder, tiny_target, "F16"))
    assert values["general.license"] == "apache-2.0"
    assert values["general.tags"] == ("draft",)
    assert values["general.name"] == "Tiny DFlash2"


@pytest.mark.parametrize("card", [b"---\n{: [\n---\n", b"\xff\xfe", b"---\nbase_model: [[[1]]]\ntags: 3\n---\n"])
def test_an_unreadable_model_card_does_not_stop_the_conversion(tmp_path, tiny_target, card):
    folder = tiny.write_checkpoint(tmp_path / "c")
    (folder / "README.md").write_bytes(card)
    plan = api.plan(folder, tiny_target, "F16")
    assert keys_of(plan)["general.architecture"] == "dflash"
    assert all("model card" in note for note in plan.notes)


def test_output_types():
    assert resolve_quant("q4_k_m") is QUANTS["Q4_K_M"]
    assert resolve_quant("INT4") is resolve_quant("int4") is QUANTS["Q4_0"]
    assert set(QUANT_NAMES) == set(QUANTS) | set(ALIASES)
    with pytest.raises(QuantizeError, match=r"unknown output type: got 'Q9'.*Q4_K_M"):
        resolve_quant("Q9")


def test_encoding_refuses_what_does_not_fit():
    for value in (-1, 1 << 32, "x", None):
        with pytest.raises(OutputError, match="key `k`"):
            scalar("k", "uint32", value)
    with pytest.raises(OutputError, match="key `k`"):
        scalar("k", "float32", 1e300)
    with pytest.raises(OutputError, match="key `k`"):
        scalar("k", "string", "\ud800")
    assert array("k", "bool", [True, False]).raw.endswith(b"\x01\x00")
