"""From a target and prompts to a drafter's checkpoint, in one call.

The steps are `shape_of`, `build_corpus`, `choose`, `Trainer.run`, `export` and `measure`; each goes on with what a run
before it left in the output folder.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.atomic import check_no_input, failures, write_text
from dflash_gguf.errors import MissingDependencyError, OutputError, TrainError
from dflash_gguf.facts import DFLASH2, EMBEDDINGS
from dflash_gguf.runner.session import read_pair
from dflash_gguf.train import answers, features
from dflash_gguf.train.allocator import give_back
from dflash_gguf.train.card import card
from dflash_gguf.train.corpus import build_corpus, readable
from dflash_gguf.train.mask import choose
from dflash_gguf.train.measure import measure
from dflash_gguf.train.prompts import named
from dflash_gguf.train.responses import end_tokens
from dflash_gguf.train.settings import CorpusSettings
from dflash_gguf.train.shape import CONFIG, SELECTING, WEIGHTS, Asked, shape_of
from dflash_gguf.train.start import Weights, first_layer, first_values, tables

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.train.corpus import Corpus
    from dflash_gguf.train.measure import Measured
    from dflash_gguf.train.prompts import Prompt
    from dflash_gguf.train.recipe import Recipe
    from dflash_gguf.train.shape import Shape
    from dflash_gguf.train.trainer import Point, Trainer

CORPUS: Final = "corpus"
STATE: Final = "training.pt"
CARD: Final = "README.md"
MEASURING: Final = "measuring"
"""The stage that ``progress`` is told about behind those of `build_corpus`."""


@dataclass(frozen=True, slots=True)
class Places:
    """``out`` becomes the checkpoint; ``corpus``: where answers and features are kept, None: in it.

    ``features_from``: another file of the same model, whose features are learnt from.
    """

    out: Path
    corpus: Path | None = None
    features_from: Path | None = None

    @property
    def cache(self) -> Path:
        """The folder of answers and features."""
        return self.corpus or self.out / CORPUS

    @property
    def state(self) -> Path:
        """What an interrupted training goes on from."""
        return self.out / STATE

    @property
    def made(self) -> tuple[Path, ...]:
        """The files of ``out``."""
        return tuple(self.out / name for name in (STATE, WEIGHTS, CONFIG, CARD))

    @property
    def cached(self) -> tuple[Path, ...]:
        """Those of answers and features."""
        return tuple(self.cache / name for name in (answers.NAME, features.NAME, features.PARTIAL))

    @property
    def written(self) -> tuple[Path, ...]:
        """All of them."""
        return self.made + self.cached


@dataclass(frozen=True, slots=True)
class Listener:
    """Is told how far it is: ``progress`` gets a stage, done and in all; ``point`` what a step came to.

    ``note`` gets what it will take, before it begins, and how many answers are left out.
    """

    note: Callable[[str], None] = field(default=lambda _: None)
    progress: Callable[[str, int, int], None] = field(default=lambda *_: None)
    point: Callable[[Point], None] = field(default=lambda *_: None)


@dataclass(frozen=True, slots=True)
class Trained:
    """``points`` are the measured ones; ``measured``: what the checkpoint accepts in libllama, of held-out answers.

    ``restarts``: the steps at which the training was made longer, or shorter.

    ``random_layers``: the target's layers have other sizes, so that the drafter's started at random.
    """

    folder: Path
    shape: Shape
    n_weights: int
    n_texts: int
    n_tokens: int
    points: tuple[Point, ...]
    restarts: tuple[int, ...]
    measured: Measured
    random_layers: bool


def check_torch() -> None:
    """Raises MissingDependencyError with the command that installs PyTorch."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        why = "" if isinstance(error, ModuleNotFoundError) else f", which does not load: {error}"
        raise MissingDependencyError(
            f"training needs PyTorch{why}", remedy="install it: pip install 'dflash-gguf[train]'"
        ) from None


