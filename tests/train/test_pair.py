"""From a target's GGUF and prompts to a drafter, and that drafter's own proposals in PyTorch and in libllama."""

from __future__ import annotations

import json
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tiny
import tiny_targets
import tiny_vocab
import torch
from safetensors.torch import load_file
from tiny_train import blocks_of

from dflash_gguf.convert.api import convert
from dflash_gguf.errors import OutputError, TrainError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.runner.along import Along, Reader
from dflash_gguf.runner.assembly import opened
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.models import Model
from dflash_gguf.runner.settings import Settings
from dflash_gguf.train import api
from dflash_gguf.train.api import Listener, Places, train
from dflash_gguf.train.corpus import build_corpus
from dflash_gguf.train.loss import Tables, proposals
from dflash_gguf.train.measure import measure
from dflash_gguf.train.model import Drafter
from dflash_gguf.train.prompts import Prompt
from dflash_gguf.train.recipe import Recipe
from dflash_gguf.train.settings import CorpusSettings
from dflash_gguf.train.shape import Asked, shape_of
from dflash_gguf.train.start import Weights, tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dflash_gguf.train.api import Trained

SETTINGS = CorpusSettings(max_tokens=24, n_ctx=128, parallel=4, session=Settings(n_threads=1))
RECIPE = Recipe(steps=6, texts=2, anchors=6, held_out=2, eval_every=3, save_every=2, n_threads=1, frequent=60)
PROMPTS = [Prompt.of(text) for text in ("count to ten", "a list", "say it again", "the end", "one more", "two")]
TEXT = [80, 300, 116, 119, 52, 279, 376, 116, 40, 91, 200, 411, 30, 31, 32, 33, 500, 17, 70, 71, 90, 6]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In F32: the head of a quantized file rounds a drafter's rows too, which moves choices that are nearly even."""
    return tiny.write_target(tmp_path_factory.mktemp("target") / "tiny-F32.gguf", type="F32")


