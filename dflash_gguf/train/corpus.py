"""What a drafter is trained on: the target's answers, and the inputs of its tapped layers along each.

Comes in: a GGUF target and prompts. Goes out: a corpus over two files of a folder, which a run that was stopped goes on
with: examples, and two parts of them. Knows nothing of PyTorch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dflash_gguf.atomic import failures
from dflash_gguf.errors import TrainError
from dflash_gguf.facts import target_facts
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.session import read_pair
from dflash_gguf.train import answers as answers_file
from dflash_gguf.train.answers import Answers, AnswersFile
from dflash_gguf.train.cache import VERSION, appending, fingerprint
from dflash_gguf.train.features import capture, check_source
from dflash_gguf.train.responses import respond
from dflash_gguf.train.settings import CorpusSettings
from dflash_gguf.train.shape import check_taps

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.train.prompts import Prompt

    Progress = Callable[[str, int, int], None]

RESPONSES: Final = "answers"
FEATURES: Final = "features"
"""What ``progress`` is told about: prompts answered, tokens whose features are there."""
ALIKE: Final = 12
"""Tokens; a shorter answer, such as a label, comes again by nature."""


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt and the answer to it: ``ids`` int32 [n], of which the first ``n_prompt`` are the prompt.

    ``features``: BF16 as uint16 [n, n_taps * n_embd], a view of a file; row i belongs to ``ids[i]``, and holds the taps
    in the drafter's order, as the loop injects them.
    """

    ids: NDArray[np.int32]
    n_prompt: int
    features: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Examples behind one another; ``len()`` and ``[i]`` go by ``order``, which a `split` makes shorter.

    ``ids`` int32 [tokens]; ``starts`` int64 [examples + 1], where each begins; ``n_prompts`` int32 [examples];
    ``features`` BF16 as uint16 [tokens, n_taps * n_embd]; ``taps``: layers whose outputs these are, numbered from 0 as
    in ``target_layer_ids``; ``order`` int64 [len]: which of the examples this corpus has.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    n_prompts: NDArray[np.int32]
    features: NDArray[np.uint16]
    taps: tuple[int, ...]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> Example:
        place = int(self.order[i])
        span = slice(int(self.starts[place]), int(self.starts[place + 1]))
        return Example(self.ids[span], int(self.n_prompts[place]), self.features[span])

    def __iter__(self) -> Iterator[Example]:
        return map(self.__getitem__, range(len(self)))

    @property
    def n_features(self) -> int:
        """Width of a row of features: taps times the target's embedding length."""
        return int(self.features.shape[1])

    def split(self, held_out: int, seed: int) -> tuple[Corpus, Corpus]:
        """All but ``held_out`` examples drawn by ``seed``, and those; both in the order of this corpus.

        An answer that was held out is not learnt from as that to another prompt either: "list" and "print" the same
        numbers are two prompts, and one answer. Those of fewer than `ALIKE` tokens are.
        """
        held = drawn(len(self), held_out, seed)
        measured = {self._answer(i).tobytes() for i in held if len(self._answer(i)) >= ALIKE}
        others = sorted({*range(len(self))}.difference(held))
        kept = [i for i in others if self._answer(i).tobytes() not in measured]
        return replace(self, order=self.order[kept]), replace(self, order=self.order[held])

    def _answer(self, i: int) -> NDArray[np.int32]:
        """The tokens behind the prompt."""
        return self[i].ids[self[i].n_prompt :]


def drawn(n: int, held_out: int, seed: int) -> list[int]:
    """Which of ``n`` examples `Corpus.split` holds out, rising."""
    return sorted(random.Random(seed).sample(range(n), held_out))  # noqa: S311 - not a secret


def build_corpus(
    target: str | os.PathLike[str],
    prompts: Sequence[Prompt],
    cache_dir: str | os.PathLike[str],
    taps: Sequence[int],
    settings: CorpusSettings | None = None,
    progress: Progress | None = None,
    features_from: str | os.PathLike[str] | None = None,
) -> Corpus:
    """Answers and features, made or gone on with in ``cache_dir``.

    ``taps`` are layers whose outputs are kept, numbered from 0 as in ``target_layer_ids``. ``progress`` gets the stage
    (`RESPONSES`, `FEATURES`), how much is done and how much there is. ``features_from`` is another file of the same
    model to take features from. Raises PairError for a file that generates no text, TrainError when a cache was made
    with something else, SessionError when libllama refuses, OutputError when a file cannot be written.
    """
    header = readable(target)
    settings = (settings or CorpusSettings()).within(header)
    check_taps(header, taps)
    folder = Path(cache_dir)
    with failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
    source, source_header = Path(target), header
    if features_from is not None:
        source, source_header = Path(features_from), readable(features_from)
        _check_alike(source_header, header)
    check_source(folder, source_header, taps)  # before anything takes long
    n = len(prompts)
    there = _answers(Path(target), header, prompts, folder, settings, _stage(progress, RESPONSES))
    features = capture(source, source_header, (there, n), folder, taps, settings, _stage(progress, FEATURES))
    answers = there.first(n)
    return Corpus(answers.ids, answers.starts, answers.n_prompts, features, tuple(taps), np.arange(n, dtype=np.int64))


def readable(target: str | os.PathLike[str]) -> GGUFHeader:
    """The header of a file that generates text. Raises PairError for another one, such as a drafter's."""
    header, _ = read_pair(target, None)
    Drafting.read(header, None)
    return header


def _answers(
    target: Path,
    header: GGUFHeader,
    prompts: Sequence[Prompt],
    folder: Path,
    settings: CorpusSettings,
    progress: Callable[[int, int], None],
) -> Answers:
    path = folder / answers_file.NAME
    n_vocab = target_facts(header).vocab_size or 0
    with appending(path) as fd:
        file = AnswersFile(fd, path, _made_with(header, settings), [prompt.digest for prompt in prompts], n_vocab)
        missing = {number: prompt for number, prompt in enumerate(prompts) if number not in file.found}
        if missing:
            progress(len(prompts) - len(missing), len(prompts))
        written = respond(target, header, missing, settings) if missing else ()
        for n_done, answer in enumerate(written, len(prompts) - len(missing) + 1):
            file.add(answer)
            progress(n_done, len(prompts))
        return Answers.of(file.found)


def _made_with(header: GGUFHeader, settings: CorpusSettings) -> dict[str, Any]:
    return {"kind": answers_file.KIND, "version": VERSION, "target": fingerprint(header), **settings.as_dict()}


def _check_alike(features: GGUFHeader, target: GGUFHeader) -> None:
    ours, theirs = target_facts(target), target_facts(features)
    for name in ("architecture", "hidden_size", "n_layers", "vocab_size"):
        if getattr(ours, name) != getattr(theirs, name):
            raise TrainError(
                f"`{features.name}` is another model than the target: its `{name}`",
                value=getattr(theirs, name),
                expected=str(getattr(ours, name)),
            )


def _stage(progress: Progress | None, stage: str) -> Callable[[int, int], None]:
    """Tells of one stage, when anyone listens."""
    return lambda done, total: progress(stage, done, total) if progress is not None else None
