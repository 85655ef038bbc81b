"""Write ``tests/golden/quants.json``: what llama-quantize makes of the drafters of ``quant_cases.py``.

    python tests/golden/generate_quants.py LLAMA_QUANTIZE

LLAMA_QUANTIZE is that program of llama.cpp 0.5.0, built from the source distribution of llama-cpp-python 0.3.36.
Digests are of the machine that this runs on: others may round otherwise. What it refuses is recorded with its words.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OUT = HERE / "quants.json"
sys.path.insert(0, str(HERE.parent))
REFUSAL = re.compile(r"failed to quantize: (.*)")


def main() -> None:
    """Ask for every type of every case, with a matrix and without, and for each set of options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    program = parser.parse_args().program
    from quant_cases import CASES, NAMES, OPTIONS, sums_of, write_matrix, write_source

    record: dict[str, Any] = {"cases": {}, "options": {}}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for name, case in CASES.items():
            source = write_source(scratch / f"{name}.gguf", case)
            matrix = write_matrix(scratch / f"{name} imatrix.gguf", sums_of(case))
            rows = record["cases"][name] = {"types": {}, "sha256": {}}
            for given in (False, True):
                for quant in NAMES:
                    options = ("--imatrix", str(matrix)) if given else ()
                    found = run(program, source, scratch / "out.gguf", quant, options)
                    label = f"{quant}{' imatrix' if given else ''}"
                    rows["types"][label] = found["types"]
                    if quant in case.digests:
                        rows["sha256"][label] = found["sha256"]
        for name, (case_name, quant, options) in OPTIONS.items():
            found = run(program, scratch / f"{case_name}.gguf", scratch / "out.gguf", quant, options)
            record["options"][name] = {"types": found["types"], "sha256": found["sha256"]}
    known = json.loads(OUT.read_text()) if OUT.exists() else {}
    digests = known.get("sha256", {}) | {platform.machine(): split(record)}
    OUT.write_text(json.dumps({"sha256": digests, "types": named(record)}, indent=1) + "\n", encoding="utf-8")


def run(program: Path, source: Path, out: Path, quant: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Types and digest of what the program writes, or its refusal in the place of both."""
    from quant_cases import described

    out.unlink(missing_ok=True)
    words = [str(program), *options, str(source), str(out), quant, "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return described(out)
    refusal = REFUSAL.search(done.stderr + done.stdout)
    if refusal is None:
        raise RuntimeError(done.stderr[-2000:])
    return {"types": refusal[1], "sha256": None}


def split(record: dict[str, Any]) -> dict[str, Any]:
    """The digests of a record."""
    return {
        "cases": {name: rows["sha256"] for name, rows in record["cases"].items()},
        "options": {name: row["sha256"] for name, row in record["options"].items()},
    }


def named(record: dict[str, Any]) -> dict[str, Any]:
    """The types of a record, each list on one line: ``Q4_K: name name; Q6_K: name``."""
    return {
        "cases": {
            name: {label: brief(types) for label, types in rows["types"].items()}
            for name, rows in record["cases"].items()
        },
        "options": {name: brief(row["types"]) for name, row in record["options"].items()},
    }


def brief(types: list[str] | str) -> str:
    """Tensors by type, F32 left out; a refusal as it is."""
    from quant_cases import by_type

    return types if isinstance(types, str) else by_type(types)


if __name__ == "__main__":
    main()
