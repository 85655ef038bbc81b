"""What `train` may be told beside its files, in tables: the drafter's shape, the recipe, the answers.

Comes in: nothing. Goes out: click decorators, and what was given as the values of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from dflash_gguf.cli.options import Number, range_of
from dflash_gguf.cli.session_options import PLACING, options_for
from dflash_gguf.facts import DFLASH, DFLASH2
from dflash_gguf.runner.bounds import SEEDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_gguf.train.recipe import Recipe
    from dflash_gguf.train.settings import CorpusSettings
    from dflash_gguf.train.shape import Asked


_SESSION: Final = (*PLACING, "n_ctx")
"""What of the target's session may be chosen: where and how fast it runs, and how long a text may be."""

DEFAULT_MINUTES: Final = 30.0
_COUNT: Final = click.IntRange(min=1)
_RECIPE: Final = ("minutes", "steps", "anchors", "texts", "rate", "held_out", "eval_every", "seed", "precision")
_ANSWERS: Final = ("max_tokens", "sampled", "temperature", "parallel")


def _numbers(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of layers, such as 1,10,19,28") from None


SHAPE: Final = (
    click.option("--kind", type=click.Choice(("dflash2", "dflash")), default="dflash2", show_default=True,
                 help="The drafter's architecture."),
    click.option("--layers", type=_COUNT, default=2, show_default=True, help="Layers of the drafter."),
    click.option("--block", type=click.IntRange(min=2), default=8, show_default=True,
                 help="Tokens of a block, the anchor among them."),
    click.option("--taps", callback=_numbers, metavar="N,N,..",
                 help="Layers of the target whose outputs are read, from 0; -1: what the first reads. Default: four, "
                      "evenly spread."),
    click.option("--rank", type=_COUNT, default=32, show_default=True, help="Rank of the selector."),
    click.option("--top-k", type=_COUNT, default=16, show_default=True, help="Candidates a position."),
    click.option("--conv-kernel", type=_COUNT, default=2, show_default=True, help="Taps of the convolutions."),
    click.option("--conv-group", type=_COUNT, default=16, show_default=True, help="Channels that share a correction."),
)  # fmt: skip
"""What the drafter looks like."""

RECIPE: Final = (
    click.option("--minutes", type=Number(0, min_open=True),
                 help=f"Train for so long, beside answers, features and measurements. Default: {DEFAULT_MINUTES:g}, "
                      "with --resume as before."),
    click.option("--steps", type=_COUNT, help="Train for so many steps instead: the same again each time."),
    click.option("--anchors", type=_COUNT, default=48, show_default=True, help="Blocks of an answer in a step."),
    click.option("--texts", type=_COUNT, default=3, show_default=True, help="Answers in a step."),
    click.option("--rate", type=Number(0, min_open=True), default=1e-3, show_default=True,
                 help="The highest learning rate."),
    click.option("--held-out", type=_COUNT, default=70, show_default=True,
                 help="Answers that are measured with, and not learnt from."),
    click.option("--eval-every", type=_COUNT, default=250, show_default=True, help="Steps between measurements."),
    click.option("--seed", type=click.IntRange(0, SEEDS - 1), default=0, show_default=True,
                 help="Of all that is drawn."),
    click.option("--precision", type=click.Choice(("bf16", "f32")), default="bf16", show_default=True,
                 help="Of the products; f32 for a CPU that is slow at bf16."),
    click.option("--torch-device", type=click.Choice(("auto", "cpu", "cuda", "mps")), default="auto", show_default=True,
                 help="Where PyTorch computes."),
)  # fmt: skip
"""How it is trained."""

ANSWERS: Final = (
    click.option("--max-tokens", type=click.IntRange(min=16), default=512, show_default=True,
                 help="Tokens of an answer."),
    click.option("--sampled", type=Number(0, 1), default=0.25, show_default=True,
                 help="Share of the prompts whose answers are drawn; the others' are greedy."),
    click.option("--temperature", type=Number(0, min_open=True), default=0.7, show_default=True,
                 help="At which they are drawn."),
    click.option("--parallel", type=range_of("parallel"), default=32, show_default=True,
                 help="Answers written at once."),
)  # fmt: skip
"""How the target answers."""


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for each row of each table, and those of the target's session."""
    command = options_for(*_SESSION)(command)
    for option in reversed((*SHAPE, *RECIPE, *ANSWERS)):
        command = option(command)
    return command


def _check_kind(ctx: click.Context, kind: str) -> None:
    """Raises UsageError for a size that this kind has not, and that was given all the same."""
    from dflash_gguf.train.shape import SELECTING

    given = (name for name in SELECTING if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT)
    if kind == DFLASH and (name := next(given, None)):
        flag = next(param.opts[0] for param in ctx.command.params if param.name == name)
        raise click.UsageError(f"{flag} is of --kind {DFLASH2} alone: leave it out", ctx)


@dataclass(frozen=True, slots=True)
class Given:
    """What was asked for, checked."""

    asked: Asked
    recipe: Recipe
    settings: CorpusSettings

    @classmethod
    def of(cls, ctx: click.Context, options: dict[str, Any]) -> Given:
        """Raises TrainError or SessionError for values that do not go together."""
        from dflash_gguf.runner.settings import Settings
        from dflash_gguf.train.recipe import Recipe
        from dflash_gguf.train.settings import CorpusSettings
        from dflash_gguf.train.shape import Asked

        if options["minutes"] is not None and options["steps"] is not None:
            raise click.UsageError("give --minutes or --steps, not both", ctx)
        _check_kind(ctx, options["kind"])
        if options["steps"] is None and options["minutes"] is None:
            options["minutes"] = DEFAULT_MINUTES
        session: Any = {name: options.pop(name) for name in _SESSION}
        recipe = {name: options.pop(name) for name in _RECIPE}
        answers = {name: options.pop(name) for name in _ANSWERS}
        recipe |= {"device": options.pop("torch_device"), "n_threads": session["n_threads"]}
        corpus = CorpusSettings(**answers, seed=recipe["seed"], n_ctx=session["n_ctx"], session=Settings.of(session))
        return cls(Asked(**options), Recipe(**recipe), corpus)
