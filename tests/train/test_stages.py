"""What one stage of a training leaves to the next: memory, files, how long it was to be."""

from __future__ import annotations

import gc
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tiny
from tiny_train import corpus_of

from dflash_gguf.errors import OutputError, PairError, TrainError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.runner.settings import Settings
from dflash_gguf.train import api, measure, state
from dflash_gguf.train.api import Listener, Places, train
from dflash_gguf.train.corpus import build_corpus
from dflash_gguf.train.prompts import Prompt
from dflash_gguf.train.recipe import Recipe
from dflash_gguf.train.settings import CorpusSettings
from dflash_gguf.train.shape import Asked, shape_of
from dflash_gguf.train.trainer import Trainer

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = CorpusSettings(max_tokens=24, n_ctx=128, parallel=4, session=Settings(n_threads=1))
RECIPE = Recipe(steps=2, texts=2, anchors=4, held_out=2, n_threads=1, frequent=60)
PROMPTS = [Prompt.of(f"say {i}") for i in range(6)]
ASKED = Asked(layers=1)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tiny.write_target(tmp_path / "tiny-F32.gguf", type="F32")


def test_the_trainer_is_gone_and_the_drafter_lies_in_the_folder_while_it_is_measured(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is loaded again then; and the folder for temporary files may be memory."""
    seen: list[tuple[int, list[str]]] = []
    out, along = tmp_path / "out", measure._along

    def looked(*given: Any, **named: Any) -> Any:
        trainers = sum(type(each) is Trainer for each in gc.get_objects())
        seen.append((trainers, sorted(path.name for path in out.iterdir() if path.suffix == ".gguf")))
        return along(*given, **named)

    monkeypatch.setattr(measure, "_along", looked)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    train(target, PROMPTS, Places(out), RECIPE, asked=ASKED, settings=SETTINGS)
    assert seen == [(0, [measure.MEASURED])]
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md", "config.json", "corpus", "model.safetensors", "training.pt"
    ]  # fmt: skip


@pytest.mark.parametrize("texts", [["yes", "no"], []])
def test_answers_that_equal_held_out_ones_are_counted(texts: list[str]) -> None:
    """And when none is left, that is told: nothing was too short."""
    notes: list[str] = []
    job = api._Job(Places(None), RECIPE, SETTINGS, Listener(notes.append), resume=False)  # type: ignore[arg-type]
    alike = [[number, *range(20, 40)] for number in range(4)]
    others = [[number, *range(50, 70)] for number, _ in enumerate(texts)]
    ids = [*alike, *others]
    corpus = corpus_of(ids, 1, np.zeros((sum(map(len, ids)), 4), np.float32), (1,))
    recipes = [Recipe(steps=1, held_out=1, seed=seed) for seed in range(99)]
    held = next(each for each in recipes if corpus.split(1, each.seed)[1].order.tolist() == [1])
    job = api._Job(job.places, held, SETTINGS, job.listener, resume=False)
    if texts:
        assert api._parts(corpus, job)[0].order.tolist() == [4, 5]
    else:
        with pytest.raises(TrainError, match=r"answers that equal none that is held out: got 0, .*`--held-out`"):
            api._parts(corpus, job)
    assert notes == ["3 answers equal one that is held out, and are not learnt from"]


def test_a_card_of_before_goes_before_another_checkpoint_comes(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that none stands beside what it does not tell of, when the measurement fails."""
    (tmp_path / "README.md").write_text("of another drafter")
    monkeypatch.setattr(api, "measure", lambda *_, **__: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        train(target, PROMPTS, Places(tmp_path), RECIPE, asked=ASKED, settings=SETTINGS, force=True)
    assert (tmp_path / "model.safetensors").exists()
    assert not (tmp_path / "README.md").exists()


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("model.safetensors", "out"),
        ("corpus/answers.jsonl", "cache"),
        ("corpus/features.bf16", "cache"),
        ("corpus/features.bf16.partial", "cache"),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_told_first(name: str, flag: str, target: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(OutputError, match=f"{name}` is a folder; choose another `--{flag}`"):
        train(target, PROMPTS, Places(tmp_path / "out"), RECIPE, asked=ASKED, settings=SETTINGS, force=True)


def test_a_drafter_is_no_target(tiny_drafter: Path, tmp_path: Path) -> None:
    with pytest.raises(PairError, match="is a drafter"):
        train(tiny_drafter, PROMPTS, Places(tmp_path / "out"), RECIPE, asked=ASKED, settings=SETTINGS)


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC1])
@pytest.mark.parametrize(
    ("part", "row", "named"), [(0, -3, "the first answers"), (0, 0, "step 0"), (1, -3, "a held-out answer")]
)
def test_a_feature_that_was_damaged_is_told(
    part: int, row: int, named: str, bits: int, target: Path, tmp_path: Path
) -> None:
    """Not the rate is at fault. Damage that leaves a number is not known from any other. A text's first is no sum's."""
    places = Places(tmp_path / "out")
    taps = shape_of(read_header(target), ASKED, 3).taps
    corpus = build_corpus(target, PROMPTS, places.cache, taps, SETTINGS)
    order = corpus.split(RECIPE.held_out, RECIPE.seed)[part].order
    file = np.memmap(places.cache / "features.bf16", np.uint16, "r+", 4096, corpus.features.shape)
    for text in order:
        file[corpus.starts[text + 1] + row if row else corpus.starts[text], 5] = bits
    file.flush()
    with pytest.raises(TrainError, match=f"features of {named} hold numbers that are none; .*remove `features.bf16`"):
        train(target, PROMPTS, places, RECIPE, asked=ASKED, settings=SETTINGS)


def test_a_training_that_was_made_longer_stays_so_when_it_is_stopped_at_once(target: Path, tmp_path: Path) -> None:
    places = Places(tmp_path / "out")
    train(target, PROMPTS, places, RECIPE, asked=ASKED, settings=SETTINGS)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    longer = replace(RECIPE, steps=5)
    with pytest.raises(KeyboardInterrupt):
        train(
            target, PROMPTS, places, longer, asked=ASKED, settings=SETTINGS, resume=True, listener=Listener(point=stop)
        )
    assert state.length_of(places.state) == {"steps": 5, "minutes": None}
    done = train(target, PROMPTS, places, longer, asked=ASKED, settings=SETTINGS, resume=True)
    assert ([point.step for point in done.points], done.restarts) == ([2, 5], (2,))


def test_a_training_that_ended_in_between_is_not_written_over(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is looked at when no other run can be in the folder."""
    out = tmp_path / "out"
    checked = api._check_places

    def ended(*given: Any) -> None:
        checked(*given)
        (out / "model.safetensors").write_text("theirs")

    monkeypatch.setattr(api, "_check_places", ended)
    with pytest.raises(OutputError, match=r"model.safetensors` exists already"):
        train(target, PROMPTS, Places(out), RECIPE, asked=ASKED, settings=SETTINGS)
    assert (out / "model.safetensors").read_text() == "theirs"
