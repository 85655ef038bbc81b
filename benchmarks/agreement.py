"""What each draft rule is worth: mean acceptance length at full depth on the demonstration pair, by kind of prompt.

    python benchmarks/agreement.py [--seeds 4] [--n-predict 96] [--threads N]

The target is the pair's own Q4_1 file, whose logits do not depend on the width of a pass on a CPU with flash attention
on: all rules see the same texts, which is checked. A row is a session of its own for each rule, so that `auto` starts
anew. No times are measured: other work on the machine does no harm.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.api import convert
from dflash_gguf.demo.pair import checkpoint_folder, target_file
from dflash_gguf.runner.bounds import DRAFT_RULES
from dflash_gguf.runner.comparison import answer
from dflash_gguf.runner.prompts import PROMPTS
from dflash_gguf.runner.session import Session
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from dflash_gguf.runner.sampling import SamplingOptions

SETTINGS: Final[dict[str, SamplingOptions]] = {
    "0.7": {"temperature": 0.7},
    "1": {"temperature": 1.0},
    "1, unfiltered": {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
}
KINDS: Final = tuple(dict.fromkeys(prompt.kind for prompt in PROMPTS))
NEAR: Final = 0.98


@dataclass(slots=True)
class Count:
    """Passes and accepted tokens of one rule on one row, and the texts that they make."""

    passes: int = 0
    accepted: int = 0
    texts: tuple[tuple[int, ...], ...] = ()

    @property
    def length(self) -> float:
        return 1 + self.accepted / self.passes


def measure(files: tuple[Path, Path], rule: str, kind: str, sampling: SamplingOptions, arguments) -> Count:  # noqa: ANN001
    """All prompts of a kind with all seeds, in one session."""
    count = Count()
    options = {"depth": "fixed", "n_ctx": 1024, "n_ubatch": 48, "n_threads": arguments.threads, "flash_attention": "on"}
    with Session(*files, draft_rule=rule, **options) as session:
        for seed in range(arguments.seeds):
            for prompt in (prompt for prompt in PROMPTS if prompt.kind == kind):
                ids = session.tokenize(prompt.text)
                found = answer(session, ids, arguments.n_predict, {**sampling, "seed": seed})
                count.passes += found.stats.verify_calls
                count.accepted += found.stats.draft_n_accepted
                count.texts += (found.ids,)
    return count


def row(name: str, kind: str, counts: dict[str, Count]) -> str:
    best = max(counts[rule].length for rule in DRAFT_RULES if rule != "auto")
    share = counts["auto"].length / best
    lengths = " | ".join(f"{counts[rule].length:.2f}" for rule in DRAFT_RULES)
    near = "yes" if share >= NEAR else "no"
    return f"| {name} | {kind} | {counts['argmax'].passes} | {lengths} | {share:.3f} | {near} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--n-predict", type=int, default=96)
    parser.add_argument("--threads", type=int, default=physical_cores())
    arguments = parser.parse_args()
    print(f"| temperature | prompts | passes | {' | '.join(DRAFT_RULES)} | auto / best | within 2 % |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        draft = convert(checkpoint_folder(), target_file(), "Q4_K_M", Path(folder) / "draft.gguf").path
        for name, sampling in SETTINGS.items():
            for kind in KINDS:
                counts = {
                    rule: measure((target_file(), draft), rule, kind, sampling, arguments) for rule in DRAFT_RULES
                }
                print(row(name, kind, counts), flush=True)
                if len({count.texts for count in counts.values()}) != 1:
                    raise SystemExit("the texts depend on the rule")


if __name__ == "__main__":
    main()
