"""A tiny target as a Hugging Face folder: the tokens of `tiny_vocab`, a config, two tensors.

Comes in: a folder and overrides. Goes out: the folder. The tokenizer's digest is in no table; tests add it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from tiny_files import write_safetensors
from tiny_vocab import CHAT_TEMPLATE, tokenizer_keys
from vocab_folder import write_folder

if TYPE_CHECKING:
    from pathlib import Path

VOCAB = 300
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "tie_word_embeddings": False,
}


def write_target_folder(
    folder: Path, config: dict[str, Any] | None = None, names: tuple[str, ...] = (), **keys: Any
) -> Path:
    """Write the folder; ``names`` are tensors of [VOCAB, 64], ``keys`` replace or (None) drop tokenizer keys."""
    given = tokenizer_keys(VOCAB) | {"tokenizer.chat_template": CHAT_TEMPLATE}
    del given["tokenizer.ggml.eot_token_id"]
    given |= {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    write_folder(folder, {key: value for key, value in given.items() if value is not None}, CONFIG | (config or {}))
    if names:
        table = np.arange(VOCAB * 64, dtype=np.float32).reshape(VOCAB, 64)
        write_safetensors(folder / "model.safetensors", dict.fromkeys(names, table))
    return folder


def change(folder: Path, name: str, **values: Any) -> None:
    """Set values of a JSON file of the folder; None removes one."""
    path = folder / name
    held = json.loads(path.read_text(encoding="utf-8")) | values
    path.write_text(json.dumps({key: value for key, value in held.items() if value is not None}), encoding="utf-8")
