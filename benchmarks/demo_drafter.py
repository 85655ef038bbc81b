"""A drafter trained by `make demo-drafter` against the one that the package carries: mean acceptance lengths.

    python benchmarks/demo_drafter.py FOLDER [--n-predict 96] [--threads N]

Both draft the same texts, at temperature 0 and full depth, through the session that `run` opens: the answers to the
prompts that training held out, and to the built-in ones. The target is the pair's own Q4_1 file, and the same weights
widened to BF16, which is what `dflash-gguf demo` shows. Ends with 3 when a ratio is below 0.97. No times are measured:
other work on the machine does no harm.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dflash_gguf.convert.api import convert
from dflash_gguf.demo import prompts as learnt
from dflash_gguf.demo.pair import checkpoint_folder, target_file, widen
from dflash_gguf.runner.comparison import BEST, answer
from dflash_gguf.runner.prompts import PROMPTS
from dflash_gguf.runner.session import Session
from dflash_gguf.threads import physical_cores
from dflash_gguf.train.corpus import drawn

ENOUGH: Final = 0.97
TYPE: Final = "BF16"
HELD_OUT: Final = "held out"
BUILT_IN: Final = "built in"


@dataclass(frozen=True, slots=True)
class Count:
    """Passes of the target, and drafted tokens that were accepted."""

    passes: int = 0
    accepted: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passes + other.passes, self.accepted + other.accepted)

    @property
    def length(self) -> float:
        return 1 + self.accepted / self.passes


def counted(target: Path, draft: Path, texts: list[str], arguments) -> Count:  # noqa: ANN001
    """All texts in one session."""
    passes = accepted = 0
    options = {"depth": "fixed", "n_ctx": 1024, "n_threads": arguments.threads, "flash_attention": "on"}
    with Session(target, draft, **options) as session:
        for text in texts:
            found = answer(session, session.tokenize(text), arguments.n_predict, BEST)
            passes += found.stats.verify_calls
            accepted += found.stats.draft_n_accepted
    return Count(passes, accepted)


def prompts() -> dict[str, list[str]]:
    """Name -> texts: the built-in prompts by kind, and those that were held out."""
    everything = learnt.demo_prompts()
    kinds = dict.fromkeys(prompt.kind for prompt in PROMPTS)
    return {
        **{f"{BUILT_IN}, {kind}": [p.text for p in PROMPTS if p.kind == kind] for kind in kinds},
        HELD_OUT: [everything[i] for i in drawn(len(everything), learnt.HELD_OUT, learnt.SEED)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--n-predict", type=int, default=96)
    parser.add_argument("--threads", type=int, default=physical_cores())
    arguments = parser.parse_args()
    print("| target | prompts | n | carried | trained | ratio |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        wide = widen(target_file(), Path(folder) / "target.gguf", arguments.threads)
        sources = {"carried": checkpoint_folder(), "trained": arguments.folder}
        drafts = {
            name: convert(source, target_file(), TYPE, Path(folder) / f"{name}.gguf").path
            for name, source in sources.items()
        }
        ratios = [ratio for each in (target_file(), wide) for ratio in compared(each, drafts, arguments)]
    sys.exit(0 if min(ratios) >= ENOUGH else 3)


def compared(target: Path, drafts: dict[str, Path], arguments) -> list[float]:  # noqa: ANN001
    """Prints a row for each kind of prompts; the ratios of all built-in ones, and of those held out."""
    title = "BF16" if target != target_file() else "Q4_1"
    built_in = {name: Count() for name in drafts}
    ratios = []
    for name, texts in prompts().items():
        found = {each: counted(target, draft, texts, arguments) for each, draft in drafts.items()}
        ratio = show(title, name, len(texts), found)
        if name == HELD_OUT:
            ratios += [show(title, BUILT_IN, len(PROMPTS), built_in), ratio]
        else:
            built_in = {each: built_in[each] + count for each, count in found.items()}
    return ratios


def show(title: str, name: str, n: int, found: dict[str, Count]) -> float:
    carried, trained = found["carried"].length, found["trained"].length
    print(f"| {title} | {name} | {n} | {carried:.3f} | {trained:.3f} | {trained / carried:.3f} |", flush=True)
    return trained / carried


if __name__ == "__main__":
    main()
