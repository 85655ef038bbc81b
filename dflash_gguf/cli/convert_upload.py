"""``convert --upload``: asked for, agreed to, done.

Comes in: options. Goes out: a question on stderr, and a commit in a repository of the hub.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.options import NamedPath

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dflash_gguf.cli.output import Output
    from dflash_gguf.convert.api import Result
    from dflash_gguf.convert.inputs import Inputs
    from dflash_gguf.hub.upload import Shelf


NAMES: Final = ("upload", "public", "bench_results", "yes")


def upload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--upload`` and what belongs to it."""
    bench = NamedPath()
    for option in (
        click.option("-y", "--yes", is_flag=True, help="Upload without asking."),
        click.option(
            "--bench-results", type=bench, help="What `bench --json` printed of this drafter, for the model card."
        ),
        click.option("--public", is_flag=True, help="Make a new repository of --upload public. Default: private."),
        click.option(
            "--upload", metavar="REPO", help="Put the file and a model card into this repository; asks first."
        ),
    ):
        command = option(command)
    return command


def _someone_is_there() -> bool:
    return sys.stdin.isatty()


@dataclass(frozen=True, slots=True)
class Upload:
    """Where to, what was measured, and whether the user has agreed already."""

    shelf: Shelf
    bench: Mapping[str, Any] | None
    yes: bool

    @classmethod
    def asked(cls, ctx: click.Context, given: dict[str, Any]) -> Upload | None:
        """What the options ask for, which are taken out of ``given``.

        Wrong usage, and what can be known to fail, is told before anything is converted.
        """
        repo, public, bench, yes = (given.pop(name) for name in NAMES)
        if repo is None:
            if public or yes or bench is not None:
                raise click.UsageError("--public, --yes and --bench-results belong to --upload", ctx)
            return None
        from dflash_gguf.convert.publish import read_bench, shelf_name
        from dflash_gguf.hub.client import hub
        from dflash_gguf.hub.upload import find_shelf

        if not yes and not _someone_is_there():
            raise click.UsageError("--upload asks first, and nobody is there to answer: add --yes", ctx)
        name = shelf_name(repo)
        results = None if bench is None else read_bench(bench)
        return cls(find_shelf(hub(), name, public=public), results, yes)

    def agreed(self, output: Output, *, dry_run: bool) -> bool:
        """The answer to the question, where one is asked."""
        what = f"the file and a model card into {self.shelf}"
        if dry_run or self.yes:
            output.note(f"{'would put' if dry_run else 'will put'} {what}")
            return True
        return click.confirm(f"Put {what}, once it is converted?", err=True)

    def run(self, output: Output, inputs: Inputs, result: Result) -> str:
        """The upload; returns the commit's address."""
        from dflash_gguf.convert.publish import publish
        from dflash_gguf.errors import HubError

        try:
            done = publish(self.shelf, inputs, result, self.bench)
        except HubError as error:
            remedy = f"{error.remedy}; the file is whole: `hf upload {self.shelf.repo} {result.path}`"
            raise type(error)(error.what, remedy=remedy) from error
        for note in done.notes:
            output.warning(note)
        output.line(f"uploaded: {done.url}")
        return done.url
