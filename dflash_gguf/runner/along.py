"""Drafting along a text that is there already, as if the target wrote it token by token.

Comes in: a pair and a text. Goes out: how much was accepted; what ran through the drafter's matrices is in an
`Activations` that watched its context. Every pass is one that a session would run: the features of the tokens that were
kept are injected, then a block is drafted behind them, and it is kept as far as it is the text.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from dflash_gguf.errors import SessionError
from dflash_gguf.runner.assembly import (
    caches,
    check_settings,
    draft_sizes,
    n_outputs,
    new_drafter,
    opened,
    target_sizes,
)
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.memory import check_memory
from dflash_gguf.runner.models import Model, ModelContext
from dflash_gguf.runner.session import read_pair
from dflash_gguf.runner.vocabulary import Vocabulary

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dflash_gguf._core import Activations, LlamaDrafter, LlamaTarget
    from dflash_gguf.runner.settings import Settings

FEWEST: Final = 16
"""Tokens of a text that are worth drafting along."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What came of it; ``n_drafts`` are passes of the drafter."""

    n_chunks: int
    n_tokens: int
    n_drafts: int
    draft_n: int
    draft_n_accepted: int

    @property
    def acceptance_length(self) -> float:
        """1 + accepted / drafts: tokens that a pass of the target would yield."""
        return 1.0 + self.draft_n_accepted / max(1, self.n_drafts)


@dataclass(frozen=True, slots=True)
class Text:
    """``chunk`` tokens are read behind one another, then everything is forgotten; at most ``n_chunks`` such pieces.

    ``parse_special``: special tokens that are spelt out in the text are meant.
    """

    text: str
    chunk: int = 512
    n_chunks: int | None = None
    parse_special: bool = False


def draft_along(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    text: Text,
    settings: Settings,
    activations: Activations,
    progress: Callable[[int, int], None] | None = None,
) -> Counts:
    """``settings.n_ctx`` must hold a chunk and a block behind it. ``progress`` gets tokens done and tokens in all.

    Raises PairError when the pair does not fit, SessionError when libllama refuses or the text is too short.
    """
    headers = read_pair(target, draft)
    drafting = Drafting.read(*headers)
    check_settings(drafting, settings, headers[1])
    check_memory(caches(drafting, settings, *headers))
    if headers[1] is None:
        raise SessionError("there is no drafter to draft with")
    with ExitStack() as stack:
        models = [
            opened(stack, Model(Path(target), settings.placement)),
            opened(stack, Model(Path(draft), settings.draft_placement(headers[1]))),
        ]
        chunks = _chunks(Vocabulary(models[0]), text)
        reader = Reader.opened(stack, models[0], drafting, settings)
        run = Along.opened(stack, models[1], reader, drafting, settings, activations)
        return added(_counts(reader, run, chunks, activations, progress))


def _chunks(vocabulary: Vocabulary, text: Text) -> list[list[int]]:
    """Whole chunks, or what there is of one; each begins as the tokenizer begins a text."""
    ids = vocabulary.tokenize(text.text, add_special=False, parse_special=text.parse_special)
    begin = [vocabulary.special_id("bos")] if vocabulary.adds_bos else []
    step = text.chunk - len(begin)
    pieces = [ids[i : i + step] for i in range(0, len(ids), step)]
    whole = [piece for piece in pieces if len(piece) == step] or pieces[:1]
    if not whole or len(whole[0]) < FEWEST:
        raise SessionError("tokens of the text", value=len(ids), expected=f"at least {FEWEST}")
    return [begin + piece for piece in whole[: text.n_chunks]]


def added(found: Iterable[Counts]) -> Counts:
    """All of them together."""
    rows = [(a.n_chunks, a.n_tokens, a.n_drafts, a.draft_n, a.draft_n_accepted) for a in found]
    return Counts(*map(sum, zip(*rows, strict=True)))


def _counts(
    reader: Reader,
    run: Along,
    chunks: Sequence[Sequence[int]],
    activations: Activations,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Counts]:
    """What came of each chunk."""
    done, total = 0, sum(map(len, chunks))
    for chunk in chunks:
        yield run.draft(chunk, reader.features(chunk))
        activations.check()
        done += len(chunk)
        if progress is not None:
            progress(done, total)


@dataclass(frozen=True, slots=True)
class Reader:
    """The target: its context, the core's view of it, and how many rows one pass takes."""

    context: ModelContext
    core: LlamaTarget
    n_batch: int

    @classmethod
    def opened(cls, stack: ExitStack, model: Model, drafting: Drafting, settings: Settings) -> Self:
        """A context that ``stack`` closes."""
        from dflash_gguf import _core

        context = opened(stack, ModelContext(model, target_sizes(drafting, settings)))
        core = _core.LlamaTarget(context.address, context.n_ctx, drafting.layers, n_outputs(drafting))
        return cls(context, core, settings.rows(drafting))

    def features(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """The layer inputs that the drafter asks for, float32 [tokens, n_features]."""
        import numpy as np

        _forget(self.context)
        rows = []
        for start in range(0, len(tokens), self.n_batch):
            piece = list(tokens[start : start + self.n_batch])
            self.core.decode(piece, start, 0)
            rows.append(self.core.features(0, len(piece)))
        return np.concatenate(rows)


@dataclass(frozen=True, slots=True)
class Along:
    """A drafter beside a `Reader`: ``n_batch`` feature rows go into one pass, ``n_max`` tokens are drafted in one."""

    context: ModelContext
    core: LlamaDrafter
    n_batch: int
    n_max: int

    @classmethod
    def opened(
        cls,
        stack: ExitStack,
        model: Model,
        reader: Reader,
        drafting: Drafting,
        settings: Settings,
        activations: Activations | None = None,
    ) -> Self:
        """A context that ``stack`` closes, and that ``activations`` sees every pass of."""
        sizes = draft_sizes(drafting, settings, reader.context.n_ctx)
        context = opened(stack, ModelContext(model, sizes, reader.context, activations))
        core = new_drafter(context, drafting, sizes.n_ctx)
        return cls(context, core, sizes.n_ubatch, settings.n_max(drafting))

    def draft(self, tokens: Sequence[int], features: NDArray[np.float32], first: int = 1) -> Counts:
        """Rounds along ``tokens``, of which the one at ``first`` is the first anchor."""
        _forget(self.context)
        place, injected, drafts, drafted, accepted = first, 0, 0, 0, 0
        while place < len(tokens) - 1:
            self._inject(features, injected, place)
            injected = place
            proposed = self.core.draft(tokens[place], place, self.n_max)
            right = _common(proposed, tokens[place + 1 :])
            drafts, drafted, accepted = drafts + 1, drafted + len(proposed), accepted + right
            place += right + 1
        return Counts(1, len(tokens), drafts, drafted, accepted)

    def _inject(self, features: NDArray[np.float32], first: int, end: int) -> None:
        for start in range(first, end, self.n_batch):
            self.core.inject(features[start : min(start + self.n_batch, end)], start)


def _forget(context: ModelContext) -> None:
    import llama_cpp

    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context.address), True)


def _common(proposed: Sequence[int], text: Sequence[int]) -> int:
    """How many tokens both begin with."""
    count = 0
    for ours, theirs in zip(proposed, text, strict=False):
        if ours != theirs:
            break
        count += 1
    return count
