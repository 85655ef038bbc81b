"""Re-keying as one call: a drafter's GGUF in, one that llama.cpp loads out, its tensor data untouched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_gguf.atomic import check_out
from dflash_gguf.convert.target import load_target
from dflash_gguf.facts import drafter_kind
from dflash_gguf.gguf_header import read_header
from dflash_gguf.rekeying.answers import NOTHING, Answers, check_answers, check_kind
from dflash_gguf.rekeying.plan import RekeyPlan, plan_rekey
from dflash_gguf.rekeying.tensors import moved_tensors
from dflash_gguf.rekeying.write import write_rekeyed

if TYPE_CHECKING:
    import os
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """What `rekey` wrote, and the plan that it followed."""

    path: Path
    n_bytes: int
    plan: RekeyPlan


def planned(
    old: str | os.PathLike[str], target: str | os.PathLike[str] | None = None, answers: Answers = NOTHING
) -> RekeyPlan:
    """Decide the new file and write nothing; raises what `plan_rekey`, `load_target` and the checks of answers do."""
    check_answers(answers)
    header = read_header(old)
    check_kind(header.name, drafter_kind(tensor.name for tensor in moved_tensors(header)), answers)
    return plan_rekey(header, None if target is None else load_target(target), answers)


def rekey(
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    answers: Answers = NOTHING,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Rekeyed:
    """Write ``new``; a file that is right as it is becomes a copy of itself.

    ``target`` is the GGUF or the Hugging Face folder of the drafter's target. ``progress`` is called with bytes
    written and bytes in all. Raises what `planned` raises, and `OutputError`.
    """
    check_answers(answers)
    source, out = Path(old), Path(new).absolute()
    inputs = (source,) if target is None else (source, Path(target))
    check_out(out, inputs, force=force)
    decided = planned(source, target, answers)
    n_bytes = write_rekeyed(decided, source, out, force=force, progress=progress)
    return Rekeyed(out, n_bytes, decided)
