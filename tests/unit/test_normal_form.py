"""The normal form of every family: spellings, dialects, what the user gives, what is noted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
from resolving import BOTH, DSPARK, MIXED, QWEN, SEEN, SLIDING, changed, resolve

from dflash_gguf.convert.attention import Window
from dflash_gguf.convert.families import dflash, dspark, gemma4
from dflash_gguf.convert.families.dialects import dialect_of
from dflash_gguf.convert.overrides import FLAGS, TABLE, Overrides
from dflash_gguf.errors import CheckpointError

# ---------------------------------------------------------------- what the user gives


def test_every_flag_stands_for_a_field():
    assert {row.attribute for row in TABLE} == set(Overrides.__slots__)
    assert FLAGS["block_size"] == "--block-size"


@pytest.mark.parametrize(
    ("dropped", "flag", "given"),
    [
        (("block_size", "dflash_config.block_size"), "--block-size", {"block_size": 8}),
        (("dflash_config.mask_token_id",), "--mask-token-id", {"mask_token_id": 3}),
        (("dflash_config.target_layer_ids",), "--target-layers", {"target_layers": (0, 1, 2)}),
        (("rope_parameters",), "--rope-theta", {"rope_theta": 1e4}),
    ],
)
def test_an_absent_value_names_the_flag_that_supplies_it(dropped, flag, given):
    with pytest.raises(CheckpointError, match=f"pass `{flag}`"):
        resolve(changed(*dropped))
    assert resolve(changed(*dropped), **given) == resolve(tiny.drafter_config())


def test_given_values_win_and_are_noted():
    spec = resolve(tiny.drafter_config(), block_size=4, causal=True, embedding_scale=2, target_layers=(1, 2, 3))
    assert (spec.block_size, spec.causal, spec.embedding_scale, spec.taps) == (4, True, 2.0, (1, 2, 3))
    assert any("`--block-size` wins over `dflash_config.block_size` 8" in note for note in spec.notes)
    assert resolve(tiny.drafter_config(), block_size=8).notes == ()


def test_given_values_settle_a_contradiction():
    spec = resolve(changed(block_size=16), block_size=8)
    assert spec.block_size == 8
    assert "disagree" in spec.notes[0]


def test_given_values_are_checked_like_others():
    with pytest.raises(CheckpointError, match="`--block-size` is 1, expected an integer from 2"):
        resolve(tiny.drafter_config(), block_size=1)
    with pytest.raises(CheckpointError, match="`--mask-token-id` is 512"):
        resolve(tiny.drafter_config(), mask_token_id=512)


# ---------------------------------------------------------------- other spellings and places


@pytest.mark.parametrize(
    "config",
    [
        changed("dflash_config.target_layer_ids", aux_hidden_state_layer_ids=[1, 2, 3]),
        changed(eagle_aux_hidden_state_layer_ids=[1, 2, 3]),
        changed("dflash_config.mask_token_id", pard_token=tiny.MASK_ID),
        changed(rope_interleaved=False),
        changed(is_neox_style=True, rope_is_neox_style=True),
        changed("hidden_size", text_config={"hidden_size": 512}),
        changed(tie_word_embeddings=False, text_config={"tie_word_embeddings": True}),
        changed(runtime_block_size=99, draft_window_size=1, num_anchors=512, confidence_head_alpha=1.0),
    ],
)
def test_more_spellings_of_the_same_thing(config):
    assert resolve(config) == resolve(tiny.drafter_config())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (changed(aux_hidden_state_layer_ids=[0, 1, 2]), r"and `1 \+ aux_hidden_state_layer_ids` disagree"),
        (changed(rope_is_neox_style=True, rope_interleaved=True), "and `not rope_interleaved` disagree"),
        (changed(text_config={"hidden_size": 256}), r"`hidden_size` and `text_config\.hidden_size` disagree"),
        (changed(target_hidden_size=1024), "`target_hidden_size`"),
        (changed(v_head_dim=32), "`v_head_dim`"),
        (changed(markov_head_type="rnn"), "vanilla"),
        (changed(draft_vocab_size=1024), "at most vocab_size 512"),
        (changed(draft_vocab_size=100), "there is no tensor `d2t`"),
    ],
)
def test_contradictions_and_refusals(config, message):
    with pytest.raises(CheckpointError, match=message):
        resolve(config)


def test_speculators_nest_the_layers():
    config = tiny.drafter_config()
    outer = {"architectures", "block_size", "dflash_config", "num_target_layers", "tie_word_embeddings"}
    nested = {key: value for key, value in config.items() if key not in outer}
    flat = {key: value for key, value in config.items() if key in outer} | {"transformer_layer_config": nested}
    assert resolve(flat) == replace(resolve(config), never_causal=False)


def test_a_vocabulary_that_the_config_leaves_to_the_target():
    assert resolve(changed("vocab_size"), dflash.FAMILY).vocab_size == 512
    with pytest.raises(CheckpointError, match="the config has no `vocab_size`"):
        resolve(changed("vocab_size"), target=replace(QWEN, vocab_size=None))


# ---------------------------------------------------------------- the anchor


PROPOSALS = {"algorithm": "dspark", "proposal_methods": [{"speculative_tokens": 8}]}
FEWER = {"algorithm": "dspark", "proposal_methods": [{"speculative_tokens": 7}]}


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ({}, True),
        ({"sample_from_anchor": False}, False),
        ({"dspark_bonus_anchor": True}, False),
        ({"dspark_bonus_anchor": False}, True),
        ({"speculators_config": PROPOSALS}, True),
        ({"speculators_config": FEWER}, False),
        ({"speculators_config": FEWER, "sample_from_anchor": True}, True),
        ({"speculators_config": {"proposal_methods": [{"speculative_tokens": 3}, 7, None]}}, True),
        ({"speculators_config": {"proposal_methods": "x"}}, True),
        ({"architectures": ["Qwen3DSparkModel"]}, True),
    ],
)
def test_where_dspark_starts(values, first):
    assert resolve(changed(**values), dspark.FAMILY, DSPARK).anchor_first is first


def test_where_the_others_start():
    assert resolve(changed(sample_from_anchor=True)).anchor_first is None
    assert resolve(tiny.drafter_config(), dflash.FAMILY).anchor_first is None
    assert resolve(changed(sample_from_anchor=False), dflash.FAMILY).anchor_first is None
    spec = resolve(changed(architectures=["Qwen3DSparkModel"], markov_rank=0), dflash.FAMILY)
    assert spec.anchor_first
    assert "--spec-type draft-dspark --spec-draft-p-min 0" in spec.notes[-1]


@pytest.mark.parametrize(
    ("seen", "confidence"),
    [(DSPARK, True), (replace(DSPARK, confidence_width=512), False), (replace(DSPARK, confidence_width=None), None)],
)
def test_confidence_heads(seen, confidence):
    assert resolve(tiny.drafter_config(), dspark.FAMILY, seen).confidence is confidence


def test_ranks_that_differ():
    with pytest.raises(CheckpointError, match="`markov_rank` in the config: got 64, expected 32"):
        resolve(changed(markov_rank=64), dspark.FAMILY, DSPARK)


def test_reduced_vocabularies():
    seen = replace(SEEN, draft_vocab=100)
    assert resolve(changed(draft_vocab_size=100), dflash.FAMILY, seen).draft_vocab == 100
    assert resolve(tiny.drafter_config(), dflash.FAMILY, seen).draft_vocab == 100
    with pytest.raises(CheckpointError, match="100, the length of `d2t`"):
        resolve(changed(draft_vocab_size=99), dflash.FAMILY, seen)
    with pytest.raises(CheckpointError, match="code books"):
        resolve(tiny.drafter_config(), seen=seen)


# ---------------------------------------------------------------- dialects


@pytest.mark.parametrize(
    ("label", "causal"),
    [("DFlash2DraftModel", True), ("Qwen3DFlash2DraftModel", False), ("MuseGlimmerAssistantModel", False)],
)
def test_what_authors_leave_unsaid_about_causality(label, causal):
    config = changed("is_causal", **SLIDING, layer_types=BOTH, architectures=[label])
    assert resolve(config).causal is causal


def test_speculators_say_it_the_other_way_round():
    config = changed("is_causal", **SLIDING, layer_types=BOTH, speculators_model_type="dflash")
    assert resolve(config).causal
    assert not resolve(config | {"sliding_window_non_causal": True}).causal


def test_a_window_alone_is_not_causal():
    config = changed("is_causal", "layer_types", nested={"use_swa": True, "swa_window_size": 64})
    assert not resolve(config).causal


def test_mixed_causality_says_what_it_costs():
    note = resolve(changed("is_causal", **SLIDING, layer_types=MIXED)).notes[0]
    assert "fewer drafts are accepted" in note
    assert "`--causal`" in note


def test_muse_uses_its_window_whatever_hugging_face_would():
    config = changed("use_sliding_window", sliding_window=64, layer_types=BOTH)
    assert resolve(config).window is None
    config["architectures"] = ["MuseGlimmerAssistantModel"]
    assert resolve(config).window == Window(64, (True, True))


@pytest.mark.parametrize("label", ["Qwen3DSparkModel", "DSparkDraftModel", "DSparkSpeculator"])
def test_an_inherited_partial_rotation_is_left_out(label):
    config = changed(partial_rotary_factor=0.25, architectures=[label])
    spec = resolve(config, dspark.FAMILY, DSPARK)
    assert spec.rope.dimensions is None
    assert any("`partial_rotary_factor` 0.25 was left out" in note for note in spec.notes)
    assert resolve(config, dspark.FAMILY, DSPARK, partial_rotary_factor=0.25).rope.dimensions == 16


def test_a_genuine_partial_rotation():
    config = changed(partial_rotary_factor=0.5, architectures=["DFlashDraftModel"])
    spec = resolve(config, dflash.FAMILY)
    assert spec.rope.dimensions == 32
    assert "`--partial-rotary-factor 1` turns all" in spec.notes[0]


def test_an_unknown_label_is_noted_and_read_as_z_labs():
    dialect, notes = dialect_of({"architectures": ["SomethingNew"]})
    assert dialect.title == "z-lab"
    assert "SomethingNew" in notes[0]
    assert dialect_of({"architectures": 7})[1]
    assert not dialect_of({"architectures": ["DFlashDraftModel"]})[1]


# ---------------------------------------------------------------- rotary positions


def test_llama3_factors():
    rope = {
        "rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    factors = resolve(changed(rope_parameters=rope)).rope.factors
    assert len(factors) == 32
    assert factors[0] == 1.0
    assert factors[-1] == pytest.approx(8.0)
    assert list(factors) == sorted(factors)
    with pytest.raises(CheckpointError, match="less than `high_freq_factor`"):
        resolve(changed(rope_parameters=rope | {"low_freq_factor": 4.0}))
    with pytest.raises(CheckpointError, match="together with"):
        resolve(changed(rope_parameters=rope, rope_is_neox_style=False))


YARN = {"rope_theta": 1e4, "rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("keys", "magnitude"),
    [
        ({}, None),
        ({"mscale": 1.0}, None),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1 / 1.415888),
        ({"attention_factor": 1.0}, 1 / 1.415888),
        ({"attention_factor": 1.4158883083359672}, None),
        ({"attention_factor": 1.0, "factor": 1.0}, None),
    ],
)
def test_yarns_magnitude(keys, magnitude):
    found = resolve(changed(rope_parameters=YARN | keys)).rope.magnitude
    assert found == (None if magnitude is None else pytest.approx(magnitude))


def test_what_llama_cpp_ignores_of_yarn_is_noted():
    notes = resolve(changed(rope_parameters=YARN | {"beta_fast": 16, "beta_slow": 1, "truncate": False})).notes
    assert len(notes) == 2
    assert "beta_fast" in notes[0]
    assert "truncate" in notes[1]


# ---------------------------------------------------------------- Gemma


def test_embeddings_for_a_gemma_target():
    target = replace(QWEN, architecture="gemma4")
    spec = resolve(tiny.drafter_config(), dflash.FAMILY, target=target)
    assert spec.embedding_scale == pytest.approx(512**0.5)
    assert "--embedding-scale" in spec.notes[-1]
    assert resolve(changed(input_embedding_scale=1), dflash.FAMILY, target=target).embedding_scale == 1
    own = replace(SEEN, embeddings=True)
    assert resolve(tiny.drafter_config(), dflash.FAMILY, own, target).embedding_scale is None
    assert resolve(tiny.drafter_config(), dflash.FAMILY, target=target, embedding_scale=2).embedding_scale == 2


def test_output_transforms_that_llama_cpp_skips_are_noted():
    config = changed(nested={"output_multiplier": 0.2}, final_logit_softcapping=30.0)
    assert resolve(config).notes == ()
    spec = resolve(config, dflash.FAMILY)
    assert (spec.logit_scale, spec.softcap) == (0.2, 30.0)
    assert len(spec.notes) == 2
    assert "Markov" in resolve(config, dspark.FAMILY, DSPARK).notes[0]


GEMMA = {
    "architectures": ["Gemma4DSparkModel"],
    "attention_k_eq_v": True,
    "global_head_dim": 64,
    "head_dim": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_global_key_value_heads": 4,
    "num_key_value_heads": 8,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
    "sliding_window": 1024,
}


def test_gemma_layers():
    spec = resolve(changed("hidden_act", **GEMMA), gemma4.FAMILIES[0], DSPARK)
    assert (spec.head_dim, spec.n_kv_heads, spec.attention_scale) == (64, 4, 1.0)
    assert (spec.activation, spec.window, spec.rope.dimensions) == ("gelu_pytorch_tanh", None, 64)
    assert spec.rope.factors == (1.0,) * 8 + (1e30,) * 24
    assert spec.embedding_scale == pytest.approx(512**0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_k_eq_v": False}, "values of its own"),
        ({"enable_moe_block": True}, "experts"),
        ({"layer_types": BOTH}, "not all full"),
        ({"hidden_activation": "silu"}, "expected gelu_pytorch_tanh"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}}, "default or proportional"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "proportional", "partial_rotary_factor": 0.1}}, "even"),
    ],
)
def test_gemma_refusals(changes, message):
    with pytest.raises(CheckpointError, match=message):
        resolve(changed("hidden_act", **(GEMMA | changes)), gemma4.FAMILIES[0], DSPARK)
