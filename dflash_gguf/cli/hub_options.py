"""How a command is told its models: files by ``-m`` and ``-md``, repositories by ``-hf`` and ``-hfd``, in any mixture.

Comes in: nothing. Goes out: a click decorator, and a `Models` that finds and downloads what was named. Names of the
flags are llama.cpp's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from dflash_gguf import environment
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import NamedPath
from dflash_gguf.errors import HubError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dflash_gguf.cli.output import Output
    from dflash_gguf.hub.conversions import Conversion
    from dflash_gguf.hub.models import Model
    from dflash_gguf.hub.spec import HubSpec

FILE: Final = NamedPath()


def _repository(text: str) -> HubSpec:
    from dflash_gguf.hub.spec import parse_spec

    try:
        return parse_spec(text)
    except HubError as error:
        raise click.BadParameter(f"{error}; a file is named with -m or -md") from None


NO_TARGET: Final = "name the target with -m or -hf"
METAVAR: Final = "REPO[@REV][:TYPE]"

_TARGETS: Final = (
    click.option(
        "-hf",
        "-hfr",
        "--hf-repo",
        type=_repository,
        metavar=METAVAR,
        envvar=environment.ARG_HF_REPO,
        help="The target's repository on the hub, as ORG/REPO:Q4_K_M.",
    ),
)
_DRAFTERS: Final = (
    click.option(
        "-hfd",
        "-hfrd",
        "--hf-repo-draft",
        "--spec-draft-hf",
        "hf_repo_draft",
        type=_repository,
        metavar=METAVAR,
        envvar=environment.ARG_DRAFT_HF_REPO,
        help="The drafter's repository. Default: the drafter beside the target.",
    ),
)
_BOTH: Final = (
    click.option(
        "-hff", "--hf-file", metavar="PATH", envvar=environment.ARG_HF_FILE, help="The target's file in its repository."
    ),
    click.option("-hft", "--hf-token", metavar="TOKEN", help="Default: HF_TOKEN, or what `hf auth login` keeps."),
    click.option(
        "--offline", is_flag=True, envvar=environment.ARG_OFFLINE, help="Take repositories from the cache alone."
    ),
)


@dataclass(frozen=True, slots=True)
class Models:
    """What a command line names; nothing is looked up before it is asked for."""

    target: Path | None
    draft: Path | None
    hf_repo: HubSpec | None
    hf_repo_draft: HubSpec | None
    hf_file: str | None
    hf_token: str | None = field(repr=False)
    offline: bool

    @property
    def named(self) -> bool:
        """Whether there is a target."""
        return self.target is not None or self.hf_repo is not None

    def find_target(self, ctx: click.Context) -> Model:
        """The target, not downloaded yet; what there is to say of it is noted."""
        from dflash_gguf.hub.models import LocalModel
        from dflash_gguf.hub.pairs import OnHub, find_target

        if self.hf_repo is not None:
            found = find_target(self._hub(), OnHub(self.hf_repo, self.hf_file or ""))
            _tell(ctx, found)
            return found
        if self.target is None:
            raise click.UsageError(NO_TARGET, ctx)
        return LocalModel(self.target)

    def find_draft(self, ctx: click.Context, target: Model | None) -> Model | None:
        """The drafter, not downloaded yet: the one that was named, or the one beside the target; None: there is none.

        Safetensors are converted here. Without a target the names alone must tell which is meant.
        """
        from dflash_gguf.hub.models import LocalModel
        from dflash_gguf.hub.pairs import OnHub, find_drafter, find_sidecar

        if self.hf_repo_draft is not None:
            file = self.draft.as_posix() if self.draft else ""
            return _converted(ctx, find_drafter(self._hub(), OnHub(self.hf_repo_draft, file), target))
        if self.draft is not None:
            return LocalModel(self.draft)
        found = None if target is None else find_sidecar(target)
        if found is not None:
            output: Output = ctx.obj
            output.note(f"drafter: `{found.name}`, which lies beside the target")
        return found

    def find_pair(self, ctx: click.Context) -> tuple[Model, Model]:
        """Both, not downloaded yet."""
        from dflash_gguf.gguf_header import read_header

        target = self.find_target(ctx)
        draft = self.find_draft(ctx, target)
        if draft is None:
            if self.target is not None and not self.target.is_dir():
                read_header(self.target)  # a file that is not there, or no GGUF, is told first
            alone = ", or pass --no-draft to let the target decode alone" if "no_draft" in ctx.params else ""
            what = f"no drafter lies beside `{target.name}`: name the drafter with -md or -hfd{alone}"
            raise click.UsageError(what, ctx)
        return target, draft

    def target_file(self, ctx: click.Context) -> Path:
        """The target's path, downloaded if need be."""
        return fetched(ctx, self.find_target(ctx))

    def pair_files(self, ctx: click.Context) -> tuple[Path, Path]:
        """The paths of both, downloaded if need be, which begins when their headers fit each other."""
        from dflash_gguf.pair import check

        target, draft = self.find_pair(ctx)
        gguf = self.hf_repo is not None or (self.target is not None and self.target.is_file())
        if gguf and (target.missing or draft.missing):
            check(target.source(), draft.source()).raise_if_bad()
        return fetched(ctx, target), fetched(ctx, draft)

    def _hub(self) -> Any:
        from dflash_gguf.hub.client import hub

        return hub(token=self.hf_token, offline=self.offline)


