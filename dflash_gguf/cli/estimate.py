"""``dflash-gguf estimate``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.errors import NOT_PASSED
from dflash_gguf.cli.hub_options import Models, models_options
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.session_options import session_arguments, session_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.runner.estimate import Estimate, Share

COLUMNS: Final = {
    "weights": "weights",
    "kv": "KV",
    "states": "states",
    "compute": "compute",
    "outputs": "outputs",
    "total": "total",
}
"""A part of a share -> its heading."""


@click.command("estimate", short_help="Say how much memory a session will take.")
@models_options(required=True)
@session_options
@verbose_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, models: Models, *, verbose: bool, **options: Any) -> None:
    """Counts the memory of a session without loading it, by model, purpose and device, and says whether it is there.

    Reads headers alone, of files on the hub too. Exits with 3 when a device has less than is needed.

    \b
    dflash-gguf estimate -m Qwen3.8-27B-Q4_K_M.gguf -md dflash-Qwen3.8-27B-Q4_K_M.gguf -c 32768
    """
    from dflash_gguf.runner.estimate import estimate, sentence

    output: Output = ctx.obj
    native_log(ctx, verbose=verbose)
    target = models.find_target(ctx)
    draft = models.find_draft(ctx, target)
    with TemporaryDirectory() as folder:
        ours = target.outline(Path(folder, "target"))
        theirs = None if draft is None else draft.outline(Path(folder, "draft"))
        found = estimate(ours, theirs, **session_arguments(options))
    output.line(_title(found))
    output.table(["", "device", *COLUMNS.values()], _rows(found))
    for need in found.needs:
        output.line(sentence(need))
    output.result(found.as_dict())
    ctx.exit(0 if found.fits else NOT_PASSED)


def _title(found: Estimate) -> str:
    drafted = f", up to {found.n_max} tokens drafted a round" if found.draft else ""
    return f"a context of {found.n_ctx} tokens{drafted}; in MB of 1,000,000 bytes"


def _rows(found: Estimate) -> list[list[str]]:
    return [
        [name, share.device, *_cells(share)]
        for name, shares in (("target", found.target), ("drafter", found.draft))
        for share in _worth_showing(shares)
    ]


def _worth_showing(shares: Sequence[Share]) -> list[Share]:
    return [share for share in shares if share.total]


def _cells(share: Share) -> list[str]:
    return [f"{getattr(share, name) / 1e6:,.1f}" for name in COLUMNS]
