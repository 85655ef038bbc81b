"""A pair of GGUF files, checked for what ollama does with them.

Comes in: two paths, or the name of a model that ollama has and one path. Goes out: a `Source`.
Source of the rules: ollama parser/parser.go, server/create.go and quantization.go (v0.33.0-rc2).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.drafter import drafter_findings
from dflash_gguf.errors import PairError, TemplateError
from dflash_gguf.facts import DSPARK, drafter_facts, integer_of
from dflash_gguf.file_types import file_type_name
from dflash_gguf.findings import PairReport
from dflash_gguf.gguf_header import read_header
from dflash_gguf.hub.spec import on_hub
from dflash_gguf.modelfile.content import GGUF, Source
from dflash_gguf.pair import check
from dflash_gguf.rekeying.forks import is_drafter
from dflash_gguf.schema import ARCHITECTURE, Keys
from dflash_gguf.shards import SPLIT_COUNT

if TYPE_CHECKING:
    from dflash_gguf.facts import DrafterFacts
    from dflash_gguf.gguf_header import GGUFHeader

QUANTIZABLE: Final = ("F16", "BF16")
"""What ollama quantizes from; it takes the number of F32, 0, for an absent one."""


def gguf_pair(target: str | os.PathLike[str], draft: str | os.PathLike[str], *, from_model: bool) -> Source:
    """Read and check a pair; raises `PairError` when ollama would refuse or misuse it."""
    draft_path = gguf_path(draft, "drafter")
    draft_header = _whole(read_header(draft_path))
    if from_model:
        report = _alone(draft_header)
        unchecked = f"the pair was not checked: `{target}` is in ollama's store"
        return _source(str(target), draft_path, report, (unchecked,), from_model=True)
    target_path = gguf_path(target, "target")
    if target_path.samefile(draft_path):
        raise PairError(f"the target and the drafter are the same file, `{target_path.resolve()}`")
    report = check(_whole(read_header(target_path)), draft_header)
    return _source(str(target_path), draft_path, report, (), from_model=False)


def refuse_quantized(draft: Path) -> None:
    """Raise `PairError` unless ollama would quantize this drafter."""
    number = integer_of(read_header(draft), Keys.FILE_TYPE)
    name = "no file type" if number is None else file_type_name(number)
    if name not in QUANTIZABLE:
        raise PairError(
            f"`--draft-quantize` of `{draft}`",
            value=name,
            expected=" or ".join(QUANTIZABLE),
            remedy="convert the drafter to the type that you want: `dflash-gguf convert --quant Q4_K_M`",
        )


def gguf_path(source: str | os.PathLike[str], role: str) -> Path:
    """The absolute path of a GGUF file, links kept as they are; a folder stands for the only one in it."""
    path = absolute(source)
    if path.is_dir():
        return _only_gguf(path.resolve(), role)
    if not path.exists():
        spec = on_hub(source)
        remedy = f"if it is on the hub, download it first: `hf download {spec.repo}`" if spec is not None else ""
        raise TemplateError(f"the {role} `{path}` does not exist", expected="a GGUF file", remedy=remedy)
    return path


def absolute(source: str | os.PathLike[str]) -> Path:
    """The absolute path with the home folder written out, links kept as they are."""
    path = Path(os.path.expanduser(source)).absolute()  # noqa: PTH111 - leaves an unknown user's name alone
    # ollama shortens `LINK/..` by its letters, which can lead to another folder
    return path.parent.resolve() / path.name if ".." in path.parts else path


def _only_gguf(folder: Path, role: str) -> Path:
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        raise TemplateError(
            f"the {role} folder `{folder}` holds {len(found)} GGUF files",
            expected="one",
            remedy="name the file itself",
        )
    return found[0]


def _whole(header: GGUFHeader) -> GGUFHeader:
    """The header of a file that is not one of several; ollama is given one path, and takes that for all."""
    if (integer_of(header, SPLIT_COUNT) or 1) > 1:
        raise PairError(
            f"`{header.name}` is one part of a split file",
            expected="one whole file",
            remedy="join the parts with `llama-gguf-split --merge FIRST_PART OUT.gguf`",
        )
    return header


def _alone(draft: GGUFHeader) -> PairReport:
    """The check of a drafter whose target is out of sight."""
    name = draft.string(Keys.ARCHITECTURE, "")
    if name != ARCHITECTURE:
        what = "is a drafter of a fork" if is_drafter(name) else "is no drafter"
        remedy = "ollama launches every other architecture as an MTP drafter"
        raise PairError(f"`{draft.name}` {what}", value=name, expected=f"`{ARCHITECTURE}`", remedy=remedy)
    return PairReport("the target", draft.name, tuple(drafter_findings(draft)), drafter_facts(draft))


def _source(target: str, draft: Path, report: PairReport, warnings: tuple[str, ...], *, from_model: bool) -> Source:
    """The pair after the check and ollama's own limits."""
    report.raise_if_bad()
    facts = _drafter(draft, report)
    return Source(GGUF, target, draft, from_model, facts.kind, facts.block_size or 0, (*report.texts, *warnings))


def _drafter(draft: Path, report: PairReport) -> DrafterFacts:
    if report.facts is None:
        raise PairError(f"`{draft}` is not a drafter")
    if report.facts.kind == DSPARK:
        raise PairError(
            f"`{draft}` is a DSpark drafter",
            expected="DFlash or DFlash 2",
            remedy="ollama launches every drafter file as DFlash: run this one with llama-server",
        )
    return report.facts
