"""Which model a drafter drafts for, by its own words.

Comes in: a drafter's folder. Goes out: the name of a repository and who named it. Asks no server. Two words that
differ settle nothing, nor does none: then the user is asked, with the flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.card import card_values
from dflash_gguf.convert.checkpoint import CONFIG
from dflash_gguf.convert.strict_json import load_object
from dflash_gguf.errors import CheckpointError, HubError
from dflash_gguf.hub.spec import HubSpec, parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FLAG: Final = "pass `--target`: a folder, a GGUF, ORG/REPO or ORG/REPO-GGUF:TYPE"
BASE_MODEL: Final = ("base_model", "base_models")
HOSTS: Final = ("https://huggingface.co/", "http://huggingface.co/", "https://hf.co/")


@dataclass(frozen=True, slots=True)
class Word:
    """A repository, and where it is named."""

    spec: HubSpec
    place: str


def named_target(folder: Path, called: str) -> Word:
    """The only target that the drafter names; ``called`` stands for it in messages. Raises `CheckpointError`."""
    words = list(_words(load_object(folder / CONFIG), card_values(folder)))
    specs = {word.spec.repo.lower(): word for word in words}
    if not specs:
        raise CheckpointError(
            f"`{called}` does not say which model it drafts for, neither in a speculators config nor in its card",
            remedy=FLAG,
        )
    if len(specs) > 1:
        told = ", ".join(f"`{word.spec}` ({word.place})" for word in words)
        remedy = f"pass the right one, such as `--target {words[0].spec}`"
        raise CheckpointError(f"`{called}` names several targets: {told}", remedy=remedy)
    return words[0]


def _words(config: Mapping[str, Any], card: Mapping[str, Any]) -> Iterator[Word]:
    for place, value in (*_verifier(config), *_base_models(card)):
        spec = _spec(value)
        if spec is not None:
            yield Word(spec, place)


def _verifier(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    speculators = config.get("speculators_config")
    verifier = speculators.get("verifier") if isinstance(speculators, dict) else None
    if isinstance(verifier, dict):
        yield "the verifier in its speculators config", verifier.get("name_or_path")


def _base_models(card: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for key in BASE_MODEL:
        value = card.get(key)
        for item in value if isinstance(value, list) else [value]:
            yield f"`{key}` in its card", item


def _spec(value: object) -> HubSpec | None:
    """A repository's name; a path of somebody's machine is none."""
    if not isinstance(value, str):
        return None
    text = value.strip().rstrip("/")
    for host in HOSTS:
        text = text.removeprefix(host)
    try:
        spec = parse_spec(text)
    except HubError:
        return None
    return HubSpec(spec.repo)
