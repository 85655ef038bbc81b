"""A trained drafter as z-lab publishes one: ``model.safetensors`` in BF16, ``config.json``, and a card.

Comes in: a drafter and what there is to say of it. Goes out: files, each whole or not at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save

from dflash_gguf.atomic import replacing, write_all, write_text
from dflash_gguf.train.shape import CONFIG, WEIGHTS

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_gguf.train.model import Drafter


def export(drafter: Drafter, folder: Path) -> None:
    """Writes the weights, then the config, over those of before. ``fc`` takes the features' scales in."""
    tensors = {name: values.to("cpu", torch.bfloat16).contiguous() for name, values in drafter.folded().items()}
    with replacing(folder / WEIGHTS, force=True) as (fd, partial):
        write_all(fd, partial, save(tensors, {"format": "pt"}))
    write_text(folder / CONFIG, json.dumps(drafter.shape.config(), indent=1) + "\n", force=True)
