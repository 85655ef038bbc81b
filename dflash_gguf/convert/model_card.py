"""The model card of a converted drafter: what it is, from what, in which types, how each engine takes it.

Comes in: facts. Goes out: the text of a README. Asks nobody, writes nothing, and holds no path of this machine.
A card that is there already keeps all that its owner wrote: only what stands between our marks is renewed.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import BenchError, TemplateError
from dflash_gguf.facts import TITLES
from dflash_gguf.hub.spec import HubSpec
from dflash_gguf.recipes.api import case_of, cook
from dflash_gguf.recipes.models import CHECKPOINT, Place, target_named
from dflash_gguf.recipes.servers import SGLANG, VLLM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dflash_gguf.recipes.models import Drafter

SOME_GGUF: Final = "ORG/TARGET-GGUF"
"""llama.cpp looks at ``-hfd`` only beside ``-hf``."""
SOME_TARGET: Final = "TARGET"
"""Stands for a target that is a folder of this machine."""
SERVERS: Final = (VLLM, SGLANG)
TAGS: Final = ("gguf", "dflash", "speculative-decoding", "llama.cpp")
FILES: Final = "files"
GAIN: Final = "gain"
"""The parts of a card that are renewed."""


@dataclass(frozen=True, slots=True)
class CardFile:
    """One file of the repository: its name, type and size in bytes."""

    name: str
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class Repo:
    """A repository, its address, and the commit where one is meant."""

    name: str
    url: str
    commit: str | None = None

    def __str__(self) -> str:
        return f"[{self.name}]({self.url}{f'/tree/{self.commit}' if self.commit else ''})"


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card says. ``source`` and ``target`` are None where they are folders of this machine.

    ``repo`` is the card's own, ``type`` that of the file, whose drafter is ``drafter``, to be had at the source;
    ``spec_type`` is llama.cpp's word for how it drafts. ``ggufs`` is the target's repository of GGUFs, if it is known.
    ``licence`` holds keys of the source's card.
    """

    repo: str
    title: str
    drafter: Drafter
    spec_type: str
    type: str
    versions: str
    target_title: str
    source: Repo | None = None
    target: Repo | None = None
    ggufs: str | None = None
    licence: Mapping[str, str] | None = None


def model_card(facts: CardFacts, files: Sequence[CardFile], bench: Mapping[str, Any] | None = None) -> str:
    """The whole text; ``bench`` is what ``dflash-gguf bench --json`` printed. Raises `BenchError` when it is not."""
    parts = [
        _front_matter(facts),
        f"# {facts.title}, GGUF",
        _what(facts),
        "## Files",
        _marked(FILES, _file_table(files)),
        "## How to run it",
        _engines(facts),
        f"Converted by dflash-gguf {facts.versions}.",
    ]
    if bench is not None:
        parts[-1:-1] = ["## What it gains", _marked(GAIN, _gain(bench))]
    return "\n\n".join(parts) + "\n"


def renewed(card: str, files: Sequence[CardFile], bench: Mapping[str, Any] | None = None) -> str | None:
    """``card`` with our tables made anew, or None when it has no place for the files: then it is somebody else's."""
    if not _span(FILES).search(card):
        return None
    table = _marked(FILES, _file_table(files))
    card = _span(FILES).sub(lambda _: table, card, count=1)
    if bench is None:
        return card
    gain = _marked(GAIN, _gain(bench))
    if _span(GAIN).search(card):
        return _span(GAIN).sub(lambda _: gain, card, count=1)
    return f"{card.rstrip()}\n\n## What it gains\n\n{gain}\n"


def _span(name: str) -> re.Pattern[str]:
    return re.compile(rf"<!-- dflash-gguf {name} -->.*?<!-- /dflash-gguf {name} -->", re.DOTALL)


def _marked(name: str, text: str) -> str:
    return f"<!-- dflash-gguf {name} -->\n{text}\n<!-- /dflash-gguf {name} -->"


