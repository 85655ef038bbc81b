"""A training that stopped, on disk, so that going on equals never having stopped.

Comes in: a trainer. Goes out: a file, whole or not at all, and what a trainer is filled with.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from dflash_gguf.atomic import failures, replacing
from dflash_gguf.errors import TrainError, brief

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_gguf.train.trainer import Trainer

NAME = "training.pt"


def save(path: Path, trainer: Trainer) -> None:
    """Replaces ``path``. Raises OutputError when it cannot be written; the file of before is kept then."""
    kept = {
        "made_with": trainer.made_with,
        "step": trainer.step,
        "seconds": trainer.seconds,
        "loss": trainer.loss,
        "points": [asdict(point) for point in trainer.points],
        "drafter": trainer.drafter.state_dict(),
        "feature_rms": trainer.drafter.feature_rms,
        "optimizer": trainer.optimizer.state_dict(),
    }
    with replacing(path, force=True) as (fd, partial), os.fdopen(os.dup(fd), "wb") as file, failures(partial):
        torch.save(kept, file)


def load(path: Path, trainer: Trainer) -> None:
    """Fills ``trainer``; raises TrainError when the file is none of ours, or of a training that differs."""
    from dflash_gguf.train.trainer import Accepted, Point

    kept = _read(path)
    _check_same(path, kept["made_with"], trainer.made_with)
    trainer.drafter.load_state_dict(kept["drafter"])
    trainer.drafter.feature_rms.copy_(kept["feature_rms"])
    trainer.optimizer.load_state_dict(kept["optimizer"])
    trainer.step, trainer.seconds, trainer.loss = kept["step"], kept["seconds"], kept["loss"]
    for row in kept["points"]:
        accepted = row.pop("accepted")
        accepted["per_position"] = tuple(accepted["per_position"])
        trainer.points.append(Point(**row, accepted=Accepted(**accepted)))


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise TrainError(f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}") from None
    except Exception:  # noqa: BLE001  PyTorch raises whatever its reader meets
        kept = None
    if not isinstance(kept, dict) or "made_with" not in kept:
        raise TrainError(f"`{path}` is no saved training", remedy="remove it and begin anew")
    return kept


def _check_same(path: Path, found: dict[str, Any], asked: dict[str, Any]) -> None:
    for name in sorted(found.keys() | asked.keys()):
        if found.get(name) != asked.get(name):
            raise TrainError(
                f"`{path}` was begun with another `{name}`",
                value=brief(found.get(name)),
                expected=str(brief(asked.get(name))),
                remedy="give the same options, or choose another `--out`",
            )