def train(
    target: str | os.PathLike[str],
    prompts: Sequence[Prompt],
    places: Places,
    recipe: Recipe,
    *,
    asked: Asked | None = None,
    mask_id: int | None = None,
    settings: CorpusSettings | None = None,
    resume: bool = False,
    force: bool = False,
    listener: Listener | None = None,
) -> Trained:
    """A drafter for ``target``, trained on its answers to ``prompts``, in ``places.out``.

    ``resume`` goes on with a training that stopped; ``force`` begins anew over what is there. ``mask_id`` None: the
    best reserved token. Raises TrainError for what cannot be trained with, what `build_corpus` and `measure` raise, and
    OutputError when a file is there already or cannot be written.
    """
    from dflash_gguf.train.cache import alone_in

    check_torch()
    target = Path(target)
    _check_enough(len(prompts), recipe.held_out)
    _check_places(places, (target, *filter(None, [places.features_from])))
    header = readable(target)
    settings = (settings or CorpusSettings()).within(header)
    job = _Job(places, recipe, settings, listener or Listener(), resume)
    with alone_in(places.out):
        _check_done(places, resume=resume, force=force)
        return _made(target, header, prompts, asked or Asked(), mask_id, job)


def _made(
    target: Path, header: GGUFHeader, prompts: Sequence[Prompt], asked: Asked, mask_id: int | None, job: _Job
) -> Trained:
    """All of it, once it is known where."""
    shape = shape_of(header, asked, mask_id=0)
    if job.goes_on:
        from dflash_gguf.train.state import check_begun

        check_begun(job.places.state, named(prompts), job.recipe)
    else:
        _check_fit(target, header, shape, prompts, job)
    weights, ends = Weights(target, header), end_tokens(target, header, job.settings)
    choose(header, weights.values(EMBEDDINGS), ends, (), mask_id)  # before anything takes long
    if not job.resume:
        with failures(job.places.state):  # of a training that this one takes the place of
            job.places.state.unlink(missing_ok=True)
    source = job.places.features_from
    corpus = build_corpus(target, prompts, job.places.cache, shape.taps, job.settings, job.listener.progress, source)
    shape = replace(shape, mask_id=choose(header, weights.values(EMBEDDINGS), ends, _ids(corpus), mask_id))
    learnt, held = _parts(corpus, job)
    come_to = _learnt(_begun(weights, header, shape, (learnt, held), job.recipe, named(prompts)), job)
    give_back()
    trained = Trained(
        folder=job.places.out,
        shape=shape,
        n_texts=len(learnt),
        n_tokens=sum(len(example.ids) - example.n_prompt for example in learnt),
        measured=measure(
            target,
            job.places.out,
            held,
            job.settings.session,
            lambda done, total: job.listener.progress(MEASURING, done, total),
            read_features=source is not None,
        ),
        **come_to,
    )
    others = read_pair(source, None)[0] if source is not None else None
    write_text(job.places.out / CARD, card(trained, header, job.recipe, job.settings, others), force=True)
    return trained


def _parts(corpus: Corpus, job: _Job) -> tuple[Corpus, Corpus]:
    """What is learnt from, and what is held out. Raises TrainError when all that is left is held out too."""
    learnt, held = corpus.split(job.recipe.held_out, job.recipe.seed)
    alike = len(corpus) - len(learnt) - len(held)
    if alike:
        job.listener.note(f"{alike} answers equal one that is held out, and are not learnt from")
    if not len(learnt):
        raise TrainError(
            "answers that equal none that is held out",
            value=0,
            expected="at least 1",
            remedy="give prompts whose answers differ, or hold fewer out: `--held-out`",
        )
    return learnt, held


def _begun(
    weights: Weights, header: GGUFHeader, shape: Shape, parts: tuple[Corpus, Corpus], recipe: Recipe, asked: str
) -> tuple[Trainer, bool]:
    """A trainer, and whether its layers start at random. What was widened for it ends here: training needs the room."""
    start = first_values(weights, header, shape)
    trainer = new_trainer(shape, start, tables(weights), *parts, recipe, asked)
    return trainer, not start.keys() >= first_layer(shape).keys()


@dataclass(frozen=True, slots=True)
class _Job:
    """What all steps are told."""

    places: Places
    recipe: Recipe
    settings: CorpusSettings
    listener: Listener
    resume: bool

    @property
    def goes_on(self) -> bool:
        """Whether there is a training to go on with."""
        return self.resume and self.places.state.exists()


def _check_fit(target: Path, header: GGUFHeader, shape: Shape, prompts: Sequence[Prompt], job: _Job) -> None:
    """Raises TrainError when this machine is too small, or a prompt cannot be asked."""
    from dflash_gguf.train.estimate import check_fit, estimate
    from dflash_gguf.train.responses import prompt_lengths
    from dflash_gguf.train.trainer import device_of, free_on

    free = free_on(device_of(job.recipe.device))
    lengths = prompt_lengths(target, header, prompts, job.settings)
    found = estimate(header, shape, job.recipe, job.settings, lengths, job.places, free_device=free)
    if job.places.state.is_file():  # this training takes its place
        found = replace(found, free_out=found.free_out + job.places.state.stat().st_size)
    check_fit(found, Path(header.name).name)
    job.listener.note(found.sentence())


