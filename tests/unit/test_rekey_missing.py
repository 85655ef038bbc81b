"""Re-keying: what a file leaves out is read off it, taken from its target, given, or asked for."""

from __future__ import annotations

import forks
import numpy as np
import pytest
import tiny
from forks import small_drafter

from dflash_gguf.errors import GGUFError, PairError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.rekeying.answers import Answers
from dflash_gguf.rekeying.api import planned, rekey

ASKED = {
    "dflash.block_size": ("--block-size", Answers(block_size=8)),
    "dflash.target_layers": ("--target-layers", Answers(target_layers=(1, 3))),
    "tokenizer.ggml.mask_token_id": ("--mask-token-id", Answers(mask_token_id=3)),
    "dflash.attention.sliding_window_pattern": ("--sliding-layers", Answers(sliding_layers="all")),
    "dflash.context_length": ("--context-length", Answers(context_length=2048)),
    "dflash.attention.layer_norm_rms_epsilon": ("--rms-eps", Answers(rms_eps=1e-6)),
    "dflash.rope.freq_base": ("--rope-theta", Answers(rope_theta=1e4)),
}
BUUN, LUCEBOX = forks.STYLES["buun"], forks.STYLES["lucebox"]


@pytest.fixture(scope="module")
def files():
    """A native file, buun's of it and lucebox's, and their target, whose own mask token is 3."""
    return forks.small_files()


@pytest.mark.parametrize("key", ASKED)
def test_what_is_missing_is_asked_for_and_taken(files, tmp_path, key):
    flag, answers = ASKED[key]
    old = small_drafter(tmp_path, mask=3, drop_keys=[key])
    with pytest.raises(GGUFError, match=rf"does not say `{key}` \(pass `{flag}`\)$"):
        planned(old)
    done = rekey(old, tmp_path / "new.gguf", None, answers)
    whole = read_header(small_drafter(tmp_path, "whole.gguf", mask=3))
    header = read_header(done.path)
    assert set(header.keys) == set(whole.keys)
    assert all(header.raw(name) == whole.raw(name) for name in whole.keys)


def test_everything_that_is_missing_is_named_at_once(tmp_path):
    old = small_drafter(tmp_path, drop_keys=[*ASKED, "tokenizer.ggml.tokens"])
    with pytest.raises(GGUFError) as caught:
        planned(old)
    assert all(f"`{flag}`" in str(caught.value) for flag, _ in ASKED.values())
    assert "`--target`" in str(caught.value)


def test_the_anchor_of_dspark_is_asked_for_and_its_heads_are_seen(tmp_path):
    old = small_drafter(tmp_path, kind="dspark")
    with pytest.raises(GGUFError, match=r"`dflash.sample_from_anchor` \(pass `--sample-from-anchor/--bonus-anchor`\)$"):
        planned(old)
    header = read_header(rekey(old, tmp_path / "new.gguf", None, Answers(sample_from_anchor=False)).path)
    assert header.boolean("dflash.sample_from_anchor") is False
    assert header.boolean("dflash.has_confidence_head") is False


def test_a_confidence_head_is_seen(tmp_path):
    heads = {"conf_proj.weight": np.ones((1, 80), np.float32), "conf_proj.bias": np.ones(1, np.float32)}
    old = small_drafter(tmp_path, kind="dspark", tensors=heads)
    decided = planned(old, None, Answers(sample_from_anchor=True))
    assert any(pair.key == "dflash.has_confidence_head" and pair.value is True for pair in decided.keys)


def test_the_selectors_sizes_are_read_off_its_tensors(tmp_path):
    dims = {"kind": "dflash2", "group": 16, "top_k": 4}
    whole = read_header(small_drafter(tmp_path, "whole.gguf", **dims))
    names = ["dflash.conv_kernel_size", "dflash.conv_group_size", "dflash.selector_rank", "dflash.selector_top_k"]
    old = small_drafter(tmp_path, **dims, drop_keys=names)
    with pytest.raises(GGUFError, match=r"say `dflash.selector_top_k` \(pass `--selector-top-k`\)$"):
        planned(old)
    header = read_header(rekey(old, tmp_path / "new.gguf", None, Answers(selector_top_k=4)).path)
    assert [header.integer(name) for name in names] == [whole.integer(name) for name in names]


