"""One drafter in several types on the same prompts: bytes, acceptance, speed.

Comes in: a checkpoint or a GGUF, a target, types, prompts. Goes out: one frozen record a type. Each file is made, run
and removed before the next. Always as many tokens are drafted as allowed, so that what is accepted does not depend
on time.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_gguf.atomic import check_out
from dflash_gguf.bench.measure import WARM_UP, conversation, fits, measured
from dflash_gguf.bench.summary import ALL
from dflash_gguf.quantize.mixes import MIXES
from dflash_gguf.quantize.quants import resolve_quant
from dflash_gguf.runner.bounds import FIXED
from dflash_gguf.runner.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from dflash_gguf.bench.measure import Measured, Plan
    from dflash_gguf.bench.prompts import BenchPrompt
    from dflash_gguf.quantize.recipe import QuantizeOptions


@dataclass(frozen=True, slots=True)
class Source:
    """What every file is made of: a checkpoint's folder or a GGUF; ``imatrix`` weighs the quantized ones."""

    path: Path
    target: Path
    imatrix: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All that is read."""
        return (self.path, self.target, *([] if self.imatrix is None else [self.imatrix]))


@dataclass(frozen=True, slots=True)
class KindOfType:
    """``acceptance_length`` is 1 + accepted / verification passes over all prompts of a kind."""

    kind: str
    acceptance_length: float
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class TypeResult:
    """``n_bytes`` are the file's; ``kinds`` end with the one of all. ``fallbacks``: tensors that have another type."""

    name: str
    n_bytes: int
    bits_per_weight: float
    fallbacks: int
    kinds: tuple[KindOfType, ...]

    @property
    def all(self) -> KindOfType:
        """Over all prompts."""
        return self.kinds[-1]


def run_types(
    source: Source,
    names: Sequence[str],
    prompts: Sequence[BenchPrompt],
    plan: Plan,
    session: Mapping[str, Any],
    folder: Path | None = None,
    tell: Callable[[str], None] = lambda _text: None,
    *,
    force: bool = False,
) -> Generator[TypeResult]:
    """The types one after another; ``folder`` keeps their files, with ``force`` in the place of others.

    Every type is decided before the first is measured. Raises what `convert`, `quantize` and `Session` raise; whatever
    was measured before was handed out by then.
    """
    with tempfile.TemporaryDirectory(prefix="dflash-gguf-") as scratch:
        paths = {name: (folder or Path(scratch)) / f"{source.target.stem}-dflash-{name}.gguf" for name in names}
        for name, path in paths.items():
            check_out(path.absolute(), source.files, force=force)
            _planned(source, name)
        for name, path in paths.items():
            tell(f"{name}: quantizing")
            made = _made(source, name, path, force=force)
            tell(f"{name}: {made.n_bytes / 1e6:.1f} MB, drafting")
            kinds = tuple(_measured(source.target, path, prompts, plan, session))
            yield TypeResult(name, made.n_bytes, made.bits_per_weight, len(made.fallbacks), kinds)
            if folder is None:
                path.unlink()


def _planned(source: Source, name: str) -> None:
    """Raises what making this type would raise, as far as headers say it."""
    from dflash_gguf.convert.api import plan
    from dflash_gguf.gguf_header import read_header
    from dflash_gguf.quantize.api import planned

    quant, options = _options(source, name)
    if source.path.is_dir():
        plan(source.path, source.target, quant, **options)
        return
    read_header(source.target)
    planned(source.path, quant, **options)


def _made(source: Source, name: str, path: Path, *, force: bool) -> Any:
    from dflash_gguf.convert.api import convert
    from dflash_gguf.quantize.api import quantize

    quant, options = _options(source, name)
    if source.path.is_dir():
        return convert(source.path, source.target, quant, path, force=force, **options)
    return quantize(source.path, path, quant, force=force, **options)


def _options(source: Source, name: str) -> tuple[str | None, QuantizeOptions]:
    """The name of a type, or None and a mix; float types take no matrix."""
    if name.lower() in MIXES:
        return None, {"mix": name, "imatrix": source.imatrix}
    return name, {"imatrix": source.imatrix if resolve_quant(name).mixed else None}


def _measured(
    target: Path, draft: Path, prompts: Sequence[BenchPrompt], plan: Plan, options: Mapping[str, Any]
) -> Iterator[KindOfType]:
    found: dict[str, list[Measured]] = defaultdict(list)
    with Session(target, draft, **{"depth": FIXED, **options}) as session:
        fits(session, prompts, raw=plan.raw)
        ids = [_ids(session, prompt, raw=plan.raw) for prompt in prompts]
        measured(session, ids[0], min(WARM_UP, plan.n_predict), plan.of_run(0))
        for run in range(plan.runs):
            for prompt, tokens in zip(prompts, ids, strict=True):
                found[prompt.kind].append(measured(session, tokens, plan.n_predict, plan.of_run(run)))
    for kind, rows in found.items():
        yield _kind(kind, rows)
    yield _kind(ALL, [row for rows in found.values() for row in rows])


def _ids(session: Session, prompt: BenchPrompt, *, raw: bool) -> list[int]:
    return session.tokenize(prompt.turns[0], raw=True) if raw else session.tokenize(conversation(prompt, ()))


def _kind(kind: str, rows: Sequence[Measured]) -> KindOfType:
    stats = [row.stats for row in rows]
    accepted, verified = sum(s.draft_n_accepted for s in stats), sum(s.verify_calls for s in stats)
    tokens, ms = sum(max(0, s.predicted_n - 1) for s in stats), sum(s.predicted_ms for s in stats)
    return KindOfType(kind, 1 + accepted / max(1, verified), tokens / ms * 1e3 if ms else 0.0)
