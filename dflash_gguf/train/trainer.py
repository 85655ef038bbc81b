"""The steps: a batch, its loss, its gradient, the next weights; now and then a measurement and a file to go on from.

Comes in: a drafter, examples, a recipe. Goes out: points of a curve, and the drafter, trained. Knows nothing of GGUFs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from dflash_gguf.errors import TrainError
from dflash_gguf.train import batches, state
from dflash_gguf.train.loss import block_loss, gamma_of, on_device, proposals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dflash_gguf.train.corpus import Corpus
    from dflash_gguf.train.loss import Tables
    from dflash_gguf.train.model import Drafter
    from dflash_gguf.train.recipe import Recipe

SINKS: Final = 3
"""The first tokens of a text, whose features are hundreds of times as large as those of all others."""
RMS_TEXTS: Final = 120
SMALLEST_RMS: Final = 1e-3
SMOOTH: Final = 0.95
_LOWER: Final = "begin anew with a lower rate: `--rate`"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Of held-out blocks: how many, the mean acceptance length, and how often position i is right and all before it.

    The blocks are those that drafting along the answers comes to: each begins where the one before was no more right.
    """

    n_blocks: int
    acceptance_length: float
    per_position: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """After ``step`` steps and ``seconds`` of training: the loss, smoothed, and what was measured, if it was."""

    step: int
    seconds: float
    n_anchors: int
    loss: float
    rate: float
    accepted: Accepted | None = None