@pytest.fixture(scope="module", params=["dflash2", "dflash"])
def trained(request: pytest.FixtureRequest, target: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    out = tmp_path_factory.mktemp("out") / "drafter"
    asked = Asked(kind=request.param, layers=1)
    return train(target, PROMPTS, Places(out), RECIPE, asked=asked, settings=SETTINGS)


def test_a_target_and_prompts_become_a_checkpoint(trained: Trained) -> None:
    names = {path.name for path in trained.folder.iterdir()}
    assert names == {"README.md", "config.json", "corpus", "model.safetensors", "training.pt"}
    config = json.loads((trained.folder / "config.json").read_text())
    assert config["dflash_config"]["mask_token_id"] == tiny_vocab.MASK_ID
    assert config["dflash_config"]["target_layer_ids"] == [1, 2]
    assert [point.step for point in trained.points] == [3, 6]
    assert (trained.n_texts, trained.measured.n_texts) == (4, 2)
    assert trained.measured.counts.n_drafts > 0
    assert not trained.random_layers
    card = (trained.folder / "README.md").read_text()
    assert f"acceptance length {trained.measured.counts.acceptance_length:.2f} in libllama, along 2 answers" in card
    assert "4 answers" in card
    assert str(trained.folder) not in card
    assert "features" not in card


def test_what_training_proposes_is_what_libllama_proposes(trained: Trained, target: Path, tmp_path: Path) -> None:
    made = convert(trained.folder, target, "F32", tmp_path / "drafter.gguf")
    headers = read_header(target), read_header(made.path)
    drafting = Drafting.read(*headers)
    settings = Settings(n_ctx=128, n_threads=1, type_k_draft="f32", type_v_draft="f32", flash_attention="off")
    with ExitStack() as stack:
        models = [opened(stack, Model(path)) for path in (target, made.path)]
        reader = Reader.opened(stack, models[0], drafting, settings)
        features = reader.features(TEXT)
        along = Along.opened(stack, models[1], reader, drafting, settings)
        ours, theirs = [], []
        drafter = Drafter(trained.shape)
        drafter.load({name: values.float() for name, values in load_file(trained.folder / "model.safetensors").items()})
        embeddings, head = (torch.from_numpy(table) for table in tables(Weights(target, headers[0])))
        for anchor in range(1, len(TEXT)):
            along.core.inject(features[anchor - 1 : anchor], anchor - 1)
            theirs.append(along.core.draft(TEXT[anchor], anchor, along.n_max))
            with torch.inference_mode():
                blocks = blocks_of(features[:anchor], [anchor], [TEXT[anchor]])
                hidden = drafter(blocks, embeddings)[:, :, 1:]
                ours.append(proposals(drafter, hidden, blocks.tokens, Tables(embeddings, head))[0, 0].tolist())
    assert len({tuple(row) for row in ours}) > 5  # not one answer to everything
    assert ours == theirs


def test_going_on_takes_what_is_there(trained: Trained, target: Path) -> None:
    asked = Asked(kind=trained.shape.kind, layers=1)
    with pytest.raises(OutputError, match="pass `--resume` to go on with it"):
        train(target, PROMPTS, Places(trained.folder), RECIPE, asked=asked, settings=SETTINGS)
    stages = []
    listener = Listener(progress=lambda stage, *_: stages.append(stage))
    again = train(
        target, PROMPTS, Places(trained.folder), RECIPE, asked=asked, settings=SETTINGS, resume=True, listener=listener
    )
    assert again.points == trained.points
    assert set(stages) == {"measuring"}


def test_more_prompts_are_another_training(trained: Trained, target: Path) -> None:
    """Told before they are answered; what is there goes on with those of before."""
    asked, places = Asked(kind=trained.shape.kind, layers=1), Places(trained.folder)
    before = {path.name: path.read_bytes() for path in places.cache.iterdir()}
    more = (*PROMPTS, Prompt.of("one more"))
    with pytest.raises(TrainError, match=r"training.pt` was made with another `prompts`: got '6:\w+', expected '?7:"):
        train(target, more, places, RECIPE, asked=asked, settings=SETTINGS, resume=True)
    assert {path.name: path.read_bytes() for path in places.cache.iterdir()} == before
    build_corpus(target, more, places.cache, trained.shape.taps, SETTINGS)
    again = train(target, PROMPTS, places, RECIPE, asked=asked, settings=SETTINGS, resume=True)
    assert again.points == trained.points


@pytest.mark.parametrize(
    ("write", "random"),
    [(tiny_targets.write_lfm2, False), (tiny_targets.write_qwen35, True), (tiny_targets.write_gpt_oss, True)],
)
def test_targets_of_other_architectures(write: Callable[[Path], Path], random: bool, tmp_path: Path) -> None:
    """Of convolutions, delta nets and experts: the last have no layer that a drafter's could start from."""
    asked = Asked(layers=1)
    target = write(tmp_path / "target.gguf")
    found = train(target, PROMPTS, Places(tmp_path / "out"), RECIPE, asked=asked, settings=SETTINGS)
    assert found.random_layers == random
    assert found.measured.counts.n_drafts > 0


def test_another_files_features_are_learnt_from_and_the_targets_own_are_measured_with(
    target: Path, tmp_path: Path
) -> None:
    """The other file has other weights, so that a measurement with its features would be another."""
    other = tiny.write_target(tmp_path / "other.gguf", type="F32", seed=8)
    asked, places = Asked(layers=1), Places(tmp_path / "out", features_from=other)
    found = train(target, PROMPTS, places, RECIPE, asked=asked, settings=SETTINGS)
    corpus = build_corpus(target, PROMPTS, places.cache, found.shape.taps, SETTINGS, features_from=other)
    _, held = corpus.split(RECIPE.held_out, RECIPE.seed)
    assert found.measured == measure(target, places.out, held, SETTINGS.session, read_features=True)
    assert "| features | another file's, other, weights mostly F32 |" in (places.out / "README.md").read_text()
    mine = build_corpus(target, PROMPTS, tmp_path / "mine", found.shape.taps, SETTINGS)
    _, own = mine.split(RECIPE.held_out, RECIPE.seed)
    assert not np.array_equal(own[0].features, held[0].features)
    assert found.measured == measure(target, places.out, own, SETTINGS.session)


@pytest.mark.parametrize(
    ("mask_id", "named"),
    [
        (tiny_vocab.PAD_ID, "is the target's `tokenizer.ggml.padding_token_id`: got 5, expected a reserved one, such"),
        (tiny_vocab.EOS_ID, "eos_token_id"),
        (tiny_vocab.BOS_ID, "bos_token_id"),
        (tiny_vocab.START_ID, "stands in the target's chat template"),
        (100, r"is not reserved: texts are made of it: got 100, expected a reserved one, such as 3 \(`<|mask|>`\)"),
        (512, "is none of the 512"),
    ],
)
def test_a_mask_that_means_something_else_is_refused_before_anything_is_made(
    mask_id: int, named: str, target: Path, tmp_path: Path
) -> None:
    with pytest.raises(TrainError, match=named.replace("|", r"\|")):
        train(target, PROMPTS, Places(tmp_path / "out"), RECIPE, mask_id=mask_id, settings=SETTINGS)
    assert not (tmp_path / "out" / "corpus").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_holds_a_model_is_not_written_into(resume: bool, target: Path, tmp_path: Path) -> None:
    """Nor is it gone on with: there is no training in it."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(OutputError, match=r"config.json` exists already; choose another folder"):
        train(target, PROMPTS, Places(tmp_path), RECIPE, settings=SETTINGS, resume=resume)
    with pytest.raises(OutputError, match="is one of the inputs"):
        train(tmp_path / "config.json", PROMPTS, Places(tmp_path), RECIPE, settings=SETTINGS, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(("device", "refused"), [("cpu", True), ("mps", True), ("cuda", False), ("cuda", True)])
def test_the_memory_that_training_must_fit_into_is_judged(
    device: str, refused: bool, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = read_header(target)
    notes: list[str] = []
    job = api._Job(Places(tmp_path), RECIPE, SETTINGS, Listener(notes.append), resume=False)
    monkeypatch.setattr("dflash_gguf.train.trainer.device_of", lambda _: device)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << (20 if refused else 40), 1 << 40))
    monkeypatch.setattr("dflash_gguf.runner.machine.free", lambda: 1 << 20)
    monkeypatch.setattr("llama_cpp.llama_supports_gpu_offload", lambda: True)
    with pytest.raises(TrainError, match="too large to train") if refused else nullcontext():
        api._check_fit(target, header, shape_of(header, Asked(), 3), PROMPTS, job)
    assert bool(notes) == (not refused)


def test_held_out_prompts_must_leave_some(target: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="prompts: got 6, expected more than the 6 that are held out"):
        train(target, PROMPTS, Places(tmp_path / "out"), replace(RECIPE, held_out=6), settings=SETTINGS)
    assert not (tmp_path / "out").exists()


def test_layers_start_as_the_targets_last_ones_turned_by_halves(tmp_path: Path) -> None:
    """A llama file turns neighbours: its rows come back in the order that libllama's converter changed."""
    from dflash_gguf.train.start import first_values, halves

    path = tiny.write_target(tmp_path / "llama.gguf", "llama", type="F32")
    header = read_header(path)
    shape = shape_of(header, Asked(layers=2), 3)
    found = first_values(Weights(path, header), header, shape)
    values = tiny.target_values("llama", type="F32")
    query = values["blk.3.attn_q.weight"]
    np.testing.assert_array_equal(found["layers.1.mlp.up_proj.weight"], values["blk.3.ffn_up.weight"])
    np.testing.assert_array_equal(
        found["layers.1.self_attn.q_proj.weight"][:64], query[:64][[*range(0, 64, 2), *range(1, 64, 2)]]
    )
    np.testing.assert_array_equal(found["norm.weight"], values["output_norm.weight"])
    np.testing.assert_array_equal(halves(query, 8)[1], query[2])