def _learnt(begun: tuple[Trainer, bool], job: _Job) -> dict[str, Any]:
    """All steps that are left, and the checkpoint; what of `Trained` they came to."""
    from dflash_gguf.train import state
    from dflash_gguf.train.export import export

    trainer, random_layers = begun
    if job.goes_on:
        state.load(job.places.state, trainer)
        if state.length_of(job.places.state) != job.recipe.length:
            state.save(job.places.state, trainer)  # stopped at once, it goes on for as long
    trainer.run(job.places.state, job.listener.point)
    with failures(job.places.out):  # the card of before is of another drafter
        (job.places.out / CARD).unlink(missing_ok=True)
    export(trainer.drafter, job.places.out)
    return {
        "n_weights": sum(values.numel() for values in trainer.drafter.parameters()),
        "points": tuple(trainer.points),
        "restarts": tuple(trainer.restarts),
        "random_layers": random_layers,
    }


def new_trainer(
    shape: Shape,
    start: dict[str, NDArray[np.float32]],
    kept: tuple[NDArray[np.float32], NDArray[np.float32]],
    learnt: Corpus,
    held: Corpus,
    recipe: Recipe,
    asked: str,
) -> Trainer:
    """A trainer before its first step.

    ``start``: weights to begin with, by name; ``kept``: embeddings and head; ``asked``: the prompts, `named`.
    """
    import torch

    from dflash_gguf.threads import physical_cores
    from dflash_gguf.train.loss import Tables
    from dflash_gguf.train.model import Drafter
    from dflash_gguf.train.trainer import Trainer

    torch.set_num_threads(recipe.n_threads or physical_cores())
    torch.manual_seed(recipe.seed)
    drafter = Drafter(shape)
    drafter.load(start)
    kind = torch.bfloat16 if recipe.precision == "bf16" else torch.float32
    embeddings = torch.from_numpy(kept[0]).to(kind)
    head = embeddings if kept[1] is kept[0] else torch.from_numpy(kept[1]).to(kind)
    made_with = {"prompts": asked, **_made_with(shape, learnt, held, recipe)}
    return Trainer(drafter, Tables(embeddings, head), learnt, held, recipe, made_with)


def _made_with(shape: Shape, learnt: Corpus, held: Corpus, recipe: Recipe) -> dict[str, Any]:
    """By what two trainings are the same, in plain values."""
    from dflash_gguf.train.cache import digest_of

    texts = {
        name: f"{len(part)}:{digest_of(part.ids.tobytes(), part.order.tobytes())}"
        for name, part in (("learnt texts", learnt), ("held-out texts", held))
    }
    sizes = {name: value for name, value in asdict(shape).items() if shape.kind == DFLASH2 or name not in SELECTING}
    return {**recipe.as_dict(), **texts, **sizes, "taps": list(shape.taps)}


def _check_enough(n_prompts: int, held_out: int) -> None:
    if n_prompts <= held_out:
        raise TrainError(
            "prompts",
            value=n_prompts,
            expected=f"more than the {held_out} that are held out",
            remedy="give more, or hold fewer out: `--held-out`",
        )


def _ids(corpus: Corpus) -> Collection[int]:
    import numpy as np

    return frozenset(np.unique(corpus.ids).tolist())


def _check_places(places: Places, inputs: Sequence[Path]) -> None:
    with failures(places.out):
        places.out.mkdir(parents=True, exist_ok=True)
    for path in places.written:
        check_no_input(path.absolute(), inputs)


def _check_done(places: Places, *, resume: bool, force: bool) -> None:
    """Raises OutputError when a training is there already, or a folder where a file is to be."""
    for paths, what in ((places.made, "`--out`"), (places.cached, "`--cache`")):
        for path in filter(Path.is_dir, paths):
            raise OutputError(f"`{path}` is a folder", remedy=f"choose another {what}")
    there = [path for path in places.made if path.exists()]
    if force or not there or (resume and there[0] == places.state):
        return
    remedy = "pass `--resume` to go on with it" if there[0] == places.state else "choose another folder"
    raise OutputError(f"`{there[0]}` exists already", remedy=f"{remedy}, or `--force` to begin anew")
