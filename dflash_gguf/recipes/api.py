"""A recipe as one call: an engine and a pair in, the commands and settings that are right for them out.

Comes in: a name of the table, and where two models are. Goes out: a frozen `Recipe`. Runs nothing, writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import TemplateError
from dflash_gguf.facts import TITLES
from dflash_gguf.recipes import spell
from dflash_gguf.recipes.families import family_of
from dflash_gguf.recipes.models import check_pair, read_drafter, read_target
from dflash_gguf.recipes.parts import ANCHORED, DRAFTED, Case, Constraint, Engine, Step
from dflash_gguf.recipes.table import ENGINES

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from dflash_gguf.recipes.models import Drafter, Target

MLX_BITS: Final = (4, 8)
OPTIONAL: Final[dict[str, tuple[Any, str]]] = {
    "concurrency": (None, "requests at once"),
    "gpus": (1, "GPUs"),
    "mlx_bits": (None, "bits of quantized MLX weights"),
}
"""Field of a case -> its value when nothing was said, and what it is."""
MOST: Final = 1 << 20
"""More requests or GPUs are a slip."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Words of a command or a settings key, and why they are there."""

    words: str
    why: str


@dataclass(frozen=True, slots=True)
class RecipeStep:
    """One thing to do: ``text`` is a shell command, or the content of the settings file ``path``.

    ``words`` are the command's, as a program receives them; ``values`` the file's; ``exports`` the command's variables.
    """

    title: str
    form: str
    text: str
    words: tuple[str, ...] = ()
    exports: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    values: Mapping[str, object] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How ``engine`` is launched with a pair. ``depth`` is the value of ``knob``, which counts as ``counting`` says."""

    engine: str
    title: str
    drafter: str
    block_size: int
    knob: str
    counting: str
    depth: int
    steps: tuple[RecipeStep, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    source: tuple[str, ...]
    checked: str

    @property
    def text(self) -> str:
        """Everything but the warnings, to be read; what is not a command or a file is behind ``#``."""
        head = [f"# {self.title}: {self.drafter} drafter, block size {self.block_size}"]
        head.append(f"# {self.knob} {self.depth}: {self.counting}")
        blocks = ["\n".join(head), *map(_block, self.steps)]
        tail = [f"# note: {note}" for note in self.notes]
        tail += [f"# source: {source}" for source in self.source]
        return "\n\n".join([*blocks, "\n".join([*tail, f"# checked: {self.checked}"])]) + "\n"


def recipe(
    engine: str,
    *,
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    concurrency: int | None = None,
    gpus: int = 1,
    mlx_bits: int | None = None,
) -> Recipe:
    """The recipe of ``engine`` (a name of `ENGINES`) for a target and a drafter.

    Each is a GGUF file, a folder of safetensors, or a repository of the hub (of a drafter only the config, or a
    GGUF's header, is read; of a target on the hub only the name). ``concurrency`` are requests at once, ``mlx_bits``
    the bits of quantized MLX weights. Raises `DflashError` when there is no line for this case.
    """
    row = ENGINES.get(engine)
    if row is None:
        raise TemplateError("the engine", value=engine, expected=f"one of {', '.join(ENGINES)}")
    _check_numbers(concurrency, gpus, mlx_bits)
    drafter, goal = read_drafter(draft), read_target(target)
    check_pair(drafter, goal)
    case = case_of(drafter, goal, concurrency, gpus, mlx_bits)
    made = cook(row, case)
    return replace(made, warnings=(*made.warnings, *_idle(row, case, made)))


def case_of(
    drafter: Drafter, target: Target, concurrency: int | None = None, gpus: int = 1, mlx_bits: int | None = None
) -> Case:
    """One case; the names of both say of which family the target is."""
    family = family_of(f"{target.label} {drafter.place.name}")
    return Case(drafter, target, family, concurrency, gpus, mlx_bits)


def _idle(engine: Engine, case: Case, made: Recipe) -> Iterator[str]:
    """What was asked for, and changes neither a step nor a warning."""
    for name, (unsaid, what) in OPTIONAL.items():
        value, other = getattr(case, name), replace(case, **{name: unsaid})
        if value in (unsaid, 1):
            continue
        without = cook(engine, other)
        if (without.steps, without.warnings) == (made.steps, made.warnings):
            yield f"{what} ({value}) have no effect here: nothing in {engine.title} for this pair takes them"


