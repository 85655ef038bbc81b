"""What a training takes of this machine, before it begins: memory of its stages, disk, and roughly how long.

Comes in: a target's header, the drafter's shape, the prompts' lengths, what is asked for. Goes out: bytes and seconds,
and an error where there are too few. Loads no model.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import TrainError
from dflash_gguf.facts import DFLASH2, EMBEDDINGS, HEAD, architecture
from dflash_gguf.runner import machine
from dflash_gguf.shards import shards_of
from dflash_gguf.train import features
from dflash_gguf.train.batches import SPAN
from dflash_gguf.train.features import BYTES
from dflash_gguf.train.responses import answers_bytes, at_once
from dflash_gguf.train.shape import by_layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.train.api import Places
    from dflash_gguf.train.recipe import Recipe
    from dflash_gguf.train.settings import CorpusSettings
    from dflash_gguf.train.shape import Shape

_FLOAT: Final = 4
_STATE: Final = 4
"""Numbers that training keeps of a weight: itself, its gradient, two moments."""
_SAVED: Final = 3
"""Of these, the ones that a file to go on from holds; it stays until the next is whole."""
_LAYER_ROWS: Final = 16
"""Rows of the hidden size that a layer keeps of each token to go backward, beside those of its feed-forward part."""
_FFN_ROWS: Final = 5
_COPIES: Final = 6
"""Of scores and of logits, to go backward: what went in, as float32, masked, its softmax, gradients."""
_PASSES: Final = 2
"""Of a token through the target: one to write it, one for its features."""
_TORCH: Final = 700 << 20
_LIBLLAMA: Final = 350 << 20
"""Bytes of a library, loaded and at work, beside what is counted; PyTorch's with all that lies beside it then."""
EXPERTS: Final = re.compile(r"blk\.(\d+)\..*_exps\.")
"""A tensor of all experts of a layer."""

CORE_FLOPS: Final = 40e9
"""Operations a second of one core in passes of 32 tokens and more: SmolLM2-135M as Q4_1 on a server of 2025."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes and seconds. ``answers``, ``training`` and ``measuring`` are the memory of stages that follow each other.

    ``judged`` is the largest of the stages that this machine's memory must hold, 0 where GPUs hold all; ``free_device``
    is what is free of the GPU that training must fit into, None where it has none of its own. ``n_tokens``,
    ``cached`` (what is not there yet of features) and ``seconds`` (of answers and features, on the CPU) are what it
    comes to when no answer ends early. ``saved``: the checkpoint and what is gone on from; ``free_cache`` and
    ``free_out``: what is free where the two go, None where that is the same disk.
    """

    n_tokens: int
    answers: int
    training: int
    measuring: int
    judged: int
    cached: int
    saved: int
    seconds: float
    free_memory: int
    free_out: int
    free_cache: int | None
    free_device: int | None = None

    @property
    def memory_fits(self) -> bool:
        """Whether memory is there, the device's too."""
        return self.judged <= self.free_memory and (self.free_device is None or self.training <= self.free_device)

    @property
    def fits(self) -> bool:
        """Whether memory and disks are there."""
        if self.free_cache is None:
            return self.memory_fits and self.cached + self.saved <= self.free_out
        return self.memory_fits and self.cached <= self.free_cache and self.saved <= self.free_out

    def sentence(self) -> str:
        """For a person."""
        memory = f"answers need {_gb(self.answers)} of memory, measuring {_gb(self.measuring)}"
        memory += f" and training {_gb(self.training)}"
        if self.free_device is not None:
            memory += f" of the GPU's {_gb(self.free_device)}"
        if self.free_cache is None:
            disk = f"{_gb(self.cached + self.saved)} on the disk, {_gb(self.free_out)} are free"
        else:
            disk = f"{_gb(self.cached)} on the cache's disk, {_gb(self.free_cache)} are free, and the drafter "
            disk += f"{_gb(self.saved)} on its, {_gb(self.free_out)} are free"
        return (
            f"{memory}, {_gb(self.free_memory)} are free; at most {self.n_tokens} tokens need {disk}; and on the CPU "
            f"up to about {_duration(self.seconds)} for answers and features"
        )


def estimate(
    header: GGUFHeader,
    shape: Shape,
    recipe: Recipe,
    settings: CorpusSettings,
    lengths: Sequence[int],
    places: Places,
    *,
    free_device: int | None = None,
) -> Estimate:
    """For prompts of ``lengths`` tokens."""
    most = [min(settings.n_ctx, length + settings.max_tokens) for length in lengths]
    longest, n_tokens = max(most), sum(most)
    n_seq = at_once(header, longest, settings, len(most))
    answers, training, measuring = _sizes(header, shape, recipe, settings, longest, n_seq)
    judged = [training] if free_device is None else []
    judged += [answers, measuring] if settings.session.placement.on_cpu else []
    cache, out = _there(places.cache), _there(places.out)
    one_disk = cache.stat().st_dev == out.stat().st_dev
    return Estimate(
        n_tokens=n_tokens,
        answers=answers,
        training=training,
        measuring=measuring,
        judged=max(judged, default=0),
        cached=_features_bytes(n_tokens * shape.n_features * BYTES, places.cache, len(lengths)),
        saved=n_weights(shape) * (2 * _SAVED * _FLOAT + BYTES),
        seconds=_PASSES * 2 * _n_used(header) * n_tokens / (CORE_FLOPS * settings.session.threads()),
        free_memory=machine.free(),
        free_out=shutil.disk_usage(out).free,
        free_cache=None if one_disk else shutil.disk_usage(cache).free,
        free_device=free_device,
    )


