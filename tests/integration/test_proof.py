"""`check --run`: what drafts passes; what drafts nothing fails, with each likely cause tried."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from certain import WRONG_MASK, write_certain_drafter, write_certain_target

from dflash_gguf.gguf_header import read_header
from dflash_gguf.runner import proof
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.proof import Counts, prove


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_certain_target(tmp_path_factory.mktemp("certain") / "target.gguf")


def test_a_pair_that_drafts(target, tmp_path):
    found = prove(target, write_certain_drafter(tmp_path / "d.gguf"), n_threads=1)
    assert found.ok
    assert found.causes == ()
    assert found.draft_n_accepted == found.draft_n > 0
    assert found.acceptance_length > 7
    assert found.as_dict()["ok"] is True


def test_a_wrong_mask_token_is_found(target, tmp_path):
    found = prove(target, write_certain_drafter(tmp_path / "d.gguf", mask=WRONG_MASK), n_threads=1)
    assert not found.ok
    assert found.draft_n > 0
    assert [cause.name for cause in found.causes] == [
        "mask token", "taps", "rope", "causality", "quantized cache", "features",
    ]  # fmt: skip
    mask = found.causes[0]
    assert mask.measured.startswith(f"token {WRONG_MASK}, '\\u0101'; with token 3, '<|mask|>': ")
    assert mask.remedy == "mend the file with `dflash-gguf rekey` and `--mask-token-id 3`"
    others = {cause.name: cause for cause in found.causes[1:]}
    assert "inputs of layers 1,2; of 0,1: 0 of" in others["taps"].measured
    assert "of 2,3: 0 of" in others["taps"].measured
    assert others["rope"].measured == "base 10000, the target's too"
    assert "not causal; causal: 0 of" in others["causality"].measured
    assert others["features"].measured.startswith("0 of ")
    assert not any(cause.remedy for cause in found.causes[1:])


def scripted(target, draft, accepts):
    """A trial of real headers whose runs are what ``accepts`` says."""
    headers = read_header(target), read_header(draft)
    drafting = Drafting.read(*headers)
    run = lambda **changes: Counts(1, 7, 7 if accepts(changes) else 0, 1)  # noqa: E731
    return SimpleNamespace(headers=headers, drafting=drafting, run=run, before=Counts(1, 7, 0, 1))


@pytest.mark.parametrize(
    ("probe", "accepts", "remedy"),
    [
        (proof._taps, lambda changes: changes == {"layers": (2, 3)}, "`--target-layers 1,2`"),
        (proof._taps, lambda changes: changes == {"layers": (0, 1)}, "`--target-layers -1,0`"),
        (proof._causality, lambda changes: changes == {"causal": True}, "`--causal`"),
        (proof._rope, lambda changes: changes == {"rope_freq_base": 10000.0}, "`--rope-theta 10000`"),
    ],
)
def test_what_is_accepted_points_at_the_cause(probe, accepts, remedy, target, tmp_path):
    draft = write_certain_drafter(tmp_path / "d.gguf", rope_base=5000.0)
    found = probe(scripted(target, draft, accepts))
    assert found.remedy.endswith(remedy)
    assert "7 of 7 accepted" in found.measured
    assert probe(scripted(target, draft, lambda _: False)).remedy == ""


@pytest.mark.parametrize(
    ("accepted", "drafted", "named"),
    [(0, 392, False), (1, 392, False), (9, 392, False), (10, 392, True), (6, 7, True), (1, 7, False), (0, 0, False)],
)
def test_only_what_is_beyond_chance_names_a_cause(accepted, drafted, named):
    """The first counts are of a drafter of a few steps: another mask token had one of 392 accepted."""
    assert proof.points(Counts(57, 399, 0, 57), Counts(56, drafted, accepted, 57)) == named


def test_one_lucky_token_is_told_and_named_no_cause(target, tmp_path):
    trial = scripted(target, write_certain_drafter(tmp_path / "d.gguf", mask=WRONG_MASK), lambda _: False)
    trial.run = lambda **_: Counts(56, 392, 1, 57)
    trial.before = Counts(57, 399, 0, 57)
    for probe in (proof._mask, proof._taps, proof._causality):
        cause = probe(trial)
        assert "1 of 392 accepted" in cause.measured
        assert not cause.remedy


def test_the_last_layer_is_not_tried_where_it_is_not_exposed(target, tmp_path):
    draft = write_certain_drafter(tmp_path / "d.gguf", taps=(0, 2))
    found = proof._taps(scripted(target, draft, lambda _: False))
    assert found.measured == "inputs of layers 1,3; of 0,2: 0 of 7 accepted"


def test_layers_that_predict_further_tokens_are_not_tapped(tmp_path):
    """The inputs of such layers are never captured: libllama asserts that they are."""
    target = write_certain_target(tmp_path / "t.gguf", extra_keys={"qwen3.nextn_predict_layers": 1})
    draft = write_certain_drafter(tmp_path / "d.gguf", taps=(0, 1))
    found = proof._taps(scripted(target, draft, lambda _: False))
    assert found.measured == "inputs of layers 1,2; of 0,1: 0 of 7 accepted"


def test_a_quantized_cache_is_tried_without(target, tmp_path):
    draft = write_certain_drafter(tmp_path / "d.gguf", mask=WRONG_MASK)
    found = prove(target, draft, n_threads=1, type_k_draft="q8_0", type_v_draft="q8_0")
    (cache,) = [cause for cause in found.causes if cause.name == "quantized cache"]
    assert cache.measured.startswith("q8_0; with f16: 0 of ")
    assert cache.remedy == ""


@pytest.mark.parametrize("whose", ["target", "drafter"])
def test_values_that_are_no_numbers_are_a_cause_with_its_owner(whose, target, tmp_path):
    nan = {"output_norm.weight": np.full(64, np.nan, np.float32)}
    draft = tmp_path / "d.gguf"
    if whose == "target":
        target = write_certain_target(tmp_path / "t.gguf", changes=nan)
        write_certain_drafter(draft)
    else:
        write_certain_drafter(draft, changes=nan)
    found = prove(target, draft, n_threads=1)
    assert not found.ok
    (cause,) = found.causes
    assert cause.name == "non-finite values"
    assert (f"the target `{target}` alone: " in cause.measured) == (whose == "target")
    assert (f"with the drafter `{draft}`: " in cause.measured) == (whose == "drafter")
    assert cause.remedy
