"""A drafter trained by `make demo-drafter` against the one that the package carries: mean acceptance lengths.

    python benchmarks/demo_drafter.py FOLDER [--held-out 70] [--n-predict 176] [--threads N]

Both draft the same texts, at temperature 0 and full depth, through the session that `run` opens: the answers to the
prompts that training held out, and to the built-in ones. The target is the pair's own Q4_1 file, and the same weights
widened to BF16, which is what `dflash-gguf demo` shows. Ends with 3 when a ratio is below 0.97. No times are measured:
other work on the machine does no harm.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from dflash_gguf.convert.api import convert
from dflash_gguf.demo.pair import checkpoint_folder, target_file, widen
from dflash_gguf.demo.prompts import demo_prompts
from dflash_gguf.runner.comparison import BEST, answer
from dflash_gguf.runner.prompts import PROMPTS
from dflash_gguf.runner.session import Session
from dflash_gguf.threads import physical_cores
from dflash_gguf.train.corpus import drawn

SEED: Final = 13
ENOUGH: Final = 0.97
TYPE: Final = "BF16"


def length(target: Path, draft: Path, texts: list[str], arguments) -> tuple[float, int]:  # noqa: ANN001
    """Mean acceptance length, and the passes that it is a mean of."""
    passes = accepted = 0
    options = {"depth": "fixed", "n_ctx": 1024, "n_threads": arguments.threads, "flash_attention": "on"}
    with Session(target, draft, **options) as session:
        for text in texts:
            found = answer(session, session.tokenize(text), arguments.n_predict, BEST)
            passes += found.stats.verify_calls
            accepted += found.stats.draft_n_accepted
    return 1 + accepted / passes, passes


def prompts(n_held_out: int) -> dict[str, list[str]]:
    """Name -> texts: held-out prompts, and the built-in ones by kind and together."""
    everything = demo_prompts()
    kinds = dict.fromkeys(prompt.kind for prompt in PROMPTS)
    return {
        "held out": [everything[i] for i in drawn(len(everything), n_held_out, SEED)],
        **{f"built in, {kind}": [p.text for p in PROMPTS if p.kind == kind] for kind in kinds},
        "built in": [prompt.text for prompt in PROMPTS],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", type=int, default=70)
    parser.add_argument("--n-predict", type=int, default=176)
    parser.add_argument("--threads", type=int, default=physical_cores())
    arguments = parser.parse_args()
    enough = True
    print("| target | prompts | n | carried | trained | ratio |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        wide = widen(target_file(), Path(folder) / "target.gguf", arguments.threads)
        sources = {"carried": checkpoint_folder(), "trained": arguments.folder}
        drafts = {
            name: convert(source, target_file(), TYPE, Path(folder) / f"{name}.gguf").path
            for name, source in sources.items()
        }
        for title, target in (("Q4_1", target_file()), ("BF16", wide)):
            for name, texts in prompts(arguments.held_out).items():
                found = {each: length(target, draft, texts, arguments) for each, draft in drafts.items()}
                carried, trained = found["carried"][0], found["trained"][0]
                ratio = trained / carried
                print(f"| {title} | {name} | {len(texts)} | {carried:.3f} | {trained:.3f} | {ratio:.3f} |", flush=True)
                enough &= ratio >= ENOUGH or name not in {"held out", "built in"}
    sys.exit(0 if enough else 3)


if __name__ == "__main__":
    main()
