"""Families: told by their tensors, refused by name, whole or not at all, nothing dropped in silence."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import zoo
from families import changed, planned, target_of
from zoo import Stored
from zoo.files import floats, whole

from dflash_gguf.convert import api
from dflash_gguf.convert.families.names import plain_name
from dflash_gguf.convert.families.refused import REFUSED
from dflash_gguf.errors import CheckpointError, GGUFError, PairError

H, V, R = 256, 512, 32


def names_of(plan):
    return {tensor.name for tensor in plan.tensors}


def keys_of(plan):
    return {pair.key: pair.value for pair in plan.keys}


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_the_kind_follows_from_the_tensors(tmp_path, name):
    plan = planned(tmp_path, name)
    assert plan.kind == zoo.FAMILIES[name].kind
    keys = keys_of(plan)
    for key in ("attention.causal", "block_size", "rope.freq_base", "target_layers"):
        assert f"dflash.{key}" in keys
    if plan.kind == "dspark":
        assert "dflash.sample_from_anchor" in keys
        assert "dflash.has_confidence_head" in keys


@pytest.mark.parametrize("name", ["zlab-v1-old", "incoai-2", "specforge-dspark"])
def test_the_label_does_not_decide(tmp_path, name):
    plan = planned(tmp_path, name, changed(zoo.content(name), architectures=["SomethingElse"]))
    assert plan.kind == zoo.FAMILIES[name].kind
    assert any("SomethingElse" in note for note in plan.notes)


@pytest.mark.parametrize("name", zoo.REFUSED)
def test_what_cannot_be_converted_is_refused_by_name(tmp_path, name):
    checkpoint = zoo.write_checkpoint(name, tmp_path)
    target = target_of("zlab-v1-old")
    with pytest.raises(CheckpointError, match=zoo.REFUSED[name].refusal):
        api.plan(checkpoint, target)


@pytest.mark.parametrize("label", [label for row in REFUSED for label in row.labels])
def test_every_refused_label_is_named_with_its_reason(tmp_path, label):
    content = changed(zoo.content("zlab-v1-old"), architectures=[label])
    with pytest.raises(CheckpointError, match=rf"cannot be converted \(`{label}`\): "):
        planned(tmp_path, "zlab-v1-old", content)


def dspark(*, drop=(), tensors=None, **config):
    return changed(zoo.content("specforge-dspark"), drop=drop, tensors=tensors, **config)


def flat_heads(*shapes):
    return floats({name: np.zeros(shape, np.float32) for name, shape in shapes})


PARTIAL = {
    "half a Markov head": (
        dspark(drop=["markov_head.markov_w2.weight"]),
        "missing: `markov_head.markov_w2.weight`",
    ),
    "the other half": (dspark(drop=["markov_head.markov_w1.weight"]), "`markov_rank`|Markov head is incomplete"),
    "a bias without its weight": (
        dspark(drop=["confidence_head.proj.weight"]),
        "promises a confidence head \\(`dflash_config.enable_confidence_head`\\), but no tensor is of one",
    ),
    "no Markov head where the config asks for one": (
        dspark(drop=[name for name in dspark().tensors if "head" in name]),
        "an incomplete DSpark drafter",
    ),
    "a selector's keys and v1's tensors": (
        changed(zoo.content("zlab-v1-old"), conv_kernel_size=2),
        "an incomplete DFlash 2 drafter: the config has `conv_kernel_size`",
    ),
    "a projector and v1's tensors": (
        changed(zoo.content("zlab-v1-old"), projector_type="dflash2"),
        "an incomplete DFlash 2 drafter: the config has `projector_type` dflash2",
    ),
    "one layer with sinks": (
        changed(zoo.content("mimo-v1"), drop=["model.layers.1.self_attn.attention_sink_bias"]),
        "missing: `layers.1.self_attn.attention_sink_bias`",
    ),
    "sinks promised": (
        changed(zoo.content("zlab-v1-old"), attention_sink_bias=True),
        "missing: `layers.0.self_attn.attention_sink_bias`",
    ),
    "one layer with a scalar": (
        changed(zoo.content("gemma4-dspark"), drop=["layers.0.layer_scalar"]),
        "missing: `layers.0.layer_scalar`",
    ),
    "a table without a head": (
        changed(zoo.content("speculators-v1"), drop=["lm_head.weight"]),
        "missing: `lm_head.weight`",
    ),
    "a third layer": (
        changed(zoo.content("zlab-v1-old"), tensors=floats({"layers.2.mlp.up_proj.weight": np.zeros((1, 1))})),
        "unknown: `layers.2.mlp.up_proj.weight`",
    ),
    "nothing of the kind": (
        changed(zoo.content("zlab-v1-old"), drop=["fc.weight"]),
        "of no known family",
    ),
    "taps of another number": (
        changed(zoo.content("zlab-v1-old"), dflash_config={"mask_token_id": 3, "target_layer_ids": [0, 1]}),
        r"`fc.weight \[256, 768\] for \[256, 512\]`",
    ),
    "an expert without its scale": (
        changed(zoo.content("deepseek4"), drop=["mtp.0.ffn.experts.1.w1.scale"]),
        "lack a weight or a scale",
    ),
    "an expert too few": (
        changed(zoo.content("deepseek4"), drop=["mtp.0.ffn.experts.0.w1.scale", "mtp.0.ffn.experts.0.w1.weight"]),
        "experts of `layers.0.ffn.experts.w1` are missing",
    ),
    "other scoring": (changed(zoo.content("deepseek4"), scoring_func="sigmoid"), "sqrtsoftplus"),
    "no stages": (
        changed(zoo.content("zlab-v1-old"), architectures=["DeepseekV4DSparkModel"]),
        r"holds no tensors named `mtp\.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PARTIAL)
def test_a_partial_set_names_what_is_missing(tmp_path, case):
    content, message = PARTIAL[case]
    with pytest.raises(CheckpointError, match=message):
        planned(tmp_path, "zlab-v1-old", content)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("model.layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"),
        ("model.language_model.norm.weight", "norm.weight"),
        ("encoder.fc.weight", "fc.weight"),
        ("model.encoder.output_norm_enc.weight", "hidden_norm.weight"),
        ("markov_w1", "markov_head.markov_w1.weight"),
        ("markov_w2.weight", "markov_head.markov_w2.weight"),
        ("confidence_proj.bias", "confidence_head.proj.bias"),
        ("candidate_selector.successor_codebook.weight", "candidate_selector.successor_codebook"),
        ("layers.3.self_attn.sinks", "layers.3.self_attn.attention_sink_bias"),
        ("layers.3.self_attn.attention_sink_bias.weight", "layers.3.self_attn.attention_sink_bias"),
        ("mtp.0.main_proj.weight", "fc.weight"),
        ("mtp.2.hc_head_scale", "hc_head_scale"),
        ("mtp.1.attn.wkv.weight", "layers.1.attn.wkv.weight"),
        ("mtp.0.embed.weight", "embed_tokens.weight"),
        ("something.else", "something.else"),
    ],
)
def test_names(name, plain):
    assert plain_name(name) == plain


def test_two_spellings_of_one_tensor(tmp_path):
    extra = flat_heads(("markov_w1.weight", (V, R)))
    with pytest.raises(CheckpointError, match=r"holds both `markov_head\.markov_w1\.weight` and `markov_w1\.weight`"):
        planned(tmp_path, "specforge-dspark", dspark(tensors=extra))


def test_fused_tensors_are_split(tmp_path):
    content = zoo.content("zlab-v1-old")
    fused, parts = {}, []
    for i in range(2):
        for whole_name, pieces in (("self_attn.qkv", "qkv"), ("mlp.gate_up", ("gate", "up"))):
            start = whole_name.split(".")[0]
            names = [f"layers.{i}.{start}.{piece}_proj.weight" for piece in pieces]
            rows = np.concatenate([content.tensors[name].values for name in names])
            fused |= {f"layers.{i}.{whole_name}_proj.weight": rows}
            parts += names
    plan = planned(tmp_path, "zlab-v1-old", changed(content, drop=parts, tensors=floats(fused)))
    (tmp_path / "plain").mkdir()
    assert {(t.name, t.shape, t.source.spans[0].nbytes) for t in plan.tensors} == {
        (t.name, t.shape, t.source.spans[0].nbytes) for t in planned(tmp_path / "plain", "zlab-v1-old").tensors
    }
    wrong = floats({"layers.0.mlp.gate_up_proj.weight": np.zeros((1000, H), np.float32)})
    (tmp_path / "wrong").mkdir()
    with pytest.raises(CheckpointError, match=r"expected \[1024, 256\]"):
        planned(tmp_path / "wrong", "zlab-v1-old", changed(content, drop=parts, tensors=floats(fused) | wrong))


def test_what_is_left_out_is_noted(tmp_path):
    extra = floats({f"layers.{i}.self_attn.rotary_emb.inv_freq": np.zeros(32, np.float32) for i in range(2)})
    plan = planned(tmp_path, "zlab-v1-old", changed(zoo.content("zlab-v1-old"), tensors=extra))
    assert any("inv_freq" in note and "left out" in note for note in plan.notes)


def test_a_confidence_head_without_markov_is_left_out(tmp_path):
    plan = planned(tmp_path, "specforge-dspark", dspark(tensors=flat_heads(("confidence_head.proj.weight", (1, H)))))
    assert "conf_proj.weight" not in names_of(plan)
    assert keys_of(plan)["dflash.has_confidence_head"] is False
    assert any("confidence_head.proj.weight" in note for note in plan.notes)


def offsets(*changes):
    table = zoo.content("speculators-v1").tensors["d2t"]
    values = np.frombuffer(table.data, "<i8").copy()
    for row, value in changes:
        values[row] = value
    return {"d2t": whole(values)}


D2T = {
    "beyond the vocabulary": (offsets((95, V)), "row 95 of `d2t`"),
    "before it": (offsets((0, -1)), "row 0 of `d2t`: got '-1, token -1'"),
    "far away": (offsets((0, 2**63 - 1)), "row 0 of `d2t`"),
    "one token twice": (offsets((0, 5), (1, 4)), "`d2t` names a token twice"),
    "floats": (floats({"d2t": np.zeros(96, np.float32)}), "dtype of `d2t`"),
    "a matrix": ({"d2t": whole(np.zeros((1, 96), np.int64))}, "there is no tensor `d2t`"),
    "another length": ({"d2t": whole(np.zeros(95, np.int64))}, "95, the length of `d2t`"),
    "no rows": ({"d2t": whole(np.zeros(0, np.int64))}, "0, the length of `d2t`"),
}


@pytest.mark.parametrize("case", D2T)
def test_draft_vocabularies_that_are_wrong(tmp_path, case):
    tensors, message = D2T[case]
    with pytest.raises(CheckpointError, match=message):
        planned(tmp_path, "speculators-v1", changed(zoo.content("speculators-v1"), tensors=tensors))


def test_offsets_become_token_ids(tmp_path):
    plan = planned(tmp_path, "speculators-v1")
    made = next(tensor for tensor in plan.tensors if tensor.name == "d2t")
    stored = np.frombuffer(zoo.content("speculators-v1").tensors["d2t"].data, "<i8")
    assert np.array_equal(np.frombuffer(made.source.data, "<i8"), stored + np.arange(96))


def test_a_drafter_of_another_depth_and_a_target_without_taps(tmp_path):
    plan = planned(tmp_path, "zlab-v1-old", changed(zoo.content("zlab-v1-old"), num_target_layers=36))
    assert any("a target of 36 layers, this one has 4" in note for note in plan.notes)
    (tmp_path / "glm").mkdir()
    plan = planned(tmp_path / "glm", "zlab-v1-old", arch="glm4")
    assert any("does not expose the layer inputs" in note for note in plan.notes)
    (tmp_path / "wide").mkdir()
    with pytest.raises(PairError, match="hidden sizes differ"):
        planned(tmp_path / "wide", "zlab-v1-old", hidden=512)


def test_a_deepseek_folder_needs_only_the_shards_of_its_drafter(tmp_path):
    content = zoo.content("deepseek4")
    own = {name: tensor for name, tensor in content.tensors.items() if name.startswith("mtp.")}
    folder = zoo.write_content(tmp_path / "d", changed(content, drop=set(content.tensors) - set(own)))
    (folder / "model.safetensors").rename(folder / "model-00046-of-00046.safetensors")
    index = dict.fromkeys(own, "model-00046-of-00046.safetensors") | {"head.weight": "model-00001-of-00046.safetensors"}
    zoo.files.write_json(folder / "model.safetensors.index.json", {"weight_map": index})
    assert "blk.1.ffn_up_exps.weight" in names_of(api.plan(folder, target_of("deepseek4")))


def test_a_quantized_files_experts_stay_as_they_are(tmp_path):
    types = {tensor.name: tensor.type for tensor in planned(tmp_path, "deepseek4", quant="Q8_0").tensors}
    assert {types[name] for name in types if "_exps" in name} == {39}


def test_rotary_factors_and_sections_of_positions(tmp_path):
    sections = (("llama.rope.dimension_sections", [8, 8, 8, 8]),)
    with pytest.raises(CheckpointError, match="together with the position sections"):
        planned(tmp_path, "zlab-v1-llama3", extra_keys=Keyed(sections))


class Keyed(tuple):
    """Keys with values that are lists, as an argument that can be kept."""

    __slots__ = ()

    def __hash__(self):
        return hash(str(self))


def test_a_drafter_is_no_target(tmp_path):
    target = zoo.write_target_gguf("zlab-v1-old", tmp_path / "target.gguf")
    checkpoint = zoo.write_checkpoint("zlab-v1-old", tmp_path)
    draft = api.convert(checkpoint, target, out=tmp_path / "d.gguf").path
    with pytest.raises(GGUFError, match="is itself a drafter"):
        api.plan(checkpoint, draft)


def test_a_flag_for_the_block_does_not_move_the_anchor(tmp_path):
    content = zoo.content("speculators-dspark")
    config = {key: value for key, value in content.config.items() if key != "sample_from_anchor"}
    content = replace(content, config=config)
    proposals = content.config["speculators_config"]["proposal_methods"][0]["speculative_tokens"]
    for given in ({}, {"block_size": proposals}):
        plan = planned(tmp_path, "speculators-dspark", content, given=given)
        assert keys_of(plan)["dflash.sample_from_anchor"] is False


def test_specforge_trains_without_causality(tmp_path):
    sliding = {"layer_types": ["sliding_attention"] * 2, "use_sliding_window": True, "sliding_window": 64}
    plan = planned(tmp_path, "specforge-dspark", changed(zoo.content("specforge-dspark"), **sliding))
    assert keys_of(plan)["dflash.attention.causal"] is False


@pytest.mark.parametrize("family", ["speculators-v1", "speculators-dspark"])
def test_ids_in_the_place_of_distances_are_caught_by_the_other_table(tmp_path, family):
    content = zoo.content(family)
    stored = content.tensors["d2t"]
    distances = np.frombuffer(stored.data, "<i8")
    absolute = Stored("I64", stored.shape, (distances + np.arange(distances.size)).tobytes())
    for tensors in (
        {"d2t": absolute},
        {"t2d": replace(content.tensors["t2d"], data=bytes(len(content.tensors["t2d"].data)))},
    ):
        with pytest.raises(CheckpointError, match=r"`d2t`"):
            planned(tmp_path, family, changed(content, tensors=tensors))
    assert planned(tmp_path, family, content)


def test_a_fused_tensor_beside_one_of_its_parts(tmp_path):
    content = zoo.content("zlab-v1-old")
    parts = [content.tensors[f"layers.0.self_attn.{name}_proj.weight"] for name in "qkv"]
    shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
    fused = Stored("BF16", shape, b"".join(part.data for part in parts))
    with pytest.raises(CheckpointError, match="holds both"):
        planned(tmp_path, "zlab-v1-old", changed(content, tensors={"layers.0.self_attn.qkv_proj.weight": fused}))


@pytest.mark.parametrize("family", ["nemotron-v1", "nemotron-dspark"])
def test_nvfp4_without_the_factor_of_its_tensor(tmp_path, family):
    content = zoo.content(family)
    name = next(name for name in content.tensors if name.endswith("weight_scale_2"))
    with pytest.raises(CheckpointError, match=f"has no `{name}`"):
        planned(tmp_path, family, changed(content, drop=[name]))


def test_whole_numbers_with_a_scale_are_a_scheme(tmp_path):
    content = zoo.content("zlab-v1-old")
    name = "layers.0.mlp.up_proj.weight"
    shape = content.tensors[name].shape
    packed = {
        name: Stored("I8", shape, bytes(shape[0] * shape[1])),
        f"{name}_scale": Stored("F32", (shape[0], 1), np.ones(shape[0], "<f4").tobytes()),
    }
    with pytest.raises(CheckpointError, match=r"packed by a scheme.*int8"):
        planned(tmp_path, "zlab-v1-old", changed(content, tensors=packed))


def test_weights_of_another_name_are_noted(tmp_path):
    checkpoint = zoo.write_checkpoint("zlab-v1-old", tmp_path)
    shutil.copy(checkpoint / "model.safetensors", checkpoint / "selector.safetensors")
    notes = api.plan(checkpoint, zoo.write_target_gguf("zlab-v1-old", tmp_path / "t.gguf")).notes
    assert "not read: `selector.safetensors`" in notes


def test_a_deepseek_config_that_speaks_of_its_own_layers(tmp_path):
    content = changed(zoo.content("deepseek4"), layer_types=["full_attention"] * 9)
    assert planned(tmp_path, "deepseek4", content)


def test_a_label_that_promises_more_than_there_is(tmp_path):
    content = changed(zoo.content("zlab-v1-old"), architectures=["DFlash2DraftModel"])
    assert any("says DFlash2DraftModel" in note for note in planned(tmp_path, "zlab-v1-old", content).notes)


@pytest.mark.parametrize("value", [1e-60, 1e60, -1, True, "1"])
def test_numbers_that_a_float_does_not_hold(tmp_path, value):
    with pytest.raises(CheckpointError, match=r"`rms_norm_eps`.*a positive number that a float holds"):
        planned(tmp_path, "zlab-v1-old", changed(zoo.content("zlab-v1-old"), rms_norm_eps=value))


def test_a_card_that_unfolds_is_left_out(tmp_path):
    checkpoint = zoo.write_checkpoint("zlab-v1-old", tmp_path)
    lines = ["---", "a0: &a0 [x, x, x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (checkpoint / "README.md").write_text("\n".join([*lines, "tags: *a11", "---", "text"]), encoding="utf-8")
    plan = api.plan(checkpoint, zoo.write_target_gguf("zlab-v1-old", tmp_path / "t.gguf"))
    assert any("its front matter has aliases" in note for note in plan.notes)
    assert len(plan.header) < 100_000


def test_keys_that_nobody_reads_are_noted(tmp_path):
    content = zoo.content("incoai-2")
    nested = content.config["dflash_config"] | {"tap_norms": True, "num_anchors": 512}
    notes = planned(tmp_path, "incoai-2", changed(content, dflash_config=nested)).notes
    assert "keys of `dflash_config` that are not read: `tap_norms`" in notes


def test_a_mimo_drafter_without_its_mask_embedding_is_noted(tmp_path):
    content = zoo.content("mimo-v1")
    assert any("no `mask_embedding.pt`" in n for n in planned(tmp_path, "mimo-v1", replace(content, files={})).notes)
    assert not any("no `mask_embedding.pt`" in note for note in planned(tmp_path / "whole", "mimo-v1", content).notes)
