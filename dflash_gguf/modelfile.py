"""The Modelfile by which ``ollama create`` joins a GGUF target and its GGUF drafter.

Comes in: two paths and a depth. Goes out: a frozen `Modelfile`, or the file on disk. Knows nothing of the
store of ollama, and runs nothing.
Source of the rules: ollama's parser (v0.33.0-rc2). An unquoted value runs to the end of its line and is
trimmed at both ends; there are no trailing comments; characters that Go's ``unicode.IsPrint`` refuses are
dropped without a word; a ``FROM`` that is no file is taken for a model's name.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from dflash_gguf.atomic import write_text
from dflash_gguf.errors import OutputError, PairError, TemplateError
from dflash_gguf.facts import DFLASH2, DSPARK, DrafterFacts
from dflash_gguf.pair import check

if TYPE_CHECKING:
    from dflash_gguf.findings import PairReport

MIN_OLLAMA: Final = "0.32.7"
"""The first release that launches a GGUF drafter as DFlash; older ones take it for an MTP drafter."""

LAST_WITHOUT_DFLASH2: Final = "0.33.0-rc2"
"""The newest ollama whose llama.cpp is known to be too old for DFlash 2; which release came first is not known."""

DFLASH2_BUILD: Final = "b10665"
"""The first build of llama.cpp that loads DFlash 2."""

DFLASH2_NOTE: Final = (
    f"# DFlash 2 needs an ollama newer than {LAST_WITHOUT_DFLASH2}: its llama.cpp must be {DFLASH2_BUILD} or later.\n"
)

SEMVER: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?((?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)")
"""A version as ollama takes it: three numbers, then what follows them."""


@dataclass(frozen=True, slots=True)
class Modelfile:
    """A rendered Modelfile: its text (ends with one newline), the command that uses it, and warnings."""

    text: str
    create_command: str
    warnings: tuple[str, ...]


def render(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    draft_num_predict: int | None = None,
    *,
    requires: str | None = None,
) -> Modelfile:
    """Render the Modelfile of a pair; each argument is a GGUF file, or a folder with exactly one.

    ``draft_num_predict`` is the number of drafted tokens a round (default: block size - 1, 0: off);
    ``requires`` is the lowest ollama version. Raises `PairError` when the two files do not fit each other,
    `TemplateError` when a value cannot be written in a Modelfile.
    """
    target_path, draft_path = gguf_path(target, "target"), gguf_path(draft, "drafter")
    if target_path.samefile(draft_path):
        raise PairError(f"the target and the drafter are the same file, `{target_path.resolve()}`")
    report, facts = _checked(target_path, draft_path)
    depth, warnings = _depth(draft_num_predict, facts.block_size or 0)
    version, version_warnings = _version(requires)
    text = Template(_template()).substitute(
        notes=DFLASH2_NOTE if facts.kind == DFLASH2 and requires is None else "",
        target=line_value(str(target_path)),
        draft=line_value(str(draft_path)),
        draft_num_predict=depth,
        requires=version,
    )
    return Modelfile(text, _create_command(target_path, "Modelfile"), report.texts + warnings + version_warnings)


def write(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    out: str | os.PathLike[str] = "Modelfile",
    draft_num_predict: int | None = None,
    *,
    requires: str | None = None,
    force: bool = False,
) -> Modelfile:
    """Render and write to ``out``; the command names that file.

    Raises as `render` does, and `OutputError` when ``out`` exists and ``force`` is false.
    """
    modelfile = render(target, draft, draft_num_predict, requires=requires)
    models = gguf_path(target, "target"), gguf_path(draft, "drafter")
    if Path(out).exists() and any(model.samefile(out) for model in models):
        raise OutputError(f"`{out}` is one of the two models", remedy="choose another name")
    path = write_text(out, modelfile.text, force=force)
    return replace(modelfile, create_command=_create_command(models[0], str(path)))


def line_value(value: str) -> str:
    """``value`` as the argument of a one-line command, such that ollama reads back exactly that.

    Raises `TemplateError` when no spelling of it survives ollama's parser.
    """
    dropped = [char for char in value if not char.isprintable()]
    if dropped:
        raise TemplateError(
            f"a Modelfile cannot hold the character U+{ord(dropped[0]):04X}",
            value=value,
            remedy="rename the file or folder, or link to it under another name",
        )
    if not value or value.startswith('"'):
        raise TemplateError(
            "a Modelfile value cannot be empty or start with a quote", value=value, remedy="rename the file"
        )
    return value if value == value.strip(" ") else f'"{value}"'


def gguf_path(source: str | os.PathLike[str], role: str) -> Path:
    """The absolute path of a GGUF file, links kept as they are; a folder stands for the only one in it."""
    path = Path(os.path.expanduser(source)).absolute()  # noqa: PTH111 - leaves an unknown user's name alone
    if ".." in path.parts:
        # ollama shortens `LINK/..` by its letters, which can lead to another folder
        path = path.parent.resolve() / path.name
    if path.is_dir():
        return _only_gguf(path.resolve(), role)
    if not path.exists():
        raise TemplateError(f"the {role} `{path}` does not exist", expected="a GGUF file")
    return path


def _only_gguf(folder: Path, role: str) -> Path:
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        raise TemplateError(
            f"the {role} folder `{folder}` holds {len(found)} GGUF files",
            expected="one",
            remedy="name the file itself",
        )
    return found[0]


def _checked(target: Path, draft: Path) -> tuple[PairReport, DrafterFacts]:
    """The pair check, and the drafter's facts, after ollama's own limits."""
    report = check(target, draft)
    report.raise_if_bad()
    if report.facts is None:
        raise PairError(f"`{draft}` is not a drafter")
    if report.facts.kind == DSPARK:
        raise PairError(
            f"`{draft}` is a DSpark drafter",
            expected="DFlash or DFlash 2",
            remedy="ollama launches every drafter file as DFlash: run this one with llama-server",
        )
    return report, report.facts


def _depth(wanted: int | None, block_size: int) -> tuple[int, tuple[str, ...]]:
    """The value of ``draft_num_predict`` and what to say about it."""
    deepest = block_size - 1
    if wanted is None:
        return deepest, ()
    if type(wanted) is not int or wanted < 0:
        raise TemplateError("`draft_num_predict`", value=wanted, expected=f"a whole number from 0 to {deepest}")
    if wanted <= deepest:
        return wanted, ()
    return deepest, (f"`draft_num_predict` {wanted} is more than the drafter's block allows, wrote {deepest}",)


def _version(requires: str | None) -> tuple[str, tuple[str, ...]]:
    """The value of ``REQUIRES`` and what to say about it."""
    if requires is None:
        return MIN_OLLAMA, ()
    match = SEMVER.fullmatch(requires)
    if match is None:
        raise TemplateError("`REQUIRES`", value=requires, expected=f"a version such as {MIN_OLLAMA}")
    numbers = tuple(int(part or 0) for part in match.groups()[:3])
    if numbers >= tuple(map(int, MIN_OLLAMA.split("."))):
        return requires.removeprefix("v"), ()
    warning = f"ollama below {MIN_OLLAMA} does not launch a DFlash drafter as one"
    return requires.removeprefix("v"), (warning,)


def _template() -> str:
    return (files("dflash_gguf") / "Modelfile.template").read_text(encoding="utf-8")


def _create_command(target: Path, modelfile: str) -> str:
    """The shell command that creates a model named after the target's file."""
    stem = re.sub(r"[^a-z0-9._-]+", "-", target.stem.lower()).strip("-._")
    return f"ollama create {stem or 'target'}-dflash -f {shlex.quote(modelfile)}"