def device_of(name: str) -> str:
    """``auto``: an accelerator where there is one. Raises TrainError for one that is not there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return next(each for each, is_there in there.items() if is_there)
    if not there[name]:
        found = ", ".join(each for each, is_there in there.items() if is_there)
        raise TrainError(
            "PyTorch does not find the device",
            value=name,
            expected=f"one of {found}",
            remedy="install the PyTorch that is built for it",
        )
    return name


def free_on(device: str) -> int | None:
    """Bytes that are free of a GPU's own memory; None for one that computes in this machine's, as MPS does."""
    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else None


def feature_rms(corpus: Corpus, n_texts: int = RMS_TEXTS) -> Any:
    """The root mean square of each feature over the first texts, the first tokens of each left out.

    Raises TrainError where that is no number.
    """
    sums, count = np.zeros(corpus.n_features), 0
    for i in range(min(n_texts, len(corpus))):
        rows = torch.from_numpy(np.array(corpus[i].features[SINKS:]).view(np.int16)).view(torch.bfloat16).double()
        sums += rows.square().sum(0).numpy()
        count += len(rows)
    if not np.isfinite(sums).all():
        raise TrainError("the features of the first answers hold numbers that are none", remedy=batches.DAMAGED)
    return torch.from_numpy(np.sqrt(sums / max(1, count))).float().clamp_min(SMALLEST_RMS)


class Trainer:
    """State between steps: the weights, the optimizer's moments, the number of steps, the points so far.

    ``restarts``: the steps at which the training was given another length, and the rate another course with it.
    """

    def __init__(
        self, drafter: Drafter, tables: Tables, train: Corpus, held: Corpus, recipe: Recipe, made_with: dict[str, Any]
    ) -> None:
        """``made_with``: by what a saved run must be the same to go on with."""
        self.recipe, self.train, self.held = recipe, train, held
        self.device = device_of(recipe.device)
        self.drafter, self.tables = drafter.to(self.device), tables.to(self.device)
        self.made_with = made_with
        self.usable = batches.usable(train)
        self.gamma = gamma_of(drafter.shape.block)
        for name, found in (("learn from", self.usable), ("measure with", batches.usable(held))):
            if not found:
                raise TrainError(f"answers long enough to {name}", value=0, expected="at least 1")
        self.frequent = batches.frequent_tokens(train, recipe.frequent)
        self.optimizer = torch.optim.AdamW(
            drafter.parameters(),
            lr=recipe.rate,
            betas=(0.9, 0.95),
            weight_decay=recipe.weight_decay,
            fused=self.device != "mps",
        )
        self.step, self.seconds, self.loss = 0, 0.0, 0.0
        self.points: list[Point] = []
        self.restarts: list[int] = []
        drafter.feature_rms.copy_(feature_rms(train))

    @property
    def n_anchors(self) -> int:
        """Blocks that were learnt from."""
        return self.step * self.recipe.texts * self.recipe.anchors

    def run(self, path: Path, on_point: Callable[[Point], None] | None = None) -> None:
        """All steps that are left. Every ``save_every`` steps, and at the end, ``path`` is written anew."""
        began, before = time.monotonic(), self.seconds
        while self.recipe.part(self.step, self.seconds) < 1:
            rate = self._learn()
            self.seconds = before + time.monotonic() - began
            over = self.recipe.part(self.step, self.seconds) >= 1
            if self.step % self.recipe.eval_every == 0 or over:
                accepted = self.measure()
                began, before = time.monotonic(), self.seconds  # measuring is no training
                self._note(rate, accepted, on_point)
            elif on_point is not None:
                on_point(self._point(rate, None))
            if self.step % self.recipe.save_every == 0 or over:
                state.save(path, self)
                began, before = time.monotonic(), self.seconds

    def _learn(self) -> float:
        """One step; the learning rate that it took."""
        recipe = self.recipe
        rate = recipe.rate_at(self.step, recipe.part(self.step, self.seconds))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        numbers = batches.chosen(len(self.usable), recipe.seed, self.step, recipe.texts)
        examples = [self.train[self.usable[i]] for i in numbers]
        batch = batches.drawn(examples, self.drafter.shape.block, recipe.anchors, recipe.seed, self.step)
        batches.check_finite(batch, f"step {self.step}")
        subset = batches.vocabulary_subset(
            batch, self.frequent, recipe.random, self.drafter.shape.vocab, recipe.seed, self.step
        )
        loss = self.loss_of(batch, subset)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), recipe.clip)
        found = float(loss.detach())
        for name, value in (("loss", found), ("gradient", float(norm))):
            if not np.isfinite(value):  # before the weights take it over, and are saved
                raise TrainError(f"the {name} of step {self.step}", value=value, expected="a number", remedy=_LOWER)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = SMOOTH * self.loss + (1 - SMOOTH) * found if self.step else found
        self.step += 1
        return rate

    def loss_of(self, batch: batches.Batch, subset: Any) -> Any:
        """The loss of a batch, to go backward from."""
        blocks, gold = on_device(batch, self.device)
        with self._precision():
            hidden = self.drafter(blocks, self.tables.embeddings)[:, :, 1:]
            ids = torch.from_numpy(subset).to(self.device)
            return block_loss(self.drafter, hidden, blocks.tokens, gold, self.tables, ids, self.gamma)

    def measure(self) -> Accepted:
        """Drafts along `SPAN` tokens of each held-out answer, each block told the right text before it."""
        block = self.drafter.shape.block
        right = np.zeros(block - 1)
        n_blocks = 0
        with torch.inference_mode(), self._precision():
            for i in batches.usable(self.held):
                example = self.held[i]
                anchors = batches.middle(example)
                batch = batches.batch_of([example], [anchors], block)
                batches.check_finite(batch, "a held-out answer")
                blocks, gold = on_device(batch, self.device)
                hidden = self.drafter(blocks, self.tables.embeddings)[:, :, 1:]
                same = proposals(self.drafter, hidden, blocks.tokens, self.tables) == gold
                named = same[0].int().cumprod(-1).cpu().numpy()
                kept = batches.walked(named.sum(-1))
                right += named[kept].sum(0)
                n_blocks += len(kept)
        rates = right / n_blocks
        return Accepted(n_blocks, float(1 + rates.sum()), tuple(float(rate) for rate in rates))

    def _precision(self) -> Any:
        return torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.recipe.precision == "bf16")

    def _point(self, rate: float, accepted: Accepted | None) -> Point:
        return Point(self.step, self.seconds, self.n_anchors, self.loss, rate, accepted)

    def _note(self, rate: float, accepted: Accepted, on_point: Callable[[Point], None] | None) -> None:
        self.points.append(self._point(rate, accepted))
        if on_point is not None:
            on_point(self.points[-1])
