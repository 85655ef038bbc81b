"""Two folders of safetensors that fit each other: a DFlash 2 drafter, and a target of which only the config counts."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import zoo

if TYPE_CHECKING:
    from pathlib import Path


def write_pair(parent: Path) -> tuple[Path, Path]:
    """The target and the drafter, in ``parent``."""
    draft = zoo.write_checkpoint("incoai-2", parent)
    config = json.loads((draft / "config.json").read_text())
    target = parent / "Qwen3.8-27B 4bit"
    target.mkdir()
    shutil.copy(draft / "model.safetensors", target)
    inner = {"hidden_size": config["hidden_size"], "vocab_size": config["vocab_size"]}
    inner |= {"num_hidden_layers": config["num_target_layers"], "model_type": "qwen3_5_text"}
    (target / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": inner}))
    return target, draft
