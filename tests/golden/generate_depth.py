"""Write ``tests/golden/depth_traces.json``: what the demonstration pair's drafter proposes along the target's own text.

    python tests/golden/generate_depth.py [--n-predict 192]

The target alone writes a text, in BF16 and one token a pass; at every position of it the drafter proposes a block at
every width. Recorded, by position and width: how many leading proposals are what the text goes on with, and the
softmax of each proposal's score among the candidates of its row; and by position by how many logits the best token was
ahead where the newest one was chosen. The file is of the first drafter that the package carried, until December 2026:
the figures of docs/depth.md are to be written anew with it. At temperature 1 the text is sampled (top-k 40,
top-p 0.95, a seed a prompt). ``tune`` prompts are those on which the controller's constants were chosen; ``test``
prompts are the built-in ones, which were kept aside. Needs the package's extra ``demo`` and two or three minutes.

A text is packed as base64 of uint8 [positions, n_max * (n_max + 3) / 2 + 1]: for widths 1 .. n_max the count, then the
width's confidences in 255ths; then the lead in sixteenths of a logit, 255 at the most.
"""

from __future__ import annotations

import argparse
import base64
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dflash_gguf import _core
from dflash_gguf.convert.api import convert
from dflash_gguf.demo.pair import checkpoint_folder, target_file, widen
from dflash_gguf.gguf_header import read_header
from dflash_gguf.runner import chat
from dflash_gguf.runner.assembly import draft_sizes, opened, target_sizes
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.models import Model, ModelContext
from dflash_gguf.runner.prompts import PROMPTS, Prompt
from dflash_gguf.runner.settings import Settings
from dflash_gguf.runner.vocabulary import Vocabulary
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from numpy.typing import NDArray

OUT = Path(__file__).parent / "depth_traces.json"

TUNE = (
    Prompt("structured", "Count down from 90 to 50."),
    Prompt("structured", "Write the letters of the alphabet, one per line."),
    Prompt("structured", "List the even numbers from 2 to 60."),
    Prompt("structured", "List the squares of the numbers from 1 to 20."),
    Prompt("code", "Write an HTML table of 4 planets and their moons."),
    Prompt("code", "Write a Python function that reverses a string."),
    Prompt("code", "Write a JavaScript function that sums an array."),
    Prompt("prose", "Tell a short story about a lost key."),
    Prompt("prose", "Explain why the sea is salty."),
)


class Pair:
    """Target and drafter side by side, one sequence."""

    def __init__(self, stack: ExitStack, folder: Path, threads: int) -> None:
        import llama_cpp

        self.lib = llama_cpp
        target, draft = folder / "target.gguf", folder / "draft.gguf"
        widen(target_file(), target, physical_cores())
        convert(checkpoint_folder(), target, "Q4_K_M", draft)
        self.header = read_header(target)
        drafting = Drafting.read(self.header, read_header(draft))
        settings = Settings(n_ctx=1024, n_threads=threads, flash_attention="on")
        model = opened(stack, Model(target, settings.placement))
        self.context = opened(stack, ModelContext(model, target_sizes(drafting, settings)))
        draft_model = opened(stack, Model(draft, settings.placement))
        draft_context = opened(
            stack, ModelContext(draft_model, draft_sizes(drafting, settings, self.context.n_ctx), self.context)
        )
        self.n_max = drafting.n_max
        self.vocabulary = Vocabulary(model)
        self.target = _core.LlamaTarget(self.context.address, self.context.n_ctx, drafting.layers, drafting.n_max + 1)
        self.drafter = _core.LlamaDrafter(draft_context.address, _core.Kind.dflash2, anchor_first=False)
        self.draft_address = draft_context.address
        self.n_vocab = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(model.address))

    def forget(self) -> None:
        for address in (self.context.address, self.draft_address):
            self.lib.llama_memory_clear(self.lib.llama_get_memory(address), True)

    def step(self, tokens: list[int], pos: int) -> NDArray[np.float32]:
        """Tokens through both models, 32 at a time; the last one's logits."""
        for first in range(0, len(tokens), 32):
            piece = tokens[first : first + 32]
            self.target.decode(piece, pos + first, 1)
            self.drafter.inject(self.target.features(0, len(piece)), pos + first)
        row = self.lib.llama_get_logits_ith(self.context.address, -1)
        return np.ctypeslib.as_array(row, (self.n_vocab,)).copy()

    def propose(self, last: int, pos: int, n: int) -> tuple[list[int], list[float]]:
        """The best walk through the lattice, and each pick's probability in its row."""
        ids, scores = self.drafter.lattice(last, pos, n)
        tokens, confidences, chosen = [], [], 0
        for i in range(n):
            row = scores[i, chosen].astype(np.float64)
            weights = np.exp(row - row.max())
            chosen = int(row.argmax())
            tokens.append(int(ids[i, chosen]))
            confidences.append(float(weights[chosen] / weights.sum()))
        return tokens, confidences

    def ids(self, text: str) -> list[int]:
        messages = [{"role": "user", "content": text}]
        return chat.tokenize_prompt(self.vocabulary, chat.render(self.header, self.vocabulary, messages))