def test_an_unnamed_causality_is_what_llama_cpp_assumes(tmp_path):
    old = small_drafter(tmp_path, drop_keys=["dflash.attention.causal"])
    decided = planned(old)
    assert [(change.new, change.value) for change in decided.changes] == [("dflash.attention.causal", "False")]
    assert any("`--causal` decides otherwise" in note for note in decided.notes)
    header = read_header(rekey(old, tmp_path / "new.gguf", None, Answers(causal=True)).path)
    assert header.boolean("dflash.attention.causal") is True


def test_a_pattern_of_another_length_is_asked_for(tmp_path):
    pattern = {"dflash.attention.sliding_window_pattern": [True]}
    with pytest.raises(GGUFError, match="--sliding-layers"):
        planned(small_drafter(tmp_path, extra_keys=pattern))
    header = read_header(
        rekey(tmp_path / "drafter.gguf", tmp_path / "new.gguf", None, Answers(sliding_layers=(1,))).path
    )
    assert header.booleans("dflash.attention.sliding_window_pattern") == [False, True]


def test_layers_that_the_drafter_does_not_have(files, tmp_path):
    with pytest.raises(GGUFError, match=r"`--sliding-layers`: got 2, expected layers from 0 to 1"):
        planned(files["native"], None, Answers(sliding_layers=(2,)))
    with pytest.raises(GGUFError, match="has no sliding window"):
        planned(small_drafter(tmp_path, window=0), None, Answers(sliding_layers="all"))


# ---------------------------------------------------------------- the tokenizer


@pytest.mark.parametrize("model", [None, "none"])
def test_the_tokenizer_comes_from_the_target_and_the_mask_stays(files, tmp_path, model):
    """The donor's mask is 3, the drafter's 7."""
    extra = {} if model is None else {"tokenizer.ggml.model": (model, forks.STRING)}
    keys = {"tokenizer.ggml.mask_token_id": "dflash.mask_token_id"}
    style = forks.Style("dflash", keys, {}, extra=extra, tap=0)
    old = forks.write_fork(files["native"], tmp_path / "old.gguf", style)
    with pytest.raises(GGUFError, match="its tokens \\(pass `--target`"):
        planned(old)
    header = read_header(rekey(old, tmp_path / "new.gguf", files["target"]).path)
    target = read_header(files["target"])
    assert header.integer("tokenizer.ggml.mask_token_id") == 7
    mine = {key for key in header.keys if key.startswith("tokenizer.")}
    assert mine == {key for key in target.keys if key.startswith("tokenizer.")}
    for key in mine - {"tokenizer.ggml.mask_token_id"}:
        assert header.raw(key) == target.raw(key)


def test_the_targets_mask_is_never_taken(files, tmp_path):
    style = forks.Style("dflash", {}, {}, drop=(forks.MASK,), tap=0)
    old = forks.write_fork(files["native"], tmp_path / "old.gguf", style)
    with pytest.raises(GGUFError, match="--mask-token-id"):
        planned(old, files["target"])


def test_of_two_masks_the_drafters_counts(files, tmp_path):
    extra = {"tokenizer.ggml.mask_token_id": (3, forks.UINT32)}
    style = forks.Style("dflash-draft", BUUN.keys, BUUN.tensors, BUUN.drop, extra, vocabulary=True)
    old = forks.write_fork(files["native"], tmp_path / "old.gguf", style)
    header = read_header(rekey(old, tmp_path / "new.gguf").path)
    assert header.integer("tokenizer.ggml.mask_token_id") == 7


def test_another_vocabulary_than_the_tensors_have_rows_is_refused(tmp_path):
    rows = {"token_embd.weight": np.ones((301, 64), np.float32), "output.weight": np.ones((301, 64), np.float32)}
    with pytest.raises(GGUFError, match=r"tensor `token_embd.weight` is not .*300 \(vocabulary\)"):
        planned(small_drafter(tmp_path, tensors=rows))


def test_a_target_that_does_not_fit_is_refused(files, tmp_path):
    other = tiny.write_target(tmp_path / "other.gguf", **(forks.SMALL | {"hidden": 32, "head_dim": 16}))
    with pytest.raises(PairError, match="hidden sizes differ"):
        planned(files["lucebox"], other)


