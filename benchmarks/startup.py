"""Seconds for `import dflash_gguf` and `dflash-gguf --help`: medians of ten processes, beside a bare interpreter."""

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import dflash_gguf": ["-c", "import dflash_gguf"],
    "dflash-gguf --help": ["-m", "dflash_gguf", "--help"],
}


def seconds(arguments: list[str]) -> float:
    """Wall time of one process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - started


for name, arguments in COMMANDS.items():
    seconds(arguments)
    print(f"{name:20} {statistics.median(seconds(arguments) for _ in range(10)):.3f} s")