def sample(logits: NDArray[np.float32], temperature: float, random: np.random.Generator) -> int:
    """Greedy at 0, else from the top 40 and, of those, the top 0.95."""
    if temperature == 0:
        return int(logits.argmax())
    best = np.argsort(-logits)[:40]
    weights = np.exp((logits[best] - logits[best[0]]).astype(np.float64) / temperature)
    weights /= weights.sum()
    kept = int(np.searchsorted(np.cumsum(weights), 0.95)) + 1
    return int(random.choice(best[:kept], p=weights[:kept] / weights[:kept].sum()))


def record(pair: Pair, prompt: Prompt, temperature: float, n_predict: int, seed: int) -> dict[str, Any]:
    """The packed trace of one prompt."""
    random = np.random.default_rng(seed)
    pair.forget()
    prompt_ids = pair.ids(prompt.text)
    logits = pair.step(prompt_ids, 0)
    text, leads, proposals = [sample(logits, temperature, random)], [lead(logits)], []
    pos = len(prompt_ids)
    while len(text) < n_predict + pair.n_max and not pair.vocabulary.is_end(text[-1]):
        proposals.append([pair.propose(text[-1], pos, n) for n in range(1, pair.n_max + 1)])
        logits = pair.step(text[-1:], pos)
        text.append(sample(logits, temperature, random))
        leads.append(lead(logits))
        pos += 1
    rows = [[*packed(text[i + 1 :], drafts), leads[i]] for i, drafts in enumerate(proposals[:n_predict])]
    data = base64.b64encode(np.array(rows, np.uint8).tobytes()).decode()
    return {"kind": prompt.kind, "prompt": prompt.text, "temperature": temperature, "rows": len(rows), "data": data}


def lead(logits: NDArray[np.float32]) -> int:
    second, best = np.partition(logits, -2)[-2:]
    return min(255, round(16 * float(best - second)))


def packed(follows: list[int], drafts: list[tuple[list[int], list[float]]]) -> list[int]:
    values: list[int] = []
    for tokens, confidences in drafts:
        agreed = 0
        while agreed < min(len(tokens), len(follows)) and tokens[agreed] == follows[agreed]:
            agreed += 1
        values += [agreed, *(round(255 * c) for c in confidences)]
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-predict", type=int, default=192)
    parser.add_argument("--threads", type=int, default=physical_cores())
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pair = Pair(stack, Path(folder), arguments.threads)
        traces = []
        for name, prompts in (("tune", TUNE), ("test", PROMPTS)):
            for temperature in (0.0, 1.0):
                for seed, prompt in enumerate(prompts):
                    trace = record(pair, prompt, temperature, arguments.n_predict, seed)
                    traces.append({"set": name, **trace})
                    print(name, temperature, prompt.kind, trace["rows"], flush=True)  # noqa: T201
    lines = ",\n".join(json.dumps(trace) for trace in traces)
    OUT.write_text(f'{{"n_max": {pair.n_max}, "traces": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
