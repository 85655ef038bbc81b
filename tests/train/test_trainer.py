"""Steps on a tiny drafter: the loss falls, going on equals never having stopped, saved runs are told apart."""

from __future__ import annotations

import itertools
import resource
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tiny_train import corpus_of, dims_of, shape_of

from dflash_gguf.errors import OutputError, TrainError
from dflash_gguf.train import batches, state
from dflash_gguf.train.api import new_trainer
from dflash_gguf.train.bf16 import widened
from dflash_gguf.train.loss import on_device, proposals
from dflash_gguf.train.recipe import Recipe
from dflash_gguf.train.trainer import Point, Trainer, feature_rms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


SMALL = {"hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 2, "head_dim": 16, "layers": 1, "rank": 8, "top_k": 4}
RECIPE = Recipe(
    steps=8, texts=2, anchors=6, held_out=2, eval_every=4, save_every=3, n_threads=1, frequent=50, random=40
)


def trainer_of(recipe: Recipe = RECIPE, **overrides: Any) -> Trainer:
    """Texts that count, so that there is something to learn; features tell each token."""
    dims = dims_of(**SMALL | overrides)
    texts = [[(start + i) % 60 + 10 for i in range(20 + start)] for start in range(6)]
    draw = np.random.default_rng(2)
    table = draw.standard_normal((dims.vocab, dims.hidden)).astype(np.float32)
    features = np.concatenate([np.tile(table[text], len(dims.taps)) for text in texts])
    features[:, 3] *= 1000
    train, held = corpus_of(texts, 4, features, dims.taps).split(recipe.held_out, 0)
    return new_trainer(
        shape_of(dims), {"norm.weight": np.full(64, 0.5)}, (table, table), train, held, recipe, "2:made up"
    )


@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
@pytest.mark.parametrize("precision", ["bf16", "f32"])
def test_a_few_steps_lower_the_loss_and_name_more(kind: str, precision: str, tmp_path: Path) -> None:
    trainer = trainer_of(replace(RECIPE, steps=240, eval_every=240, rate=5e-3, precision=precision), kind=kind)
    before, points = trainer.measure(), list[Point]()
    trainer.run(tmp_path / "training.pt", points.append)
    assert [point.step for point in points] == list(range(1, 241))
    assert trainer.points == [points[-1]]
    assert points[-1].loss < 0.5 * points[0].loss
    assert points[-1].accepted.acceptance_length > before.acceptance_length + 1
    assert points[-1].n_anchors == 240 * 2 * 6


def test_going_on_equals_never_having_stopped(tmp_path: Path) -> None:
    whole = trainer_of()
    whole.run(tmp_path / "whole.pt")
    broken = trainer_of()

    def stop(point: Point) -> None:
        if point.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.run(tmp_path / "broken.pt", stop)
    again = trainer_of()
    state.load(tmp_path / "broken.pt", again)
    assert again.step == 3
    again.run(tmp_path / "broken.pt")
    assert (again.step, again.loss) == (whole.step, whole.loss)
    assert [replace(p, seconds=0) for p in again.points] == [replace(p, seconds=0) for p in whole.points]
    theirs = again.drafter.state_dict()
    assert all(torch.equal(values, theirs[name]) for name, values in whole.drafter.state_dict().items())


@pytest.mark.parametrize(
    ("recipe", "overrides", "named"),
    [
        (replace(RECIPE, rate=1e-4), {}, "`rate`"),
        (replace(RECIPE, texts=3), {}, "`texts`: got 2, expected 3"),
        (RECIPE, {"kind": "dflash"}, "`kind`: got 'dflash2', expected dflash"),
        (RECIPE, {"layers": 2}, "`layers`: got 1, expected 2"),
        (RECIPE, {"top_k": 5}, "`top_k`: got 4, expected 5; give the same options"),
        (replace(RECIPE, held_out=3), {}, "`held"),
    ],
)
def test_another_training_is_not_gone_on_with(recipe: Recipe, overrides: Any, named: str, tmp_path: Path) -> None:
    trainer = trainer_of()
    state.save(tmp_path / "training.pt", trainer)
    with pytest.raises(TrainError, match=named):
        state.load(tmp_path / "training.pt", trainer_of(recipe, **overrides))


def test_a_training_can_be_made_longer(tmp_path: Path) -> None:
    """The rate is then that of the longer course."""
    path, longer = tmp_path / "training.pt", replace(RECIPE, steps=12)
    trainer_of().run(path)
    for restarts in ([8], [8]):  # the second time nothing is left, and nothing is noted
        state.check_begun(path, "2:made up", longer)
        trainer, rates = trainer_of(longer), list[float]()
        state.load(path, trainer)
        assert trainer.restarts == restarts
        trainer.run(path, lambda point, rates=rates: rates.append(point.rate))  # type: ignore[misc]
        assert trainer.step == 12
        assert rates in ([longer.rate_at(step, step / 12) for step in range(8, 12)], [])
    assert [point.step for point in trainer.points] == [4, 8, 12]


@pytest.mark.parametrize("length", [{"steps": 7}, {"steps": None, "minutes": 1e-9}])
def test_a_training_cannot_be_made_shorter_than_it_is(length: dict[str, Any], tmp_path: Path) -> None:
    path, recipe = tmp_path / "training.pt", replace(RECIPE, **length)
    trainer_of().run(path)
    state.check_begun(path, "2:made up", RECIPE)
    with pytest.raises(TrainError, match=r"`--.* got .*, expected more than the 8 steps, .* minutes, that it was"):
        state.check_begun(path, "2:made up", recipe)


def test_other_features_are_not_gone_on_with(tmp_path: Path) -> None:
    """Of the same texts, from another file."""
    state.save(tmp_path / "training.pt", trainer_of())
    other = trainer_of()
    other.drafter.feature_rms[5] *= 1.01
    with pytest.raises(TrainError, match="was made with other features; give the same options"):
        state.load(tmp_path / "training.pt", other)


@pytest.mark.parametrize(
    "changes",
    [
        {"step": None},
        {"made_with": 3},
        {"feature_rms": None},
        {"points": [{"step": 1}]},
        {"drafter": {"norm.weight": torch.zeros(64)}},
        {"optimizer": {"state": {}}},
    ],
)
def test_a_part_of_a_saved_training_is_told(changes: dict[str, Any], tmp_path: Path) -> None:
    path, trainer = tmp_path / "training.pt", trainer_of()
    state.save(path, trainer)
    torch.save(torch.load(path, weights_only=True) | changes, path)
    with pytest.raises(TrainError, match="is no saved training"):
        state.load(path, trainer)


def test_half_a_saved_training_is_told(tmp_path: Path) -> None:
    path, trainer = tmp_path / "training.pt", trainer_of()
    state.save(path, trainer)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(TrainError, match="is no saved training"):
        state.load(path, trainer)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"no zip at all" * 100])