def cook(engine: Engine, case: Case) -> Recipe:
    """The recipe of one row of the table for one case."""
    values, counting = _values(engine, case), engine.depth.counting
    if case.drafter.kind not in engine.kinds:
        raise TemplateError(
            f"no line is known for a {values['kind']} drafter in {engine.title}",
            expected=" or ".join(TITLES[kind] for kind in TITLES if kind in engine.kinds),
            remedy="llama-server runs it: `dflash-gguf recipe llama-server`",
        )
    told = [constraint for constraint in engine.constraints if constraint.when(case)]
    for constraint in told:
        if constraint.fatal:
            raise TemplateError(constraint.text.format_map(values), remedy=constraint.remedy)
    return Recipe(
        engine=engine.name,
        title=engine.title,
        drafter=values["kind"],
        block_size=case.block,
        knob=engine.depth.knob,
        counting=ANCHORED if counting == DRAFTED and case.drafter.anchor_first else counting,
        depth=engine.depth.of(case),
        steps=tuple(_step(step, case, values) for step in (*engine.install, *engine.steps) if step.when(case)),
        notes=_texts(engine.notes, case, values),
        warnings=_texts(told, case, values),
        source=engine.source,
        checked=engine.checked,
    )


def _values(engine: Engine, case: Case) -> dict[str, str]:
    """What the words of reasons and constraints can name."""
    return {
        "engine": engine.title,
        "kind": TITLES[case.drafter.kind],
        "block": str(case.block),
        "gpus": str(case.gpus),
        "requests": str(case.requests),
        "mask": str(case.drafter.mask_token_id),
        "effort": case.family.effort,
        "levels": ", ".join(case.family.levels),
        "level": case.family.default,
    }


def _texts(constraints: Iterable[Constraint], case: Case, values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(constraint.text.format_map(values) for constraint in constraints if constraint.when(case))


def _step(step: Step, case: Case, values: Mapping[str, str]) -> RecipeStep:
    return _command(step, case, values) if step.form == "shell" else _file(step, case, values)


def _command(step: Step, case: Case, values: Mapping[str, str]) -> RecipeStep:
    rows = [(tuple(row.words(case)), row.why) for row in step.rows if row.when(case)]
    exports = [(setting.key, str(setting.value(case)), setting.why) for setting in step.exports if setting.when(case)]
    lines = [spell.export(name, value) for name, value, _ in exports]
    reasons = [(name, why) for name, _, why in exports] + [(_shown(words), why) for words, why in rows if why]
    return RecipeStep(
        title=step.title,
        form=step.form,
        text="\n".join([*lines, spell.command([words for words, _ in rows])]),
        words=tuple(word for words, _ in rows for word in words),
        exports={name: value for name, value, _ in exports},
        reasons=tuple(Reason(words, why.format_map(values)) for words, why in reasons),
    )


def _shown(words: tuple[str, ...]) -> str:
    """A row as its reason names it: by its flag; nothing else is named, since it can be any text."""
    return words[0].partition("=")[0] if words[0].startswith("-") else ""


def _file(step: Step, case: Case, values: Mapping[str, str]) -> RecipeStep:
    settings = [setting for setting in step.settings if setting.when(case)]
    wrapped = step.wrap(case, {setting.key: setting.value(case) for setting in settings})
    return RecipeStep(
        title=step.title,
        form=step.form,
        text=spell.document(step.form, wrapped),
        path=step.path,
        values=wrapped,
        reasons=tuple(Reason(setting.key, setting.why.format_map(values)) for setting in settings),
    )


def _block(step: RecipeStep) -> str:
    text = step.text.rstrip("\n")
    named = (f"{reason.words}: {reason.why}" if reason.words else reason.why for reason in step.reasons)
    reasons = "".join(f"\n#   {text}" for text in named)
    title = f"# {step.title}" if step.form == "shell" or step.path in step.title else f"# {step.title}: {step.path}"
    return f"{title}\n{text}{reasons}"


def _check_numbers(concurrency: int | None, gpus: int, mlx_bits: int | None) -> None:
    for name, value in (("concurrency", 1 if concurrency is None else concurrency), ("gpus", gpus)):
        if type(value) is not int or not 1 <= value <= MOST:
            raise TemplateError(f"`{name}`", value=value, expected=f"a whole number from 1 to {MOST}")
    if mlx_bits not in (None, *MLX_BITS):
        raise TemplateError("`mlx_bits`", value=mlx_bits, expected=" or ".join(map(str, MLX_BITS)))
