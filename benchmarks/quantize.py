"""Our quantizing conversion beside llama-quantize, on random weights in the shape of a 27B target's DFlash 2 drafter.

    python benchmarks/quantize.py LLAMA_QUANTIZE FOLDER [--types T ...] [--layers N] [--upstream LLAMA_CPP PYTHON]

LLAMA_QUANTIZE is built from the llama.cpp of the installed llama-cpp-python, FOLDER a place for 13 GB that are deleted
at the end: on tmpfs (/dev/shm), so that no disk is measured. For each type, by turns, on as many threads as there are
cores: ours from safetensors to that type, llama-quantize from the BF16 GGUF to it, and the tensors of both compared.
With --upstream, llama.cpp's two steps too: its converter to BF16 (see convert.py for LLAMA_CPP and PYTHON), then
llama-quantize, to Q4_K_M. Times are of whole processes, imports included; our fsync, which llama.cpp's programs do not
do, is shown by itself. --layers makes all of it smaller.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import convert

TYPES = ("Q4_K_M", "Q4_0", "Q8_0", "Q6_K", "Q5_K_M", "IQ4_XS")
TWO_STEPS = "Q4_K_M"
OURS = convert.OURS.replace('"BF16", out)', "quant, out)").replace("target, out =", "target, out, quant =")


@dataclass(frozen=True, slots=True)
class Folder:
    """What all runs share."""

    checkpoint: Path
    target: Path
    brain: Path
    out: Path
    theirs: Path


def main() -> None:
    """Make the inputs, take turns, compare the outputs, clean up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_quantize", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--types", nargs="+", default=TYPES)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--upstream", nargs=2, type=Path, metavar=("LLAMA_CPP", "PYTHON"))
    arguments = parser.parse_args()
    scratch = arguments.folder / "dflash-gguf-benchmark"
    scratch.mkdir()
    try:
        sys.path.insert(0, str(convert.TESTS))
        whole = convert.sizes()
        convert.sizes = lambda: replace(whole, layers=arguments.layers)
        checkpoint, target = convert.write_inputs(scratch, 962)
        folder = Folder(checkpoint, target, *(scratch / f"{name}.gguf" for name in ("brain", "ours", "theirs")))
        size = (checkpoint / "model.safetensors").stat().st_size
        print(f"{size / 1e9:.2f} GB of BF16, {os.cpu_count()} threads", flush=True)
        if arguments.upstream:
            two_steps(folder, arguments)
        convert.run(ours(folder, "BF16", folder.brain))
        print(f"{'':8}{'llama-quantize':>15}{'ours':>8}{'ratio':>8}{'cores':>8}{'ours':>8}{'fsync':>8}  tensors")
        for name in arguments.types:
            print(row(folder, name, arguments), flush=True)
    finally:
        shutil.rmtree(scratch)


def ours(folder: Folder, quant: str, out: Path) -> list[str | Path]:
    words = [convert.PRE_TOKENIZER, folder.checkpoint, folder.target, out, quant]
    return [sys.executable, "-c", OURS, *words]


def row(folder: Folder, name: str, arguments: argparse.Namespace) -> str:
    """Medians for one type: seconds of both, of all cores, of our fsync, and whether the tensors agree."""
    theirs, own = [], []
    for _ in range(arguments.rounds):
        for out in (folder.theirs, folder.out):
            out.unlink(missing_ok=True)
        theirs.append(llama_quantize(folder, name, arguments.llama_quantize))
        own.append(convert.run(ours(folder, name, folder.out)))
    seconds, cores = (statistics.median(run[i] for run in theirs) for i in (0, 1))
    mine, my_cores, fsync = (
        statistics.median(getattr(run, key) for run in own) for key in ("seconds", "cores", "fsync")
    )
    times = f"{seconds:15.2f}{mine:8.2f}{seconds / mine:8.1f}{cores:8.1f}{my_cores:8.1f}{fsync:8.2f}"
    return f"{name:8}{times}  {convert.compare(folder.theirs, folder.out)}"


def llama_quantize(folder: Folder, name: str, program: Path) -> tuple[float, float]:
    """Seconds, and seconds of all cores."""
    words = [program, folder.brain, folder.theirs, name, str(os.cpu_count())]
    started, before = time.monotonic(), os.times()
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds, after = time.monotonic() - started, os.times()
    cores = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cores


def two_steps(folder: Folder, arguments: argparse.Namespace) -> None:
    """From safetensors to Q4_K_M: llama.cpp's converter and llama-quantize, and ours."""
    root, python = arguments.upstream
    words = [python, "-c", convert.UPSTREAM, str(root.resolve()), convert.PRE_TOKENIZER, folder.checkpoint]
    words += ["--target-model-dir", folder.target, "--outtype", "bf16", "--outfile", folder.brain]
    one = convert.run(words).seconds
    two = llama_quantize(folder, TWO_STEPS, arguments.llama_quantize)[0]
    own = convert.run(ours(folder, TWO_STEPS, folder.out))
    print(f"safetensors to {TWO_STEPS}: llama.cpp {one:.2f} + {two:.2f} = {one + two:.2f} s", end=", ")
    print(f"ours {own.seconds:.2f} s and {own.fsync:.2f} s of fsync: {(one + two) / own.seconds:.1f} times as fast")
    print(f"tensors: {convert.compare(folder.theirs, folder.out)}", flush=True)
    for path in (folder.brain, folder.theirs, folder.out):
        path.unlink()


if __name__ == "__main__":
    main()
