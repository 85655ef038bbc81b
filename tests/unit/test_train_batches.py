"""What is drawn at a step, the recipe, and what is shown of a training; nothing here needs PyTorch."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest

from dflash_gguf.errors import MissingDependencyError
from dflash_gguf.train import curve
from dflash_gguf.train.api import check_torch
from dflash_gguf.train.batches import (
    NOTHING,
    SPAN,
    batch_of,
    chosen,
    drawn,
    frequent_tokens,
    middle,
    usable,
    vocabulary_subset,
    walked,
)
from dflash_gguf.train.bf16 import narrowed
from dflash_gguf.train.corpus import Corpus, Example
from dflash_gguf.train.recipe import Recipe

RECIPE = Recipe(steps=100, warmup=9)


def example(n: int, n_prompt: int) -> Example:
    rows = np.tile(np.arange(n, dtype=np.float32)[:, None], 2)
    return Example(np.arange(100, 100 + n, dtype=np.int32), n_prompt, narrowed(rows))


def corpus(*lengths: int) -> Corpus:
    """Answers of these lengths to prompts of 3 tokens."""
    starts = np.cumsum([0, *(3 + n for n in lengths)])
    total = int(starts[-1])
    return Corpus(
        np.arange(total, dtype=np.int32) % 7,
        starts,
        np.full(len(lengths), 3, np.int32),
        np.zeros((total, 2), np.uint16),
        (1,),
        np.arange(len(lengths)),
    )


def test_each_example_comes_up_once_before_any_comes_up_again() -> None:
    numbers = [number for step in range(10) for number in chosen(15, 4, step, 3)]
    assert Counter(numbers[:15]) == Counter(numbers[15:]) == Counter(range(15))
    assert numbers[:15] != numbers[15:]
    assert chosen(15, 4, 7, 3) == numbers[21:24]
    assert chosen(15, 5, 0, 3) != numbers[:3]
    assert sorted(chosen(2, 0, 1, 3)) in ([0, 0, 1], [0, 1, 1])


def test_anchors_lie_along_the_answer_and_its_last_token_is_only_a_goal() -> None:
    texts = [example(20, 5), example(9, 7)]
    batches = [drawn(texts, 4, 50, 1, step) for step in range(5)]
    anchors = np.stack([batch.anchors for batch in batches])
    assert set(anchors[:, 0].flatten().tolist()) == set(range(5, 19))
    assert set(anchors[:, 1].flatten().tolist()) == {7}
    assert np.array_equal(drawn(texts, 4, 50, 1, 3).anchors, batches[3].anchors)
    assert not np.array_equal(batches[0].anchors, batches[1].anchors)


def test_a_block_is_the_text_from_its_anchor_on_until_the_text_ends() -> None:
    batch = batch_of([example(20, 5), example(9, 5)], [np.array([5, 17]), np.array([6, 7])], 4)
    assert batch.tokens[0].tolist() == [[105, 106, 107, 108], [117, 118, 119, NOTHING]]
    assert batch.tokens[1].tolist() == [[106, 107, 108, NOTHING], [107, 108, NOTHING, NOTHING]]
    assert batch.features.shape == (2, 17, 2)
    assert not batch.features[1, 7:].any()
    assert batch.features[1, 1:7].all()


def test_answers_too_short_to_learn_from_are_passed_over() -> None:
    assert usable(corpus(5, 1, 0, 2)) == [0, 3]


@pytest.mark.parametrize(
    ("n", "n_prompt", "anchors"),
    [(20, 5, range(5, 19)), (7, 5, range(5, 6)), (SPAN + 6, 5, range(5, SPAN + 5)), (108, 5, range(32, 80))],
)
def test_the_middle_of_an_answer_is_measured_along(n: int, n_prompt: int, anchors: range) -> None:
    assert middle(example(n, n_prompt)).tolist() == list(anchors)


def test_a_block_begins_where_the_one_before_was_no_more_right() -> None:
    assert walked(np.array([0, 2, 9, 9, 1, 9, 7])) == [0, 1, 4, 6]
    assert walked(np.array([], int)) == []


def test_the_vocabulary_of_a_loss_holds_what_is_right() -> None:
    batch = batch_of([example(20, 5)], [np.array([5, 17])], 4)
    subset = vocabulary_subset(batch, np.array([7, 3]), 4, 1000, 1, 0)
    assert sorted(set(subset.tolist())) == subset.tolist()
    assert {3, 7, 105, 106, 107, 108, 117, 118, 119} <= set(subset.tolist())
    assert NOTHING not in subset
    assert len(subset) <= 2 + 7 + 4


def test_frequent_tokens_are_those_of_the_answers() -> None:
    assert frequent_tokens(corpus(5, 5), 3).tolist() == [0, 4, 5]


def test_the_rate_rises_then_falls_to_a_twentieth() -> None:
    rates = [RECIPE.rate_at(step, RECIPE.part(step, 0)) for step in range(100)]
    assert rates[0] == pytest.approx(1e-4)
    assert max(rates) == rates[9]
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert RECIPE.rate_at(100, 1.0) == pytest.approx(5e-5)
    assert Recipe(minutes=2).part(7, 60.0) == 0.5


class Accepted:
    def __init__(self, length: float) -> None:
        self.acceptance_length = length


class Point:
    def __init__(self, step: int, loss: float, length: float) -> None:
        self.step, self.n_anchors, self.loss, self.accepted = step, 144 * step, loss, Accepted(length)


def test_the_curve_is_drawn_in_two_rows() -> None:
    points = [Point(250 * i, 8 - i, 1 + 0.5 * i) for i in range(1, 6)]
    after = "after 250 to 1250 steps, 180,000 blocks; acceptance in PyTorch, along at most 48 tokens an answer"
    assert curve.lines(points) == [
        "loss               \u2588\u2586\u2585\u2583\u2581  7.00 to 3.00",
        "acceptance length  \u2581\u2583\u2585\u2586\u2588  1.50 to 3.50",
        f"                   {after}",
    ]
    assert curve.lines(points, ascii_only=True)[0] == "loss               @*+-.  7.00 to 3.00"
    assert curve.lines([]) == []
    loss, _, after = curve.lines(points[:1], ascii_only=True)
    assert loss.endswith("  7.00")
    assert after.strip().startswith("after 250 steps, 36,000 blocks; ")
    many = curve.lines([Point(i, 1.0, 1.0) for i in range(1, 500)])
    assert len(many[0]) < 100


def test_a_report_has_both_curves() -> None:
    report = curve.report([Point(250 * i, 8 - i, 1 + 0.5 * i) for i in range(1, 20)], {"drafter": "x"})
    assert [chart.series[0].values[-1] for chart in report.charts] == [-11, 10.5]
    assert sum(map(bool, report.charts[0].places)) <= curve.NAMED


def test_without_pytorch_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"training needs PyTorch.*pip install 'dflash-gguf\[train\]'"):
        check_torch()