def _sizes(
    header: GGUFHeader, shape: Shape, recipe: Recipe, settings: CorpusSettings, longest: int, n_seq: int
) -> tuple[int, int, int]:
    """Bytes of memory of the three stages, for texts of up to ``longest`` tokens, ``n_seq`` of them at once."""
    weights = sum(part.size for _, part in shards_of(Path(header.name), header))
    answers = weights + answers_bytes(header, longest, settings, n_seq) + n_seq * shape.vocab * _FLOAT + _LIBLLAMA
    measuring = weights + answers_bytes(header, longest, settings, 1) + n_weights(shape) * BYTES + _LIBLLAMA + _TORCH
    return answers, training_bytes(shape, recipe, longest, tied=HEAD not in header.tensors), measuring


def check_fit(found: Estimate, name: str) -> None:
    """Raises TrainError with the numbers when ``name`` is too large for this machine."""
    if found.fits:
        return
    if found.memory_fits:
        remedy = "free some of the disk, give other folders (`--out`, `--cache`), fewer prompts or shorter answers"
    else:
        free = found.free_memory if found.free_device is None else found.free_device
        ways = {
            "fewer `--anchors` or `--texts`, a smaller drafter (`--layers`, `--rank`)": found.training > free,
            "fewer answers at once (`--parallel`)": found.answers > max(found.free_memory, found.measuring),
        }
        less = [way for way, helps in ways.items() if helps]
        less = [*(f"give {way}" for way in less), "train on a machine with more memory, or with NeMo on a cluster"]
        remedy = f"{'; '.join(less)}: `dflash-gguf recipe nemo`"
    raise TrainError(f"such a training for `{name}` is too large for this machine: {found.sentence()}", remedy=remedy)


def n_weights(shape: Shape) -> int:
    """Weights of a drafter, but for a few hundred of its norms."""
    queries, keys = (heads * shape.head_dim for heads in (shape.heads, shape.kv_heads))
    layer = shape.hidden * (2 * queries + 2 * keys + 3 * shape.ffn)
    rest = shape.n_features * shape.hidden
    if shape.kind == DFLASH2:
        kernels = 2 * shape.conv_kernel * (shape.hidden + shape.hidden * shape.hidden // shape.conv_group)
        layer += 2 * kernels
        rest += shape.rank * (2 * shape.vocab + shape.hidden)
    return shape.layers * layer + rest


def training_bytes(shape: Shape, recipe: Recipe, length: int, *, tied: bool) -> int:
    """Memory of PyTorch's stage, for texts of ``length`` tokens; ``tied``: the target has one table for both uses."""
    value = 2 if recipe.precision == "bf16" else _FLOAT
    tables = shape.vocab * shape.hidden * (_FLOAT + value) * (1 if tied else 2)
    tokens = recipe.texts * recipe.anchors * shape.block
    rows = tokens * (_LAYER_ROWS * shape.hidden + _FFN_ROWS * shape.ffn)
    scores = tokens * length * shape.heads * _COPIES
    context = recipe.texts * length * shape.n_features * 3
    logits = tokens * (recipe.frequent + recipe.random + recipe.texts * length) * _COPIES
    measured = min(length, SPAN) * shape.block * shape.vocab * 2
    step = max(shape.layers * (rows + scores) + context + logits, measured) * _FLOAT
    return n_weights(shape) * _STATE * _FLOAT + tables + step + _TORCH


def _n_used(header: GGUFHeader) -> int:
    """Weights that a token is multiplied with: of experts, those that are chosen."""
    arch = architecture(header)
    n_experts = header.integer(f"{arch}.expert_count", 0)
    used = by_layer(header, f"{arch}.expert_used_count")
    count = 0
    for _, part in shards_of(Path(header.name), header):
        for name, info in part.tensors.items():
            layer = EXPERTS.match(name)
            if layer is not None and n_experts:
                count += prod(info.shape) * used[int(layer[1]) % len(used)] // n_experts
            elif name != EMBEDDINGS or HEAD not in header.tensors:
                count += prod(info.shape)
    return count


def _features_bytes(most: int, folder: Path, n_prompts: int) -> int:
    """What is left of features that take ``most`` bytes, those in ``folder`` counted."""
    if features.n_answers(folder) >= n_prompts:
        return 0
    there = [path.stat().st_size for name in (features.NAME, features.PARTIAL) if (path := folder / name).is_file()]
    return max(0, most - sum(there))


def _there(folder: Path) -> Path:
    """The next folder above that exists."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir())


def _duration(seconds: float) -> str:
    if seconds < 90:
        return "a minute"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB"
