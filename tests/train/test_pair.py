"""From a target's GGUF and prompts to a drafter, and that drafter's own proposals in PyTorch and in libllama."""

from __future__ import annotations

import json
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tiny
import tiny_targets
import tiny_vocab
import torch
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
from dflash_gguf.train.loss import proposals
from dflash_gguf.train.measure import measure
from dflash_gguf.train.model import Drafter
from dflash_gguf.train.prompts import Prompt
from dflash_gguf.train.recipe import Recipe
from dflash_gguf.train.settings import CorpusSettings
from dflash_gguf.train.shape import Asked, shape_of
from dflash_gguf.train.start import Weights
from dflash_gguf.train.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dflash_gguf.train.api import Trained

SETTINGS = CorpusSettings(max_tokens=24, n_ctx=128, parallel=4, session=Settings(n_threads=1))
RECIPE = Recipe(steps=6, texts=2, anchors=6, held_out=2, eval_every=3, save_every=2, n_threads=1, frequent=60)
LONGER = replace(RECIPE, steps=40, warmup=5, eval_every=20, save_every=20, precision="f32")
"""In which something is learnt, and nothing but the end is rounded."""
PROMPTS = [Prompt.of(text) for text in ("count to ten", "a list", "say it again", "the end", "one more", "two")]
TEXT = [80, 300, 116, 119, 52, 279, 376, 116, 40, 91, 200, 411, 30, 31, 32, 33, 500, 17, 70, 71, 90, 6]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In F32: the head of a quantized file rounds a drafter's rows too, which moves choices that are nearly even.

    A few of its features are far larger than the others, and its base and eps are no default's.
    """
    values = {"eps": 1e-4, "rope_base": 500_000.0}
    embeddings = tiny.target_values()["token_embd.weight"]
    embeddings[:, :6] *= 10
    path = tmp_path_factory.mktemp("target") / "tiny-F32.gguf"
    return tiny.write_target(path, type="F32", tensors={"token_embd.weight": embeddings}, **values)


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a training, and the trainer as its last step left it."""

    trained: Trained
    trainer: Trainer


