"""What a training is told to take, and when it is refused."""

import json
import math
from dataclasses import replace

import pytest
import tiny
import tiny_architectures

from dflash_gguf.demo.pair import checkpoint_folder
from dflash_gguf.errors import TrainError
from dflash_gguf.facts import DFLASH
from dflash_gguf.gguf_header import read_header
from dflash_gguf.runner.placement import Placement
from dflash_gguf.runner.settings import Settings
from dflash_gguf.train import estimate as module
from dflash_gguf.train.api import Places
from dflash_gguf.train.estimate import check_fit, estimate, n_weights, training_bytes
from dflash_gguf.train.recipe import Recipe
from dflash_gguf.train.responses import answers_bytes, at_once
from dflash_gguf.train.settings import CorpusSettings
from dflash_gguf.train.shape import Asked, Shape, shape_of

DEMO = Shape(
    kind="dflash2",
    hidden=576,
    ffn=1536,
    layers=2,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49152,
    eps=1e-6,
    rope_base=1e5,
    context=8192,
    block=8,
    taps=(1, 10, 19, 28),
    target_layers=30,
    mask_id=16,
    rank=32,
    top_k=16,
    conv_kernel=2,
    conv_group=16,
)
RECIPE = Recipe(steps=100)
LENGTHS = [40] * 98 + [400, 1900]
"""Tokens of the prompts: the last one's answer ends where the context of 2048 does."""
N_TOKENS = 98 * 552 + 912 + 2048


@pytest.fixture
def asked(tiny_target, tmp_path):
    header = read_header(tiny_target)
    settings = CorpusSettings(n_ctx=2048)
    places = Places(tmp_path / "none" / "yet", tmp_path / "cache")
    return [header, shape_of(header, Asked(), 3), RECIPE, settings, LENGTHS, places]


def test_the_weights_of_the_carried_drafter():
    """All but its norms, and nothing else."""
    from safetensors import safe_open

    with safe_open(checkpoint_folder() / "model.safetensors", "np") as file:
        sizes = {name: math.prod(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert n_weights(DEMO) == sum(size for name, size in sizes.items() if "norm" not in name)


def test_the_weights_of_a_tiny_one_without_a_selector(tiny_target):
    shape = shape_of(read_header(tiny_target), Asked(kind=DFLASH, taps=(0, 1, 2)), 3)
    arrays = tiny.drafter_arrays(tiny.Dims(kind="dflash"))
    assert n_weights(shape) == sum(array.size for name, array in arrays.items() if "norm" not in name)


def test_more_takes_more():
    def bytes_of(**changes):
        return training_bytes(DEMO, Recipe(steps=1, **changes), 500, tied=True)

    assert bytes_of() < bytes_of(anchors=200) < bytes_of(anchors=200, texts=8)
    assert bytes_of() < bytes_of(precision="f32")
    assert bytes_of() < training_bytes(DEMO, RECIPE, 500, tied=False)
    assert bytes_of() < training_bytes(DEMO, RECIPE, 2000, tied=True)


def test_what_there_is_to_count(asked):
    found = estimate(*asked)
    assert found.fits
    assert found.n_tokens == N_TOKENS
    assert f"at most {N_TOKENS} tokens" in found.sentence()
    assert found.cached == found.n_tokens * 2 * tiny.TARGET.hidden * 2  # taps, width, bytes
    assert found.saved == n_weights(asked[1]) * (2 * 12 + 2)  # what is gone on from, old and new, and the checkpoint
    assert found.judged == max(found.answers, found.training, found.measuring)
    assert found.seconds > 0
    check_fit(found, "tiny")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "a minute"), (125, "2 minutes"), (3600, "60 minutes"), (360_000, "100 hours")]
)
def test_how_long_in_words(asked, seconds, text):
    assert f"up to about {text}" in replace(estimate(*asked), seconds=seconds).sentence()