def test_a_file_that_is_no_saved_training_is_told(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "training.pt").write_bytes(data)
    with pytest.raises(TrainError, match="is no saved training"):
        state.load(tmp_path / "training.pt", trainer_of())


def test_what_was_saved_stays_when_the_next_cannot_be_written(tmp_path: Path) -> None:
    trainer = trainer_of()
    path = tmp_path / "training.pt"
    state.save(path, trainer)
    before = path.read_bytes()
    trainer.made_with = {"no": lambda: None}  # nothing that can be written
    with pytest.raises((OutputError, AttributeError, TypeError, ValueError)):
        state.save(path, trainer)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["training.pt"]


def test_a_full_disk_is_told_in_our_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's writer ends in an error of its own."""
    path, trainer = tmp_path / "training.pt", trainer_of()
    state.save(path, trainer)
    before = path.read_bytes()
    with at_most(len(before) // 2), pytest.raises(OutputError, match="could not be written: file too large"):
        state.save(path, trainer)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["training.pt"]


@contextmanager
def at_most(n_bytes: int) -> Iterator[None]:
    """No file of this process may be longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_gradient_that_is_no_number_never_reaches_the_weights(tmp_path: Path) -> None:
    trainer = trainer_of()
    before = {name: values.clone() for name, values in trainer.drafter.state_dict().items()}
    trainer.drafter.norm.weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(TrainError, match="the gradient of step 0: got nan, expected a number"):
        trainer.run(tmp_path / "training.pt")
    assert not (tmp_path / "training.pt").exists()
    assert all(torch.equal(values, before[name]) for name, values in trainer.drafter.state_dict().items())


def test_what_is_measured_is_a_draft_along_each_held_out_answer() -> None:
    """Block by block, as `Along` does it; these answers are shorter than what is measured of one."""
    trainer = trainer_of(replace(RECIPE, steps=60, rate=5e-3, eval_every=60, precision="f32"))
    for _ in range(60):
        trainer._learn()
    drafts = accepted = 0
    for example in trainer.held:
        place = example.n_prompt
        while place < len(example.ids) - 1:
            with torch.inference_mode():
                batch = batches.batch_of([example], [np.array([place])], trainer.drafter.shape.block)
                blocks, gold = on_device(batch, "cpu")
                hidden = trainer.drafter(blocks, trainer.tables.embeddings)[:, :, 1:]
                named = proposals(trainer.drafter, hidden, blocks.tokens, trainer.tables) == gold
            right = int(named[0, 0].int().cumprod(-1).sum())
            drafts, accepted, place = drafts + 1, accepted + right, place + right + 1
    found = trainer.measure()
    assert found.n_blocks == drafts
    assert found.acceptance_length == pytest.approx(1 + accepted / drafts)
    assert found.acceptance_length == pytest.approx(1 + sum(found.per_position))
    assert 1.5 < found.acceptance_length < trainer.drafter.shape.block


def test_minutes_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the rate falls by the clock, to that of the end."""
    clock = itertools.count(100.0, 0.07)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    recipe, points = replace(RECIPE, steps=None, minutes=0.01, warmup=0), list[Point]()
    trainer = trainer_of(recipe)
    trainer.run(tmp_path / "training.pt", points.append)
    assert trainer.step == len(points) > 1
    assert points[-2].seconds < 0.6 <= trainer.seconds
    began = [0.0, *(point.seconds for point in points)]
    rates = [recipe.rate_at(step, began[step] / 0.6) for step in range(len(points))]
    assert [point.rate for point in points] == pytest.approx(rates)
    assert recipe.rate == rates[0] > rates[-1] > recipe.rate_at(0, 1.0)


def test_features_are_divided_by_their_root_mean_square() -> None:
    """That of the first texts, their first three tokens left out, and at least a thousandth."""
    draw, texts = np.random.default_rng(6), [range(12), range(4), range(9)]
    features = draw.standard_normal((25, 8)) * np.geomspace(0.1, 1000, 8)
    features[[0, 1, 2, 12, 13, 14, 16, 17, 18]] *= 300
    features[:, 5] = 0
    corpus = corpus_of(texts, 3, features, (1,))
    rows = widened(corpus.features).astype(np.float64)
    for n_texts, kept in ((120, [*range(3, 12), 15, *range(19, 25)]), (2, [*range(3, 12), 15])):
        wanted = np.maximum(np.sqrt(np.mean(rows[kept] ** 2, 0)), 1e-3)
        np.testing.assert_allclose(feature_rms(corpus, n_texts).numpy(), wanted, rtol=1e-6)
    trainer = trainer_of()
    np.testing.assert_array_equal(trainer.drafter.feature_rms.numpy(), feature_rms(trainer.train).numpy())


def test_the_loss_of_a_step_falls_along_the_block() -> None:
    """By exp(-(k - 1) / 4) in a block of 8, as the field has it."""
    trainer = trainer_of(replace(RECIPE, precision="f32"), kind="dflash")
    batch, subset = next_of(trainer)
    with torch.inference_mode():
        blocks, gold = on_device(batch, "cpu")
        hidden = trainer.drafter(blocks, trainer.tables.embeddings)[:, :, 1:]
        names = torch.log_softmax(hidden @ trainer.tables.head[subset].T, -1)
        found = trainer.loss_of(batch, subset).item()
    total = weights = 0.0
    for place in zip(*np.nonzero(gold.numpy() != batches.NOTHING), strict=True):
        weight = np.exp(-place[-1] / 4)
        total -= weight * names[place][subset.tolist().index(gold[place])].item()
        weights += weight
    assert found == pytest.approx(total / weights, rel=1e-5)


def next_of(trainer: Trainer) -> tuple[batches.Batch, np.ndarray]:
    """What the next step of ``trainer`` learns from, and the vocabulary of its loss."""
    recipe, step, shape = trainer.recipe, trainer.step, trainer.drafter.shape
    numbers = batches.chosen(len(trainer.usable), recipe.seed, step, recipe.texts)
    examples = [trainer.train[trainer.usable[i]] for i in numbers]
    batch = batches.drawn(examples, shape.block, recipe.anchors, recipe.seed, step)
    frequent = batches.frequent_tokens(trainer.train, recipe.frequent)
    return batch, batches.vocabulary_subset(batch, frequent, recipe.random, shape.vocab, recipe.seed, step)


def test_a_step_is_one_of_adamw_with_a_clipped_gradient() -> None:
    """In NumPy, with betas of 0.9 and 0.95; three steps, since the first is the same by any."""
    recipe = replace(RECIPE, precision="f32", warmup=0, rate=1e-2, weight_decay=0.5, clip=0.05)
    trainer = trainer_of(recipe, kind="dflash")
    weights = {name: values.detach().numpy().astype(np.float64) for name, values in trainer.drafter.named_parameters()}
    means, squares = ({name: np.zeros_like(values) for name, values in weights.items()} for _ in range(2))
    for step in range(3):
        trainer.loss_of(*next_of(trainer)).backward()
        gradients = {name: values.grad.numpy().copy() for name, values in trainer.drafter.named_parameters()}
        trainer.optimizer.zero_grad()
        norm = np.sqrt(sum(np.square(each, dtype=np.float64).sum() for each in gradients.values()))
        assert norm > 2 * recipe.clip
        rate = trainer._learn()
        for name, gradient in gradients.items():
            clipped = gradient * (recipe.clip / norm)
            means[name] = 0.9 * means[name] + 0.1 * clipped
            squares[name] = 0.95 * squares[name] + 0.05 * clipped**2
            root = np.sqrt(squares[name] / (1 - 0.95 ** (step + 1))) + 1e-8
            moved = means[name] / (1 - 0.9 ** (step + 1)) / root
            weights[name] = weights[name] * (1 - rate * recipe.weight_decay) - rate * moved
    for name, values in trainer.drafter.named_parameters():
        np.testing.assert_allclose(values.detach().numpy(), weights[name], atol=1e-5)


@pytest.mark.parametrize("values", [{}, {"steps": 4, "minutes": 1}, {"steps": 0}, {"steps": 2, "anchors": 0},
                                    {"steps": 2, "rate": float("nan")}, {"steps": 2, "precision": "f8"},
                                    {"steps": 2, "device": "tpu"}, {"minutes": -1}])  # fmt: skip
def test_a_recipe_that_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(TrainError):
        Recipe(**values)
