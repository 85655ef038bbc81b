"""A training that stopped, on disk, so that going on equals never having stopped.

Comes in: a trainer. Goes out: a file, whole or not at all, and what a trainer is filled with.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import torch

from dflash_gguf.atomic import failures, replacing
from dflash_gguf.errors import TrainError
from dflash_gguf.train.cache import check_equal, failures_reading

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_gguf.train.recipe import Recipe
    from dflash_gguf.train.trainer import Point, Trainer

ANOTHER: Final = "give the same options, or choose another `--out`"
SAME_SCALES: Final = 1e-4
"""How far the scales of the same features may be apart: they are sums, in the order of as many threads as there are."""


def save(path: Path, trainer: Trainer) -> None:
    """Replaces ``path``. Raises OutputError when it cannot be written; the file of before is kept then."""
    kept = {
        "made_with": trainer.made_with,
        "length": trainer.recipe.length,
        "restarts": trainer.restarts,
        "step": trainer.step,
        "seconds": trainer.seconds,
        "loss": trainer.loss,
        "points": [asdict(point) for point in trainer.points],
        "drafter": trainer.drafter.state_dict(),
        "feature_rms": trainer.drafter.feature_rms,
        "optimizer": trainer.optimizer.state_dict(),
    }
    with replacing(path, force=True) as (fd, partial), failures(partial), os.fdopen(os.dup(fd), "wb") as file:
        try:
            torch.save(kept, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):  # PyTorch's writer ends in an error of its own behind it
                raise error.__context__ from None
            raise


def check_begun(path: Path, prompts: str, recipe: Recipe) -> None:
    """Raises TrainError when the training was one on other prompts than those that are ``named`` so, or is too far."""
    kept = _read(path, mapped=True)
    check_equal(path, kept["made_with"], {"prompts": prompts}, ANOTHER)
    if kept["length"] != recipe.length and recipe.part(kept["step"], kept["seconds"]) >= 1:
        name, number = next((name, number) for name, number in recipe.length.items() if number is not None)
        raise TrainError(
            f"`--{name}` to go on with `{path}`",
            value=number,
            expected=f"more than the {kept['step']} steps, {kept['seconds'] / 60:.1f} minutes, that it was trained for",
            remedy=ANOTHER,
        )


def length_of(path: Path) -> dict[str, Any]:
    """``steps`` and ``minutes`` that the training was to have, one of them None."""
    return dict(_read(path, mapped=True)["length"])


def load(path: Path, trainer: Trainer) -> None:
    """Fills ``trainer``; raises TrainError when the file is none of ours, or of a training that differs."""
    kept = _read(path)
    found = kept["made_with"]
    check_equal(path, found, trainer.made_with | dict.fromkeys(found.keys() - trainer.made_with.keys()), ANOTHER)
    scales = trainer.drafter.feature_rms
    if not torch.allclose(kept["feature_rms"], scales.cpu(), rtol=SAME_SCALES):
        raise TrainError(f"`{path}` was made with other features", remedy=ANOTHER)
    try:
        points = [_point(row) for row in kept["points"]]
        trainer.drafter.load_state_dict(kept["drafter"])
        trainer.optimizer.load_state_dict(kept["optimizer"])
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        raise _no_training(path) from None
    scales.copy_(kept["feature_rms"])
    trainer.step, trainer.seconds, trainer.loss = kept["step"], kept["seconds"], kept["loss"]
    trainer.points.extend(points)
    trainer.restarts.extend([*kept["restarts"], *([] if kept["length"] == trainer.recipe.length else [trainer.step])])


def _point(row: dict[str, Any]) -> Point:
    from dflash_gguf.train.trainer import Accepted, Point

    accepted = dict(row["accepted"])
    accepted["per_position"] = tuple(accepted["per_position"])
    return Point(**row | {"accepted": Accepted(**accepted)})


_KINDS: Final = {
    "made_with": dict,
    "length": dict,
    "restarts": list,
    "step": int,
    "seconds": float,
    "loss": float,
    "points": list,
    "drafter": dict,
    "feature_rms": torch.Tensor,
    "optimizer": dict,
}
"""What `save` writes."""


def _read(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """What `save` wrote; ``mapped``: for a look at it, its tensors stay on disk."""
    with failures_reading(path), path.open("rb") as file:
        try:
            kept = torch.load(str(path) if mapped else file, map_location="cpu", mmap=mapped, weights_only=True)
        except Exception:  # noqa: BLE001  PyTorch raises whatever its reader meets, OSError of half a file too
            kept = None
    if not isinstance(kept, dict) or not all(isinstance(kept.get(name), kind) for name, kind in _KINDS.items()):
        raise _no_training(path)
    return kept


def _no_training(path: Path) -> TrainError:
    return TrainError(f"`{path}` is no saved training, or a part of one", remedy="remove it and begin anew")