def _front_matter(facts: CardFacts) -> str:
    """YAML, in which a JSON string is a string too."""
    rows = [f"{key}: {json.dumps(value)}" for key, value in (facts.licence or {}).items()]
    if facts.source is not None:
        rows += ["base_model:", f"- {json.dumps(facts.source.name)}", "base_model_relation: quantized"]
    return "\n".join(["---", *rows, "tags:", *(f"- {tag}" for tag in TAGS), "---"])


def _what(facts: CardFacts) -> str:
    source = str(facts.source or facts.title)
    target = str(facts.target or facts.target_title)
    drafter = facts.drafter
    return (
        f"The drafter {source} ({TITLES[drafter.kind]}, blocks of {drafter.block_size}) as GGUF, for {target}.\n"
        "It does not answer by itself: it proposes tokens, and the target, which runs beside it, keeps those that it "
        "would have written."
    )


def _file_table(files: Sequence[CardFile]) -> str:
    rows = [f"| {file.name} | {file.type} | {file.size / 1e6:.1f} MB |" for file in files]
    return "\n".join(["| file | type | size |", "|---|---|---|", *rows])


def _engines(facts: CardFacts) -> str:
    """One line an engine; those that take safetensors are given the source."""
    here = f"{facts.repo}:{facts.type}"
    target = f"-hf {facts.ggufs}" if facts.ggufs else "-m TARGET.gguf"
    rows = [
        ("dflash-gguf", f"dflash-gguf run {target} -hfd {here}"),
        ("llama.cpp", f"llama-server -hf {facts.ggufs or SOME_GGUF} {_llama_cpp(facts, here)}"),
        ("ollama", f"dflash-gguf modelfile {target} -hfd {here} -o Modelfile && ollama create NAME -f Modelfile"),
    ]
    if facts.source is not None:
        rows += _of_safetensors(facts)
    return "\n\n".join(f"{engine}:\n\n{indent(line, '    ')}" for engine, line in rows)


def _of_safetensors(facts: CardFacts) -> Iterator[tuple[str, str]]:
    """The launch line of each engine that serves many, as `recipe` prints it; none where it has no line."""
    place = Place(CHECKPOINT, path=SOME_TARGET)
    if facts.target is not None:
        place = Place(CHECKPOINT, hub=HubSpec(facts.target.name))
    case = case_of(facts.drafter, target_named(place, {}))
    for engine in SERVERS:
        with suppress(TemplateError):
            launch = next(step for step in cook(engine, case).steps if step.title == "launch")
            yield f"{engine.title}, the safetensors", launch.text


def _llama_cpp(facts: CardFacts, here: str) -> str:
    return f"-hfd {here} --spec-type {facts.spec_type} --spec-draft-n-max {facts.drafter.proposals}"


def _gain(bench: Mapping[str, Any]) -> str:
    """By kind of prompts: tokens that a pass of the target yields, and the speed with the drafter over that without."""
    try:
        settings = {row["name"]: row for row in bench["settings"]}
        chosen = settings[bench["best"]] if bench.get("best") in settings else next(iter(settings.values()))
        rows = [_gain_row(row) for row in (*chosen["kinds"], chosen["all"])]
        facts = ", ".join(f"{key}: {value}" for key, value in bench["facts"].items() if key not in ("target", "draft"))
    except (KeyError, TypeError, AttributeError, StopIteration):
        raise BenchError("no measurement of a pair", expected="what `dflash-gguf bench --json` prints") from None
    head = ["| prompts | tokens a pass | speed, with the drafter over without |", "|---|---|---|"]
    return "\n".join([*head, *rows, "", f"Measured with dflash-gguf bench, {facts}."])


def _gain_row(row: Mapping[str, Any]) -> str:
    speed = row["speed"]
    ratio = f"{speed['ratio']:.2f}" if speed is not None else "not known"
    return f"| {row['kind']} | {row['drafts']['acceptance_length']:.2f} | {ratio} |"