@pytest.mark.parametrize(
    ("offload", "n_gpu_layers", "free_device", "stages"),
    [
        (True, -1, None, {"training"}),
        (True, 0, 1 << 40, {"answers", "measuring"}),
        (False, -1, 1 << 40, {"answers", "measuring"}),
        (True, 0, None, {"answers", "training", "measuring"}),
        (True, -1, 1 << 40, set()),
    ],
)
def test_only_what_this_machine_must_hold_is_judged(asked, monkeypatch, offload, n_gpu_layers, free_device, stages):
    monkeypatch.setattr("llama_cpp.llama_supports_gpu_offload", lambda: offload)
    session = Settings(placement=Placement(n_gpu_layers=n_gpu_layers))
    asked[3] = replace(asked[3], session=session)
    found = estimate(*asked, free_device=free_device)
    sizes = {"answers": found.answers, "training": found.training, "measuring": found.measuring}
    for stage in sizes:  # each the largest in turn
        raised = sizes | {stage: 1 + max(sizes.values())}
        monkeypatch.setattr(module, "_sizes", lambda *_, raised=raised: tuple(raised.values()))
        judged = estimate(*asked, free_device=free_device).judged
        assert judged == max((raised[each] for each in stages), default=0)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((2, 9, 1), r"training 9\.0 GB, 5\.0 GB are free.*; give fewer `--anchors` .*`\); train on a machine"),
        ((9, 2, 1), r"answers need 9\.0 GB.*; give fewer answers at once \(`--parallel`\); train on a machine"),
        ((7, 6, 1), r"; give fewer `--anchors` .*; give fewer answers at once .*; train on a machine"),
        ((2, 3, 9), r"measuring 9\.0 GB .* for answers and features; train on a machine"),
    ],
)
def test_what_helps_is_what_is_told(asked, sizes, told):
    answers, training, measuring = (size * 10**9 for size in sizes)
    found = replace(estimate(*asked), answers=answers, training=training, measuring=measuring, free_memory=5 * 10**9)
    with pytest.raises(TrainError, match=told):
        check_fit(replace(found, judged=max(answers, training, measuring)), "big")


def test_too_little_memory_is_refused_with_the_numbers(asked, monkeypatch):
    monkeypatch.setattr("dflash_gguf.runner.machine.free", lambda: 500_000_000)
    found = estimate(*asked)
    told = r"`big` is too large .*training \d+\.\d GB, 0\.5 GB are free.*`--anchors`.*`dflash-gguf recipe nemo"
    with pytest.raises(TrainError, match=told):
        check_fit(found, "big")


def test_a_disk_that_is_too_small_is_refused(asked, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1_000_000}))
    found = estimate(*asked)
    assert not found.fits
    with pytest.raises(TrainError, match=r"0\.0 GB are free; .*; free some of the disk"):
        check_fit(found, "tiny")


def test_two_disks_are_judged_each_by_what_goes_there(asked):
    found = estimate(*asked)
    cached, saved = found.cached, found.saved
    assert found.free_cache is None
    one = replace(found, free_out=cached + saved)
    assert one.fits
    assert not replace(one, free_out=cached + saved - 1).fits
    two = replace(found, free_out=saved, free_cache=cached)
    assert two.fits
    assert not replace(two, free_out=saved - 1).fits
    assert not replace(two, free_cache=cached - 1).fits
    assert "on the cache's disk, " in two.sentence()


@pytest.mark.parametrize("a_layer", [False, True])
def test_experts_count_as_far_as_they_are_chosen(a_layer, tmp_path):
    """One number for all layers, or one for each, as in Nemotron-H."""
    arch = "nemotron_h_moe"
    used = {f"{arch}.expert_used_count": [0, 0, 0, 2] if a_layer else 2}
    header = read_header(tiny_architectures.write(tmp_path / "t.gguf", arch, extra_keys=used))
    n_experts = header.integer(f"{arch}.expert_count")
    assert n_experts > 2
    sizes = {name: math.prod(info.shape) for name, info in header.tensors.items() if name != "token_embd.weight"}
    experts = sum(size for name, size in sizes.items() if "_exps." in name)
    assert experts > 0
    assert module._n_used(header) == sum(sizes.values()) - experts + experts * 2 // n_experts


def test_fewer_are_answered_at_once_where_memory_is_short(tiny_target, monkeypatch):
    header, settings = read_header(tiny_target), CorpusSettings(parallel=32)
    one = answers_bytes(header, 1024, settings, 1)
    assert one == 1024 * 4 * 2 * 4 * 64 * 2  # tokens, layers, keys and values, heads, their length, bytes
    counts = []
    for free in (4 * 32 * one, 4 * 31 * one, 4 * 9 * one, 0):
        monkeypatch.setattr("dflash_gguf.runner.machine.free", lambda free=free: free)
        counts.append(at_once(header, 1024, settings, 100))
    assert counts == [32, 16, 8, 1]
    assert at_once(header, 1024, settings, 1) == 1


def test_features_that_are_there_need_no_room_again(asked):
    folder = asked[-1].cache
    folder.mkdir(parents=True)
    needed = [estimate(*asked).cached]
    (folder / "features.bf16.partial").write_bytes(bytes(10_000))
    needed.append(estimate(*asked).cached)
    (folder / "features.bf16.partial").unlink()
    for n_answers in (len(LENGTHS) - 1, len(LENGTHS)):
        head = json.dumps({"n_answers": n_answers}).encode()
        (folder / "features.bf16").write_bytes(head.ljust(4096) + bytes(4096))
        needed.append(estimate(*asked).cached)
    assert needed[1] == needed[0] - 10_000
    assert needed[2] == needed[0] - 8192  # more prompts than its answers
    assert needed[3] == 0