NAMES: Final = tuple(one.name for one in fields(Models))
"""The parameters that become a `Models`."""


def models_options(
    *,
    required: bool,
    target: str = "The target's GGUF file.",
    draft: str | None = "The drafter's GGUF; with -hfd, its path in there.",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """All of them; the command is called with ``models`` in their place. ``required``: a target must be named.

    ``target`` and ``draft`` are the help of ``-m`` and ``-md``; ``draft`` None: the command takes no drafter.
    """
    file = click.option("-m", "--model", "target", type=FILE, help=target)
    rows: tuple[Callable[..., Any], ...] = (file, *_TARGETS, *_BOTH)
    if draft is not None:
        draft_file = click.option("-md", "--model-draft", "draft", type=FILE, help=draft)
        rows = (file, draft_file, *_TARGETS, *_DRAFTERS, *_BOTH)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        @click.pass_context
        def wrapped(ctx: click.Context, /, *args: Any, **options: Any) -> Any:
            models = _models(ctx, {name: options.pop(name, None) for name in NAMES})
            if required and not models.named:
                raise click.UsageError(NO_TARGET, ctx)
            return command(*args, models=models, **options)

        for option in reversed(rows):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def fetched(ctx: click.Context, model: Model) -> Path:
    """Its path, downloaded if need be, which is said."""
    output: Output = ctx.obj
    if model.missing:
        output.note(f"downloading `{model.name}`, {model.missing / 1e6:.1f} MB")
    return model.fetch()


def _models(ctx: click.Context, named: dict[str, Any]) -> Models:
    """What was typed wins over what the environment names."""
    typed = {name for name in NAMES if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for name, others in (("target", ("hf_repo", "hf_file")), ("hf_repo", ("hf_file",)), ("draft", ("hf_repo_draft",))):
        if name in typed:
            named |= {other: None for other in others if other not in typed}
    if named["target"] is not None and named["hf_repo"] is not None:
        raise click.UsageError("give the target with -m or -hf, not both", ctx)
    if named["hf_file"] is not None and named["hf_repo"] is None:
        raise click.UsageError("--hf-file needs -hf", ctx)
    if not ctx.params.get("from_model"):  # then -m names a model of ollama's
        _refuse_repository(ctx, "-m", "-hf", named["target"])
    _refuse_repository(ctx, "-md", "-hfd", None if named["hf_repo_draft"] else named["draft"])
    return Models(**named)


def _refuse_repository(ctx: click.Context, flag: str, instead: str, path: Path | None) -> None:
    from dflash_gguf.hub.spec import on_hub

    if path is not None and on_hub(path) is not None:
        what = f"{flag} takes a file, and there is no `{path}`; a repository is named with {instead}"
        raise click.UsageError(what, ctx)


def _tell(ctx: click.Context, found: Model | Conversion) -> None:
    output: Output = ctx.obj
    for note in found.notes:
        output.note(note)


def _converted(ctx: click.Context, found: Model | Conversion) -> Model:
    """The drafter as a file: safetensors are converted now, before anything of the target is downloaded."""
    from dflash_gguf.hub.conversions import Conversion
    from dflash_gguf.hub.models import LocalModel

    _tell(ctx, found)
    if not isinstance(found, Conversion):
        return found
    output: Output = ctx.obj
    if not found.path.is_file():
        native_log(ctx, verbose=bool(ctx.params.get("verbose")))
        output.note(f"converting `{found.listing.repo}` to {found.quant} for `{found.target.name}`: {found.path}")
    with output.progress("converting") as progress:
        path, notes = found.make(progress)
    for note in notes:
        output.warning(note)
    return LocalModel(path)
