"""Configs into the normal form."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
from resolving import BOTH, MIXED, SLIDING, changed, resolve

from dflash_gguf.convert.attention import Window
from dflash_gguf.convert.rope import Rope
from dflash_gguf.convert.spec import Selector
from dflash_gguf.errors import CheckpointError


def test_the_tiny_config():
    spec = resolve(tiny.drafter_config())
    assert (spec.kind, spec.hidden_size, spec.feed_forward, spec.n_layers) == ("dflash2", 512, 1024, 2)
    assert (spec.n_heads, spec.n_kv_heads, spec.head_dim, spec.vocab_size) == (8, 4, 64, 512)
    assert (spec.block_size, spec.mask_token_id, spec.taps) == (8, tiny.MASK_ID, (0, 1, 2))
    assert spec.target_layers == (1, 2, 3)
    assert spec.rope == Rope(10000.0)
    assert spec.selector == Selector(conv_kernel=2, conv_group=16, rank=32, top_k=16)
    assert (spec.causal, spec.window, spec.notes) == (False, None, ())


@pytest.mark.parametrize(
    "config",
    [
        changed("block_size"),
        changed("dflash_config.block_size"),
        changed("dflash_config.mask_token_id", mask_token_id=tiny.MASK_ID),
        changed("dflash_config.target_layer_ids", target_layer_ids=[0, 1, 2]),
        changed("dflash_config.selector_rank", selector_rank=32),
        changed("rope_parameters", rope_theta=10000),
        changed("rope_parameters", rope_scaling={"type": "default", "rope_theta": 1e4}),
        changed("head_dim"),
        changed("hidden_act"),
        changed("layer_types"),
        changed(partial_rotary_factor=1.0),
        changed(rope_scaling=None, dspark_block_size=None),
        changed(num_experts=128, num_experts_per_tok=8),
    ],
)
def test_spellings_of_the_same_thing(config):
    assert resolve(config) == resolve(tiny.drafter_config())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (changed(block_size=16), r"`dflash_config\.block_size` and `block_size` disagree: got '8 and 16'"),
        (changed(mask_token_id=5), r"`dflash_config\.mask_token_id` and `mask_token_id` disagree"),
        (changed(target_layer_ids=[0, 1]), r"target_layer_ids` and `target_layer_ids` disagree"),
        (changed(rope_theta=5e5), r"`rope_parameters\.rope_theta` and `rope_theta` disagree"),
        (changed(nested={"causal": True}), r"`is_causal` and `dflash_config\.causal` disagree"),
        (changed(conv_group_size=8), "disagree"),
        (changed("block_size", "dflash_config.block_size"), "the config has no `dflash_config.block_size` or"),
        (changed("dflash_config.mask_token_id"), "the config has no .*mask_token_id"),
        (changed("dflash_config.target_layer_ids"), "the config has no .*target_layer_ids"),
        (changed("rope_parameters"), "the config has no .*rope_theta"),
        (changed("dflash_config.conv_kernel_size"), "conv_kernel_size"),
        (changed("hidden_size"), "the config has no `hidden_size`"),
        (changed("max_position_embeddings"), "max_position_embeddings"),
        (changed(hidden_size="512"), "`hidden_size` in the config is '512'"),
        (changed(hidden_size=True), "`hidden_size` in the config is True"),
        (changed(hidden_size=0), "an integer from 1"),
        (changed(num_hidden_layers=10**9), "an integer from 1 to 512"),
        (changed(rms_norm_eps=0), "a positive number"),
        (changed(rms_norm_eps=float("nan")), "a finite number"),
        (changed(rms_norm_eps=1e300), "a positive number"),
        (changed(nested={"mask_token_id": 512}), "an integer from 0 to 511"),
        (changed(nested={"target_layer_ids": []}), "a list of 1 to 512 integers"),
        (changed(nested={"target_layer_ids": [1.5]}), "a list of 1 to 512 integers"),
        (changed(nested={"target_layer_ids": [-2]}), "integers from -1"),
        (changed(nested={"block_size": 1}, block_size=1), "an integer from 2"),
        (changed() | {"dflash_config": []}, "`dflash_config` in the config is"),
        (changed(is_causal="no"), "true or false"),
        (changed(layer_types=["full_attention"]), "layer_types"),
        (changed(layer_types=["full_attention", "linear_attention"]), "layer_types"),
        (changed(layer_types="full_attention"), "a list of strings"),
        (changed(head_dim=32), "64, the width of q_norm"),
        (changed(num_key_value_heads=3), "a multiple of 3"),
        (changed(hidden_act="gelu"), "expected silu"),
        (changed(attention_bias=True), "attention_bias"),
        (changed(partial_rotary_factor=0.51), "an even part of the 64 of a head"),
        (changed(partial_rotary_factor=1.5), "an even part of the 64 of a head"),
        (changed(nested={"conv_group_size": 24}), "a divisor of hidden_size 512"),
        (changed(nested={"selector_top_k": 32}), r"top_k \* \(top_k \+ 1\) <= 512"),
        (changed(rope_parameters={"rope_theta": 1e4, "rope_type": "longrope"}), "one of default, linear, yarn, llama3"),
        (changed(rope_parameters={"rope_theta": 1e4, "rope_type": "llama3"}), r"rope_parameters\.factor"),
        (changed(rope_parameters={"rope_theta": 0.5}), "at least 1"),
        (changed(rope_parameters={"rope_theta": 1e4, "rope_type": "yarn"}), r"rope_parameters\.factor"),
        (changed(use_sliding_window=True, layer_types=BOTH), "the config has no .*sliding_window"),
    ],
)  # fmt: skip
def test_refusals_name_the_place(config, message):
    with pytest.raises(CheckpointError, match=message):
        resolve(config)


@pytest.mark.parametrize(
    ("values", "window"),
    [
        (SLIDING | {"layer_types": BOTH}, Window(256, (True, True))),
        (SLIDING | {"layer_types": MIXED}, Window(256, (True, False))),
        (SLIDING | {"layer_types": ["full_attention"] * 2}, None),
        (SLIDING | {"layer_types": None, "max_window_layers": 1}, Window(256, (False, True))),
        (SLIDING | {"layer_types": None}, None),
        ({"layer_types": ["full_attention"] * 2, "sliding_window": 256}, None),
        ({"layer_types": ["full_attention"] * 2, "use_sliding_window": True}, None),
    ],
)
def test_windows(values, window):
    assert resolve(changed(**values)).window == window


def test_use_swa_windows_every_layer():
    config = changed(nested={"use_swa": True, "swa_window_size": 128}, sliding_window=128)
    assert resolve(config).window == Window(128, (True, True))


def test_a_window_that_hugging_face_drops_is_noted():
    spec = resolve(changed(layer_types=BOTH, sliding_window=256))
    assert spec.window is None
    assert "use_sliding_window" in spec.notes[0]


@pytest.mark.parametrize(
    ("layers", "causal", "noted"), [(None, False, False), (BOTH, True, True), (MIXED, False, True)]
)
def test_causality_that_is_not_stated(layers, causal, noted):
    values = SLIDING | {"layer_types": layers} if layers else {}
    spec = resolve(changed("is_causal", **values))
    assert (spec.causal, bool(spec.notes)) == (causal, noted)


def test_stated_causality_wins():
    assert resolve(changed("is_causal", nested={"causal": True})).causal
    assert not resolve(changed(**SLIDING, layer_types=BOTH)).causal


def test_rope_scaling():
    yarn = {
        "rope_theta": 1e4, "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512,
        "beta_fast": 32, "beta_slow": 1, "attention_factor": 1.5,
    }  # fmt: skip
    rope = resolve(changed(rope_parameters=yarn)).rope
    assert rope == Rope(1e4, "yarn", 4.0, 512, None, 1.5, 32.0, 1.0, magnitude=pytest.approx(1.5 / 1.138629))
    linear = {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}
    assert resolve(changed(rope_parameters=linear)).rope == Rope(1e4, "linear", 2.0)
    assert resolve(changed(rope_is_neox_style=False)).rope == replace(Rope(1e4), interleaved=True)


def test_scales():
    nested = {"output_multiplier": 0.25, "final_logit_softcapping": 20}
    spec = resolve(changed(nested=nested, input_embedding_scale=2))
    assert (spec.logit_scale, spec.softcap, spec.embedding_scale) == (0.25, 20.0, 2.0)
    assert resolve(changed(final_logit_softcapping=0)).softcap is None
