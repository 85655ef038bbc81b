"""``dflash-gguf train``."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.hub_options import Models, models_options
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import NamedPath, force_option, inputs_of, verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.train_options import Given, training_options
from dflash_gguf.errors import OutputError
from dflash_gguf.facts import TITLES
from dflash_gguf.file_text import shell_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dflash_gguf.train.api import Places, Trained
    from dflash_gguf.train.prompts import Prompt
    from dflash_gguf.train.recipe import Recipe
    from dflash_gguf.train.trainer import Point

_UNITS: Final = {"answers": "answer", "features": "tok", "training": "step", "measuring": "answer"}
"""Stage -> what of it is counted."""
_LEARNING: Final = ("training", "measuring")
"""Those that a saved training goes on from."""
_FOLDER: Final = NamedPath(file_okay=False)
_FILE: Final = NamedPath(dir_okay=False)


@click.command("train", short_help="Train a drafter for the model on your disk.")
@models_options(required=True, draft=None)
@click.option("--prompts", type=_FILE, required=True, help="JSON lines with a `prompt` or `messages` each.")
@click.option("-o", "--out", type=_FOLDER, required=True, help="The folder that becomes the checkpoint.")
@click.option("--cache", type=_FOLDER, help="Where answers and features are kept. Default: in the folder.")
@click.option("--features-from", type=_FILE, help="Another file of the same model, whose features are learnt from.")
@click.option("--mask-id", type=click.IntRange(min=0), help="The token of a block's open places. Default: a spare one.")
@training_options
@click.option("--plot", type=_FILE, help="Draw the curve as a picture: .png, .svg or .pdf.")
@click.option("--resume", is_flag=True, help="Go on with a training that stopped, or make it longer.")
@force_option
@verbose_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    models: Models,
    prompts: Path,
    out: Path,
    cache: Path | None,
    features_from: Path | None,
    mask_id: int | None,
    plot: Path | None,
    *,
    resume: bool,
    force: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Trains a drafter on what the target answers to the prompts, and writes it as a checkpoint that `convert` takes.

    The target writes the answers itself, and its own hidden states along them are what is learnt from: those of the
    file that will run. Needs the extra: pip install 'dflash-gguf[train]'. Answers, features and training each go on
    where they stopped.

    \b
    dflash-gguf train -m SmolLM2-135M-Instruct-Q4_1.gguf --prompts prompts.jsonl -o my-drafter --minutes 30
    """
    from dflash_gguf.cli.bench_output import write_outputs
    from dflash_gguf.train import curve
    from dflash_gguf.train.api import Places, check_torch
    from dflash_gguf.train.prompts import read_prompts

    if resume and force:
        raise click.UsageError("give --resume or --force, not both", ctx)
    native_log(ctx, verbose=verbose)
    places = Places(out, cache, features_from)
    if resume and options["steps"] is None and options["minutes"] is None and places.state.exists():
        options |= _length_of(places)
    given = Given.of(ctx, options)
    files = {"plot": plot, "html": None, "force": force or (resume and places.state.exists())}
    _check_files(ctx, files, places)
    check_torch()
    read, target, output = read_prompts(prompts), models.target_file(ctx), ctx.obj
    trained = _trained(output, target, read, places, given, mask_id=mask_id, resume=resume, force=force)
    _show(output, trained, target)
    if plot is not None:
        write_outputs(output, curve.report(trained.points, _facts(trained)), files)


def _trained(
    output: Output, target: Path, prompts: Sequence[Prompt], places: Places, given: Given, **how: Any
) -> Trained:
    """Trains, and shows how far it is."""
    from dflash_gguf.train.allocator import keep_freed_memory
    from dflash_gguf.train.api import Listener, train

    keep_freed_memory()
    with ExitStack() as stack:
        shown = _Shown(output, stack, given.recipe)
        listener = Listener(output.note, shown.progress, shown.point)
        with _told_how_to_go_on(shown, places):
            return train(
                target,
                prompts,
                places,
                given.recipe,
                asked=given.asked,
                settings=given.settings,
                listener=listener,
                **how,
            )


