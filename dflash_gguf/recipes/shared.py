"""Rows, constraints and values that several engines share.

Comes in: nothing. Goes out: rows of the table. Source: z-lab's operations notes and client (dflash 0.1.0).
"""

from __future__ import annotations

from typing import Final

from dflash_gguf.facts import DFLASH, DFLASH2, DSPARK
from dflash_gguf.recipes.models import CHECKPOINT, GGUF
from dflash_gguf.recipes.parts import NO_GAIN, Case, Constraint, Row, Step, flag, words

DFLASHES: Final = frozenset({DFLASH, DFLASH2})
EVERY: Final = frozenset({DFLASH, DFLASH2, DSPARK})

PLACEHOLDER: Final = "DRAFTER_CHECKPOINT"
"""Stands for what this program was not given: a launch line that holds it fails at once."""


def checkpoint_of_drafter(case: Case) -> str:
    """The drafter's safetensors, as engines take them that download by themselves."""
    return case.drafter.place.repo if case.drafter.place.form == CHECKPOINT else PLACEHOLDER


def checkpoint_of_target(case: Case) -> str:
    """The target, as engines take it that download by themselves."""
    return case.target.place.repo


def _gguf_drafter(case: Case) -> bool:
    return case.drafter.place.form == GGUF


def _gguf_target(case: Case) -> bool:
    return case.target.place.form == GGUF


MATCH: Final = Constraint(
    "the drafter must be the one trained for exactly this target: another accepts little or fails, and nothing says so"
)
NO_GGUF_DRAFTER: Final = Constraint(
    "GGUF drafters do not load in {engine}: put the drafter's published safetensors in the place of " + PLACEHOLDER,
    when=_gguf_drafter,
)
NO_GGUF_TARGET: Final = Constraint(
    "{engine} is given a GGUF target: name the published safetensors instead, which the drafter was trained for",
    when=_gguf_target,
)
CROWDED: Final = Constraint(
    "at {requests} requests at once a drafter gains nothing: about 3 times at one request falls to about 1 at "
    f"{NO_GAIN}; leave it out for pure throughput",
    when=lambda case: case.requests >= NO_GAIN,
)
SHRINKS: Final = Constraint(
    "the gain shrinks with requests at once, from about 3 times at one to about 1 at "
    f"{NO_GAIN}: measure {{requests}} with `dflash-gguf bench --server`",
    when=lambda case: 4 <= case.requests < NO_GAIN,
)
GRAPHS: Final = Constraint(
    "DFlash has crashed CUDA graphs under load (z-lab/dflash issue 146): try your load first, and pin an engine build "
    "that stands it",
    when=lambda case: case.requests > 1,
)
ALONE: Final = Constraint(
    "{engine} drafts for one user: with a drafter, requests at once do not scale; use SGLang or vLLM for {requests}",
    when=lambda case: case.requests > 1,
)
ANCHOR: Final = Constraint(
    "no line is known in {engine} for a drafter that proposes from the anchor's own row on: its rows are read one late",
    when=lambda case: case.drafter.anchor_first,
    fatal=True,
    remedy="llama-server runs it: `dflash-gguf recipe llama-server`",
)
NO_MASK: Final = Constraint(
    "the drafter's config states no mask token; the engine must fill a block with the one it was trained with",
    when=lambda case: case.drafter.mask_token_id is None,
)
MASK: Final = Constraint(
    "a block is filled with mask token {mask}, as the drafter was trained: never with the padding token, which often "
    "is the end token",
    when=lambda case: case.drafter.mask_token_id is not None,
)
GAIN: Final = Constraint("expect about 3 times the speed at one request at a time, about 1 time at 32 (Qwen3.8-27B)")
EFFORT: Final = Constraint(
    'thinking is set with `{effort}` ({levels}; default {level}), in "chat_template_kwargs" of a request: more of it '
    "makes text that is easier to draft",
    when=lambda case: bool(case.family.effort),
)

SERVED: Final = (MATCH, NO_GGUF_DRAFTER, NO_GGUF_TARGET, NO_MASK, ANCHOR, CROWDED, SHRINKS, GRAPHS)
NOTES: Final = (GAIN, EFFORT, MASK)


def _repo_step(title: str, place_of: str) -> Step:
    """``hf download`` of one of the models, when it is on the hub."""

    def repo(case: Case) -> tuple[str, ...]:
        place = getattr(case, place_of).place
        types = ("--include", f"*{place.hub.tag}*.gguf") if place.hub.tag else ()
        revision = ("--revision", place.hub.revision) if place.hub.revision else ()
        return (place.repo, *revision, *types)

    return Step(
        title,
        rows=(
            Row(words("hf", "download")),
            Row(repo),
            Row(flag("--local-dir", lambda case: getattr(case, place_of).place.name)),
        ),
        when=lambda case: getattr(case, place_of).place.hub is not None,
    )


DOWNLOAD_TARGET: Final = _repo_step("download the target", "target")
DOWNLOAD_DRAFTER: Final = _repo_step("download the drafter", "drafter")


def local_target(case: Case) -> str:
    """The target's path, behind `DOWNLOAD_TARGET`."""
    place = case.target.place
    return place.path if place.hub is None else place.name


def local_drafter(case: Case) -> str:
    """The drafter's path, behind `DOWNLOAD_DRAFTER`."""
    place = case.drafter.place
    return place.path if place.hub is None else place.name


def converted(case: Case) -> str:
    """The name of the GGUF that the drafter becomes."""
    return f"dflash-{case.target.place.name}-{conversion_type(case)}.gguf"


def conversion_type(case: Case) -> str:
    """What a drafter is converted to: four bits cost DFlash drafters with a window acceptance."""
    return "Q8_0" if case.drafter.kind == DFLASH and case.drafter.window else "Q4_K_M"


CONVERT: Final = Step(
    "make the drafter a GGUF",
    rows=(
        Row(words("dflash-gguf", "convert")),
        Row(lambda case: (case.drafter.place.word,)),
        Row(flag("--target", lambda case: case.target.place.word), "its tokenizer goes into the drafter's file"),
        Row(
            flag("--quant", conversion_type),
            "four bits, or eight for a DFlash drafter with a window, where four were reported to cost acceptance",
        ),
        Row(flag("-o", converted)),
    ),
    when=lambda case: case.converts,
)
