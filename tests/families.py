"""Checkpoints of the zoo with something changed, and targets for them: what several tests build on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import scratch
import zoo
from zoo.files import write_content

from dflash_gguf.convert import api
from dflash_gguf.convert.overrides import Overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from zoo import Content, Stored

    from dflash_gguf.convert.planned import Plan


def changed(
    content: Content,
    *,
    drop: Iterable[str] = (),
    tensors: Mapping[str, Stored] | None = None,
    rename: Callable[[str], str] = str,
    **config: Any,
) -> Content:
    """Tensors taken out, added, renamed; keys of the config set, or taken out where they are ``...``."""
    dropped = set(drop)
    kept = {rename(name): tensor for name, tensor in content.tensors.items() if name not in dropped}
    keys = {key: value for key, value in (content.config | config).items() if value is not ...}
    return replace(content, config=keys, tensors=kept | dict(tensors or {}))


def planned(
    folder: Path, name: str, content: Content | None = None, *, quant: str = "BF16", given: Any = None, **target: Any
) -> Plan:
    """Plan a family's checkpoint, ``content`` if given, for a target of the same sizes."""
    checkpoint = write_content(folder / "drafter", content or zoo.content(name))
    overrides = Overrides(**(zoo.FAMILIES[name].options if given is None else given))
    return api.plan(checkpoint, target_of(name, **target), quant, overrides=overrides)


@cache
def target_of(
    name: str, *, drop_tensors: tuple[str, ...] = (), extra_keys: tuple[tuple[str, Any], ...] = (), **options: Any
) -> Path:
    """The GGUF of a family's target, written once a run; ``options`` are those of `zoo.write_target_gguf`."""
    folder = scratch.folder("target")
    others = {"drop_tensors": drop_tensors, "extra_keys": dict(extra_keys)}
    return zoo.write_target_gguf(name, folder / "target.gguf", options=others, **options)
