"""A machine for the probes of `doctor` that needs none: its facts, its tools, and its files.

Comes in: what is different about it. Goes out: a `Machine`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import dflash_gguf
from dflash_gguf.probes.checks import Machine

CPU = {"name": "CPU", "description": "a CPU", "type": "CPU", "free": 3 * 10**9, "total": 4 * 10**9}
CUDA = {"name": "CUDA0", "description": "a GPU", "type": "GPU", "free": 1, "total": 2}
REINSTALL = "pip install --no-cache-dir --force-reinstall llama-cpp-python==0.3.36"
OUR_OWN = "pip install --no-cache-dir --force-reinstall --no-deps .  # in the checkout of dflash-gguf"
FACTS = {
    "path": "/lib/libllama.so",
    "llama_version": "0.5.0-dev",
    "ggml_version": "0.25.3 (0c1e570)",
    "system_info": "CPU : AVX2 = 1 | FMA = 1 | AMX = 0 | ",
    "core": "/lib/_core.so",
    "mapped": ["/lib/libllama.so"],
    "missing_exports": [],
    "gpu_offload": False,
    "backends": ["CPU"],
    "devices": [CPU],
    "kernels": {"lanes": 16, "types": {"Q4_K": True, "Q6_K": True}},
}


def machine(root="/nowhere", errors=None, facts=None, **fields):
    """A Linux machine without a GPU or ollama on which all is well, and what is different about it."""
    found = {name: {"value": value} for name, value in (FACTS | (facts or {})).items()}
    found |= {name: {"error": text} for name, text in (errors or {}).items()}
    base = Machine(
        native=found,
        versions={"dflash-gguf": dflash_gguf.__version__, "llama-cpp-python": "0.3.36"},
        requires_python=">=3.11",
        pin="0.3.36",
        python="3.11.7",
        system="Linux",
        processor="x86_64",
        root=Path(root),
        which=lambda _: None,
        answer=lambda *_: pytest.fail("nothing should be run"),
    )
    return replace(base, **fields)


def answers(**said):
    """Tools on PATH and what each says; an exception is raised."""

    def answer(command, _environment):
        text = said[Path(command[0]).name.replace("-", "_")]
        if isinstance(text, Exception):
            raise text
        return text

    names = {name.replace("_", "-") for name in said}
    return {"which": lambda name: f"/bin/{name}" if name in names else None, "answer": answer}


def put(root, *paths, text=""):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
