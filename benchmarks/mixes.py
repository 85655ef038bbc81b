"""What each assignment of types costs in acceptance: bytes against mean acceptance length on the demonstration pair.

    python benchmarks/mixes.py [--n-predict 192] [--threads N] [--only NAME,...] [--json OUT]

The target is the pair's own Q4_1 file, whose logits do not depend on the width of a pass on a CPU with flash attention
on: its answers at temperature 0 are written once, without a drafter, and each drafter is then driven along them, which
gives the very rounds that it would have written them in (`dflash_gguf.runner.along`). No times are measured.

The drafter's rows of 576 are no multiple of 256: types of such blocks are measured by padding each row with zeros,
quantizing, dequantizing, cropping, and running the result as F32. Bytes are the type's bits for each weight, without
the padding, as they are where rows divide; GB are those of a drafter in the shape of Qwen3.8-27B's. The importance
matrix comes from the target's answers to other prompts.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dflash_gguf.convert.api import convert
from dflash_gguf.demo.pair import checkpoint_folder, target_file
from dflash_gguf.ggml_types import BY_NAME, F32, GGML_TYPES, row_bytes
from dflash_gguf.gguf_header import GGUFHeader, read_header
from dflash_gguf.quantize.imatrix import read_imatrix
from dflash_gguf.quantize.imatrix_make import make_imatrix
from dflash_gguf.quantize.imatrix_rules import NEEDING
from dflash_gguf.quantize.kernels import quantize_rows
from dflash_gguf.quantize.mixes import MIXES
from dflash_gguf.quantize.quants import QUANTS, resolve_quant
from dflash_gguf.quantize.recipe import Recipe, tensor_type
from dflash_gguf.quantize.selection import ModelSizes, StoredTensor, quantize_order, select
from dflash_gguf.runner.along import Along, Reader, Text
from dflash_gguf.runner.assembly import opened
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.models import Model
from dflash_gguf.runner.prompts import PROMPTS
from dflash_gguf.runner.session import Session
from dflash_gguf.runner.settings import Settings
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from collections.abc import Iterator

N_CTX: Final = 1024
BLOCK: Final = 256
PARITY: Final = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_K_S", "Q4_0", "IQ4_XS", "Q3_K_M", "Q2_K")
UNIFORM: Final = ("Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0", "IQ4_NL", "IQ4_XS", "IQ3_S", "Q3_K", "Q2_K")
GROUPS: Final = {
    "attn_q, attn_k": "attn_(q|k)",
    "attn_v, attn_output": "attn_(v|output)",
    "ffn_gate, ffn_up": "ffn_(gate|up)",
    "ffn_down": "ffn_down",
    "convolution projections": "conv_proj",
    "fc": "^fc",
    "selector_hidden": "selector_hidden",
    "selector tables": "selector_(pre|suc)",
}
COARSE: Final = "Q2_K"
"""The type that one group at a time gets, all others staying as they are: which group can bear it."""
CALIBRATION: Final = (
    "Count from 20 to 60 in steps of two.", "List the days of the week, one a line.",
    "Write a table of the squares of 1 to 15.", "Write the alphabet, a letter a line.",
    "List ten animals with a number before each.", "Write a CSV file with five people, their ages and cities.",
    "Write a Python function that reverses a list.", "Write an HTML page with a form of three fields.",
    "Write a C program that prints the first ten primes.", "Write a JSON object that describes a car.",
    "Write a SQL statement that creates a table of books.", "Write a Python class for a bank account.",
    "Describe a walk in the rain.", "Explain why the sky is blue.", "Write a letter to a friend who moved away.",
    "Tell a short story about a lighthouse.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Assignment:
    """``types``: a ggml type a tensor, by name; None: as they are. ``weighed``: with the importance matrix."""

    name: str
    types: dict[str, int]
    weighed: bool = False


@dataclass(slots=True)
class Score:
    """Of one assignment; ``lengths`` by kind of prompt."""

    name: str
    weighed: bool
    n_bytes: float
    bits: float
    large: float
    lengths: dict[str, float] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-predict", type=int, default=192)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="keeps answers and importance matrix between runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        source = Path(scratch) / "F32.gguf"
        convert(checkpoint_folder(), target_file(), "F32", source, n_threads=arguments.threads)
        answers = written(folder, arguments)
        matrix = calibrated(folder, source, arguments)
        scores = list(measured(source, matrix, answers, Path(scratch), arguments))
    if arguments.json:
        rows = [
            {"name": s.name, "imatrix": s.weighed, "bytes": s.n_bytes, "bits": s.bits, "large": s.large, **s.lengths}
            for s in scores
        ]
        arguments.json.write_text(json.dumps(rows, indent=1))


def written(folder: Path, arguments: argparse.Namespace) -> list[tuple[str, int, list[int]]]:
    """(kind, tokens of the prompt, prompt and answer) of each built-in prompt."""
    kept = folder / f"answers-{arguments.n_predict}.json"
    if not kept.exists():
        texts = [(prompt.kind, prompt.text) for prompt in PROMPTS]
        kept.write_text(json.dumps([(kind, *answered(text, arguments)) for kind, text in texts]))
    return [tuple(row) for row in json.loads(kept.read_text())]


def answered(text: str, arguments: argparse.Namespace) -> tuple[int, list[int]]:
    global SESSION  # noqa: PLW0603  opened once, closed with the process
    if SESSION is None:
        SESSION = Session(target_file(), n_ctx=N_CTX, n_threads=arguments.threads, flash_attention="on", n_ubatch=48)
    ids = SESSION.tokenize(text)
    answer = [
        token
        for event in SESSION.generate(ids, max_tokens=arguments.n_predict, temperature=0)
        for token in getattr(event, "tokens", ())
    ]
    return len(ids), ids + answer


SESSION: Session | None = None


def calibrated(folder: Path, source: Path, arguments: argparse.Namespace) -> Path:
    """An importance matrix of the target's answers to prompts that are not measured."""
    matrix = folder / "imatrix.gguf"
    if not matrix.exists():
        parts = []
        for prompt in CALIBRATION:
            _, ids = answered(prompt, arguments)
            parts.append("".join(SESSION.token_text(token) for token in ids))
        text = Text("\n".join(parts), chunk=512, parse_special=True)
        made = make_imatrix(target_file(), source, text, matrix, dataset="answers", n_threads=arguments.threads)
        print(f"importance matrix: {made.drafted.n_drafts} drafts along {made.drafted.n_tokens} tokens")
    return matrix