@contextmanager
def _told_how_to_go_on(shown: _Shown, places: Places) -> Iterator[None]:
    """What a run kept that is stopped, or finds the disk full."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, OutputError):
        if shown.stage in _LEARNING and places.state.exists():
            shown.output.note(f"`{places.state}` is kept: go on with it by `--resume`")
        elif shown.stage:
            shown.output.note(f"what is in `{places.cache}` is kept: the same command goes on with it")
        raise


def _length_of(places: Places) -> dict[str, Any]:
    """How long the training that is gone on with was to be."""
    from dflash_gguf.train.api import check_torch

    check_torch()
    from dflash_gguf.train.state import length_of

    return length_of(places.state)


def _check_files(ctx: click.Context, files: dict[str, Any], places: Places) -> None:
    """Raises for a file that is both read and written, or cannot be; the folder that a picture goes to is made."""
    from dflash_gguf.atomic import check_no_input, failures
    from dflash_gguf.cli.bench_output import OUTPUTS, check_outputs

    if files["plot"] is not None and files["plot"].resolve().parent == places.out.resolve():
        with failures(places.out):
            places.out.mkdir(parents=True, exist_ok=True)
    check_outputs(ctx, files)
    for path in places.written:
        check_no_input(path.absolute(), inputs_of(ctx, *OUTPUTS))


@dataclass(slots=True)
class _Shown:
    """How far it is: a bar for each stage in turn, and a line for each measurement."""

    output: Output
    stack: ExitStack
    recipe: Recipe
    stage: str = ""
    advance: Callable[[int, int], None] = field(default=lambda *_: None)

    def progress(self, stage: str, done: int, total: int) -> None:
        """A bar of its own for each stage."""
        if stage != self.stage:
            self.stack.close()
            self.stage, self.advance = stage, self.stack.enter_context(self.output.progress(stage, _UNITS[stage]))
        self.advance(done, total)

    def point(self, point: Point) -> None:
        """A step, and what was measured behind it."""
        over = self.recipe.part(point.step, point.seconds)
        self.progress("training", min(point.step, round(point.step / over)), round(point.step / over))
        if point.accepted is not None:
            self.output.note(
                f"step {point.step}, {point.n_anchors:,} blocks, {point.seconds:.0f} s: loss {point.loss:.3f}, "
                f"acceptance length in PyTorch {point.accepted.acceptance_length:.2f}"
            )


def _facts(trained: Trained) -> dict[str, str]:
    shape = trained.shape
    return {
        "drafter": f"{TITLES[shape.kind]}, {shape.layers} layers, block {shape.block}, "
        f"{trained.n_weights / 1e6:.1f} million weights",
        "learnt from": f"{trained.n_texts:,} answers, {trained.n_tokens:,} tokens",
    }


def _show(output: Output, trained: Trained, target: Path) -> None:
    from dflash_gguf.train import curve

    measured = trained.measured
    if trained.random_layers:
        output.warning(
            "the target has fewer layers of this drafter's sizes than it has itself: its own began at random"
        )
    for line in curve.lines(trained.points, ascii_only=not _can_draw(curve.BARS)):
        output.line(line)
    next_command = f"dflash-gguf convert {shell_word(trained.folder)} --target {shell_word(target)}"
    output.line(
        f"wrote {trained.folder}: {_facts(trained)['drafter']}\n"
        f"acceptance length in libllama {measured.counts.acceptance_length:.2f}, drafting along the whole of "
        f"{measured.n_texts} held-out answers as a session does\n"
        f"next: {next_command}"
    )
    output.result(
        {
            "path": str(trained.folder.absolute()),
            "n_weights": trained.n_weights,
            "n_texts": trained.n_texts,
            "n_tokens": trained.n_tokens,
            "config": trained.shape.config(),
            "random_layers": trained.random_layers,
            "restarts": list(trained.restarts),
            "points": [asdict(point) for point in trained.points],
            "measured": asdict(measured.counts)
            | {"acceptance_length": measured.counts.acceptance_length, "n_texts": measured.n_texts},
            "next": next_command,
        }
    )


def _can_draw(bars: str) -> bool:
    """Whether stdout's encoding has them."""
    try:
        bars.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
