"""Each quantizing kernel beside ggml's own code: a million blocks a type byte for byte, then speed on one thread.

    python benchmarks/kernels.py [--blocks N] [--types NAME ...] [--seconds S]

Both run in this process, by turns, on the same BF16 values. Nothing is read or written.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from dflash_gguf import _core
from dflash_gguf.ggml_types import BF16, BY_NAME, GGML_TYPES, GGMLType, row_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

PER_ROW = 5120
ROWS = 512
GGML = 0


def main() -> None:
    """Compare, then measure, and print a row a type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1_000_000, help="compared for each type, in each way")
    parser.add_argument("--types", nargs="+", default=[GGML_TYPES[kind].name for kind in _core.kernel_types()])
    parser.add_argument("--seconds", type=float, default=0.3, help="how long each kernel is measured at least")
    arguments = parser.parse_args()
    lanes = _core.kernel_lanes()
    print(f"{'':16}{'blocks':>9}{'bytes':>8}{'ggml ns':>10}", *(f"{n:>4} lanes: ns    x" for n in lanes))
    for name in arguments.types:
        for weighted in (False, True):
            equal = compare(BY_NAME[name], weighted, arguments.blocks)
            times = [measure(BY_NAME[name], weighted, n, arguments.seconds) for n in (GGML, *lanes)]
            label = f"{name}{' weighted' if weighted else ''}"
            ratios = (f"{ns:15.2f}{times[0] / ns:5.1f}" for ns in times[1:])
            print(f"{label:16}{arguments.blocks:>9}{equal:>8}{times[0]:10.2f}", *ratios, flush=True)


def compare(kind: GGMLType, weighted: bool, n_blocks: int) -> str:
    """Whether every number of lanes makes ggml's bytes of ``n_blocks`` blocks."""
    rng, done = np.random.default_rng(kind.id), 0
    while done < n_blocks:
        rows = brain_floats(rng, ROWS * PER_ROW)
        importance = np.square(rng.standard_normal(PER_ROW)).astype(np.float32) if weighted else None
        expected = quantized(rows, kind, GGML, importance)
        for lanes in _core.kernel_lanes():
            if not np.array_equal(quantized(rows, kind, lanes, importance), expected):
                return "differ"
        done += rows.size // kind.block
    return "equal"


def brain_floats(rng: np.random.Generator, n: int) -> NDArray[np.uint16]:
    """Normal values, and in every eighth row heavy tails; each row of its own size."""
    values = rng.standard_normal((n // PER_ROW, PER_ROW), np.float32)
    values[::8] = values[::8] ** 3
    values *= np.exp2(rng.integers(-12, 4, (n // PER_ROW, 1))).astype(np.float32)
    return (values.reshape(-1).view(np.uint32) >> 16).astype(np.uint16)


def quantized(rows: NDArray[np.uint16], kind: GGMLType, lanes: int, importance: Any) -> NDArray[np.uint8]:
    out = np.empty(rows.size // PER_ROW * row_bytes(kind.id, PER_ROW), np.uint8)
    threads = os.cpu_count() or 1
    _core.quantize_rows(rows.view(np.uint8), BF16, out, kind.id, PER_ROW, threads, importance, lanes)
    return out


def measure(kind: GGMLType, weighted: bool, lanes: int, seconds: float) -> float:
    """Nanoseconds a value on one thread, the best of several goes."""
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal(64 * PER_ROW, np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    importance = np.square(rng.standard_normal(PER_ROW)).astype(np.float32) if weighted else None
    out, best, began = np.empty(64 * row_bytes(kind.id, PER_ROW), np.uint8), float("inf"), time.perf_counter()
    while best == float("inf") or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        _core.quantize_rows(rows, BF16, out, kind.id, PER_ROW, 1, importance, lanes)
        best = min(best, time.perf_counter() - start)
    return best / (64 * PER_ROW) * 1e9


if __name__ == "__main__":
    main()