def large() -> list[StoredTensor]:
    """The matrices of a drafter in the shape of Qwen3.8-27B's, as benchmarks/convert.py has it; F32."""
    hidden, query, key, ffn, vocab, rank = 5120, 4096, 1024, 17408, 248320, 256
    layer = {
        "attn_q": (hidden, query), "attn_k": (hidden, key), "attn_v": (hidden, key), "attn_output": (query, hidden),
        "ffn_gate": (hidden, ffn), "ffn_up": (hidden, ffn), "ffn_down": (ffn, hidden),
        "attn_conv_proj": (hidden, 4 * hidden // 16), "ffn_conv_proj": (hidden, 4 * hidden // 16),
    }  # fmt: skip
    whole = {
        "fc": (5 * hidden, hidden), "selector_hidden": (hidden, rank), "selector_predecessor": (rank, vocab),
        "selector_successor": (rank, vocab),
    }  # fmt: skip
    names = whole | {f"blk.{i}.{name}": shape for i in range(5) for name, shape in layer.items()}
    return [StoredTensor(f"{name}.weight", shape, F32) for name, shape in names.items()]


def assignments(tensors: list[StoredTensor], sizes: ModelSizes) -> Iterator[Assignment]:
    """Everything that is measured."""
    yield Assignment("F32", {})
    matrices = [tensor.name for tensor in tensors if len(tensor.shape) > 1 and tensor.name.endswith(".weight")]
    for weighed in (False, True):
        for name in PARITY:
            yield Assignment(f"{name} (parity)", parity(tensors, sizes, name, weighed=weighed), weighed)
        for name in UNIFORM:
            yield Assignment(f"{name} everywhere", dict.fromkeys(matrices, BY_NAME[name].id), weighed)
    for group, pattern in GROUPS.items():
        types = {name: BY_NAME[COARSE].id for name in matrices if re.search(pattern, name)}
        yield Assignment(f"{COARSE}: {group} alone", types)
    for mix in MIXES.values():
        base = resolve_quant(mix.quant).type
        pairs = [(pattern, tensor_type(kind)) for pattern, kind in mix.tensor_types]
        types = {n: next((kind for pattern, kind in pairs if re.search(pattern, n)), base) for n in matrices}
        for weighed in (False, True):
            yield Assignment(f"mix {mix.name}", types, weighed)


def parity(tensors: list[StoredTensor], sizes: ModelSizes, name: str, *, weighed: bool) -> dict[str, int]:
    """llama-quantize's types as they are where rows divide: the ones that it wants."""
    stored = sorted(tensors, key=lambda tensor: quantize_order(tensor.name))
    chosen = select(Recipe(name, QUANTS[name]), sizes, stored, imatrix=weighed)
    return {t.name: c.wanted for t, c in zip(stored, chosen, strict=True) if c.wanted != t.type}


def measured(
    source: Path, matrix: Path, answers: list[tuple[str, int, list[int]]], scratch: Path, arguments: argparse.Namespace
) -> Iterator[Score]:
    header = read_header(source)
    weights = {name: entry.weights for name, entry in read_imatrix(matrix).entries.items()}
    drafting = Drafting.read(read_header(target_file()), header)
    settings = Settings(n_ctx=N_CTX, n_threads=arguments.threads, depth="fixed", flash_attention="on", n_ubatch=48)
    only = [name for name in arguments.only.split(",") if name]
    with ExitStack() as stack:
        reader = Reader.opened(stack, opened(stack, Model(target_file())), drafting, settings)
        features = [reader.features(tokens) for _, _, tokens in answers]
        tensors = [StoredTensor(info.name, info.shape, info.type) for info in header.tensors.values()]
        pairs = zip(
            assignments(tensors, ModelSizes(576, 1, 2, 9, 3, 64)),
            assignments(large(), ModelSizes(5120, 1, 5, 32, 8, 128)),
            strict=True,
        )
        for assignment, same in pairs:
            if only and not any(name in assignment.name for name in only):
                continue
            path = scratch / "emulated.gguf"
            score = emulate(source, header, assignment, weights, path)
            if score is None:
                continue
            with ExitStack() as inner:
                along = Along.opened(inner, opened(inner, Model(path)), reader, drafting, settings)
                counts: dict[str, list[int]] = {}
                for (kind, n_prompt, tokens), rows in zip(answers, features, strict=True):
                    found = along.draft(tokens, rows, n_prompt)
                    for name in (kind, "all"):
                        sums = counts.setdefault(name, [0, 0])
                        sums[0] += found.n_drafts
                        sums[1] += found.draft_n_accepted
            score.large = sum(
                np.prod(t.shape) / GGML_TYPES[kind].block * GGML_TYPES[kind].nbytes
                for t in large()
                for kind in (same.types.get(t.name, F32),)
            )
            score.lengths = {name: round(1 + kept / drafts, 4) for name, (drafts, kept) in counts.items()}
            label = f"{score.name}{' imatrix' if score.weighed else ''}"
            sizes = f"{score.n_bytes / 1e6:7.2f} MB {score.bits:6.2f} bits {score.large / 1e9:6.3f} GB"
            print(f"{label:40} {sizes}  {score.lengths}", flush=True)
            yield score


def emulate(
    source: Path, header: GGUFHeader, assignment: Assignment, weights: dict[str, np.ndarray], out: Path
) -> Score | None:
    """``out``: the source with every assigned tensor quantized and dequantized; None where a type needs weights."""
    data = bytearray(source.read_bytes())
    n_bytes, n_weights = 0.0, 0
    for info in header.tensors.values():
        kind = assignment.types.get(info.name, info.type)
        n = int(np.prod(info.shape))
        n_bytes, n_weights = n_bytes + n * GGML_TYPES[kind].nbytes / GGML_TYPES[kind].block, n_weights + n
        if kind == info.type:
            continue
        start = header.data_offset + info.offset
        rows = np.frombuffer(data, "<f4", n, start).reshape(-1, info.shape[0])
        importance = weights.get(info.name) if assignment.weighed else None
        if importance is None and kind in NEEDING:
            return None
        data[start : start + info.nbytes] = rounded(rows, kind, importance).tobytes()
    out.write_bytes(data)
    return Score(assignment.name, assignment.weighed, n_bytes, 8 * n_bytes / n_weights, 0.0)


def rounded(rows: np.ndarray, kind: int, importance: np.ndarray | None) -> np.ndarray:
    """float32 [n_rows, n_per_row] through ``kind`` and back, rows padded with zeros to whole blocks."""
    n_rows, n_per_row = rows.shape
    block = GGML_TYPES[kind].block
    width = -(-n_per_row // block) * block
    padded = np.zeros((n_rows, width), np.float32)
    padded[:, :n_per_row] = rows
    if importance is not None:
        importance = np.concatenate([importance, np.zeros(width - n_per_row, np.float32)])
    packed = np.empty(n_rows * row_bytes(kind, width), np.uint8)
    options: dict[str, Any] = {"n_per_row": width, "n_threads": 2}
    quantize_rows("rows", padded.view(np.uint8).reshape(-1), F32, packed, kind, importance=importance, **options)
    back = np.empty(padded.nbytes, np.uint8)
    quantize_rows("rows", packed, kind, back, F32, **options)
    return back.view("<f4").reshape(n_rows, width)[:, :n_per_row]


if __name__ == "__main__":
    main()