def test_gemmas_embeddings_are_scaled(files, tmp_path):
    style = forks.Style("gemma4-dflash-draft", LUCEBOX.keys, LUCEBOX.tensors, LUCEBOX.drop)
    old = forks.write_fork(files["native"], tmp_path / "old.gguf", style)
    for answers, scale in ((Answers(), 8.0), (Answers(embedding_scale=1.0), 1.0)):
        decided = planned(old, files["target"], answers)
        assert next(pair.value for pair in decided.keys if pair.key == "dflash.embedding_scale") == scale


def test_embeddings_without_a_head_are_noted(tmp_path):
    old = small_drafter(tmp_path, tensors={"token_embd.weight": np.ones((300, 64), np.float32)})
    assert any("for its head too" in note for note in planned(old).notes)


PRE = "tokenizer.ggml.pre"


def test_an_unknown_pre_tokenizer_is_the_targets_or_asked_for(files, tmp_path):
    old = small_drafter(tmp_path, extra_keys={PRE: "newest"})
    with pytest.raises(GGUFError, match=r"knows, but 'newest' \(pass `--target`: "):
        planned(old)
    done = rekey(old, tmp_path / "new.gguf", files["target"])
    assert read_header(done.path).raw(PRE) == read_header(files["target"]).raw(PRE)
    assert f"`{PRE}` is taken from `{files['target']}`" in done.plan.notes


def test_a_missing_pre_tokenizer_is_the_targets_or_noted(files, tmp_path):
    old = small_drafter(tmp_path, drop_keys=[PRE])
    assert any("pass `--target` to take its own" in note for note in planned(old).notes)
    new = rekey(old, tmp_path / "new.gguf", files["target"]).path
    assert read_header(new).raw(PRE) == read_header(files["target"]).raw(PRE)


def test_a_target_whose_pre_tokenizer_is_unknown_gives_none(tmp_path):
    old = small_drafter(tmp_path, extra_keys={PRE: "newest"})
    target = tiny.write_target(tmp_path / "t.gguf", extra_keys={PRE: "newer"}, layers=5, **forks.SMALL)
    with pytest.raises(GGUFError, match=r"none that libllama 0\.5\.0 knows"):
        planned(old, target)


BY_FLAG = {
    "--block-size": ({"block": 1}, Answers(block_size=8)),
    "--mask-token-id": ({"mask": 4000}, Answers(mask_token_id=3)),
    "--target-layers": ({"taps": (1, 1)}, Answers(target_layers=(1, 3))),
    "--sliding-layers": (
        {"extra_keys": {"dflash.attention.sliding_window_pattern": [False]}, "layers": 1},
        Answers(sliding_layers="all"),
    ),
    "--causal/--no-causal": ({"extra_keys": {"dflash.attention.causal": "no"}}, Answers(causal=False)),
    "--rope-theta": ({"extra_keys": {"dflash.rope.freq_base": 0.0}}, Answers(rope_theta=1e4)),
    "--rms-eps": ({"extra_keys": {"dflash.attention.layer_norm_rms_epsilon": -1.0}}, Answers(rms_eps=1e-6)),
    "--context-length": ({"extra_keys": {"dflash.context_length": 0}}, Answers(context_length=512)),
    "a type": ({"extra_keys": {"dflash.block_size": "eight"}}, Answers(block_size=8)),
}


@pytest.mark.parametrize("flag", BY_FLAG)
def test_what_a_flag_mends_names_it_and_is_mended(tmp_path, flag):
    options, answers = BY_FLAG[flag]
    old = small_drafter(tmp_path, **options)
    with pytest.raises(GGUFError) as caught:
        planned(old)
    assert f"pass `{flag if flag.startswith('--') else '--block-size'}`" in str(caught.value)
    assert "re-keyed or not" not in str(caught.value)
    planned(old, None, answers)


@pytest.mark.parametrize("model", ["no_vocab", 7])
def test_a_tokenizer_that_is_none_is_the_targets(files, tmp_path, model):
    old = small_drafter(tmp_path, extra_keys={"tokenizer.ggml.model": model})
    with pytest.raises(GGUFError, match=r"its tokens \(pass `--target`"):
        planned(old)
    planned(old, files["target"])