def run_of(target: Path, out: Path, kind: str = "dflash2") -> Run:
    """A training by `LONGER`."""
    trainers: list[Trainer] = []
    whole = Trainer.run

    def kept(trainer: Trainer, *rest: Any) -> None:
        trainers.append(trainer)
        whole(trainer, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", kept)
        asked = Asked(kind=kind, layers=1)
        trained = train(target, PROMPTS, Places(out), LONGER, asked=asked, settings=SETTINGS)
    return Run(trained, *trainers)


@pytest.fixture(scope="module", params=["dflash2", "dflash"])
def run(request: pytest.FixtureRequest, target: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(target, tmp_path_factory.mktemp("out") / "drafter", request.param)


@pytest.fixture
def trained(run: Run) -> Trained:
    return run.trained


def test_a_target_and_prompts_become_a_checkpoint(trained: Trained) -> None:
    names = {path.name for path in trained.folder.iterdir()}
    assert names == {"README.md", "config.json", "corpus", "model.safetensors", "training.pt"}
    config = json.loads((trained.folder / "config.json").read_text())
    assert config["dflash_config"]["mask_token_id"] == tiny_vocab.MASK_ID
    assert config["dflash_config"]["target_layer_ids"] == [1, 2]
    assert [point.step for point in trained.points] == [20, 40]
    assert (trained.n_texts, trained.measured.n_texts) == (4, 2)
    assert trained.measured.counts.n_drafts > 0
    assert not trained.random_layers
    card = (trained.folder / "README.md").read_text()
    assert f"acceptance length {trained.measured.counts.acceptance_length:.2f} in libllama, along 2 answers" in card
    assert "4 answers" in card
    assert str(trained.folder) not in card
    assert "features" not in card


def test_what_training_proposes_is_what_libllama_proposes(run: Run, target: Path, tmp_path: Path) -> None:
    check_proposals(run, target, tmp_path / "drafter.gguf")


def test_what_is_measured_in_pytorch_is_what_libllama_accepts(
    run: Run, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_acceptance(run, target, monkeypatch)


def test_a_drafter_of_a_gemma_is_the_same_in_libllama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose embeddings are scaled, in the drafter too."""
    target = tiny_targets.write_gemma4(tmp_path / "gemma4.gguf", type="F32")
    run = run_of(target, tmp_path / "out")
    check_proposals(run, target, tmp_path / "drafter.gguf")
    check_acceptance(run, target, monkeypatch)


def check_proposals(run: Run, target: Path, path: Path) -> None:
    """Behind each token of `TEXT`, the trained drafter names what libllama does with its checkpoint in ``path``."""
    made = convert(run.trained.folder, target, "F32", path)
    drafting = Drafting.read(read_header(target), read_header(made.path))
    settings = Settings(n_ctx=128, n_threads=1, type_k_draft="f32", type_v_draft="f32", flash_attention="off")
    drafter = rounded(run.trainer.drafter)
    with ExitStack() as stack:
        models = [opened(stack, Model(each)) for each in (target, made.path)]
        reader = Reader.opened(stack, models[0], drafting, settings)
        features = reader.features(TEXT)
        along = Along.opened(stack, models[1], reader, drafting, settings)
        ours, theirs = [], []
        for anchor in range(1, len(TEXT)):
            along.core.inject(features[anchor - 1 : anchor], anchor - 1)
            theirs.append(along.core.draft(TEXT[anchor], anchor, along.n_max))
            blocks = blocks_of(features[:anchor], [anchor], [TEXT[anchor]])
            with torch.inference_mode():
                hidden = drafter(blocks, run.trainer.tables.embeddings)[:, :, 1:]
                ours.append(proposals(drafter, hidden, blocks.tokens, run.trainer.tables)[0, 0].tolist())
    assert len({tuple(row) for row in ours}) > 5  # not one answer to everything
    assert ours == theirs


def rounded(drafter: Drafter) -> Drafter:
    """With its scales, and weights that are BF16 as in a checkpoint: those of ``fc`` once the scales are in it."""
    values, scales = drafter.state_dict(), drafter.feature_rms
    values = {**values, "fc.weight": values["fc.weight"] / scales}
    values = {name: each.bfloat16().float() for name, each in values.items()}
    copy = Drafter(drafter.shape)
    copy.load({**values, "fc.weight": values["fc.weight"] * scales})
    copy.feature_rms.copy_(scales)
    return copy


def check_acceptance(run: Run, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along the answers that were learnt: what a random target says teaches nothing of its other answers."""
    monkeypatch.setattr(run.trainer, "held", run.trainer.train)
    ours = run.trainer.measure().acceptance_length
    theirs = measure(target, run.trained.folder, run.trainer.train, SETTINGS.session).counts.acceptance_length
    assert 2 < ours < 7
    assert theirs == pytest.approx(ours, rel=0.1)  # its weights are rounded


def test_going_on_takes_what_is_there(trained: Trained, target: Path) -> None:
    asked = Asked(kind=trained.shape.kind, layers=1)
    with pytest.raises(OutputError, match="pass `--resume` to go on with it"):
        train(target, PROMPTS, Places(trained.folder), LONGER, asked=asked, settings=SETTINGS)
    stages = []
    listener = Listener(progress=lambda stage, *_: stages.append(stage))
    again = train(
        target, PROMPTS, Places(trained.folder), LONGER, asked=asked, settings=SETTINGS, resume=True, listener=listener
    )
    assert again.points == trained.points
    assert set(stages) == {"measuring"}


def test_more_prompts_are_another_training(trained: Trained, target: Path) -> None:
    """Told before they are answered; what is there goes on with those of before."""
    asked, places = Asked(kind=trained.shape.kind, layers=1), Places(trained.folder)
    before = {path.name: path.read_bytes() for path in places.cache.iterdir()}
    more = (*PROMPTS, Prompt.of("one more"))
    with pytest.raises(TrainError, match=r"training.pt` was made with another `prompts`: got '6:\w+', expected '?7:"):
        train(target, more, places, LONGER, asked=asked, settings=SETTINGS, resume=True)
    assert {path.name: path.read_bytes() for path in places.cache.iterdir()} == before
    build_corpus(target, more, places.cache, trained.shape.taps, SETTINGS)
    again = train(target, PROMPTS, places, LONGER, asked=asked, settings=SETTINGS, resume=True)
    assert again.points == trained.points


@pytest.mark.parametrize(
    ("write", "random"),
    [
        (tiny_targets.write_lfm2, False),
        (tiny_targets.write_gemma4, False),
        (tiny_targets.write_qwen35, True),
        (tiny_targets.write_gpt_oss, True),
    ],
)
def test_targets_of_other_architectures(write: Callable[[Path], Path], random: bool, tmp_path: Path) -> None:
    """Of convolutions, windows, delta nets and experts: the last two have no layer to start a drafter's from."""
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


def test_a_mask_that_an_answer_holds_is_refused(tmp_path: Path) -> None:
    """The head of this target names it often."""
    head = tiny.target_values()["output.weight"]
    head[tiny_vocab.MASK_ID] = 4 * head[100]
    target = tiny.write_target(tmp_path / "target.gguf", tensors={"output.weight": head})
    places = Places(tmp_path / "out")
    with pytest.raises(TrainError, match="has no reserved token that could be the mask"):
        train(target, PROMPTS, places, RECIPE, settings=SETTINGS)
    with pytest.raises(TrainError, match=r"could be the mask: 3 .* stands in the texts that are learnt from"):
        train(target, PROMPTS, places, RECIPE, mask_id=tiny_vocab.MASK_ID, settings=SETTINGS)


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
    with pytest.raises(TrainError, match="too large for this machine") if refused else nullcontext():
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
