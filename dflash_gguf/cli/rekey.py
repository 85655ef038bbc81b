"""``dflash-gguf rekey``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dflash_gguf.cli.options import NamedPath, force_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.value_options import value_options
from dflash_gguf.rekeying.answers import QUESTIONS, Answers

if TYPE_CHECKING:
    from pathlib import Path

    from dflash_gguf.rekeying.plan import RekeyPlan


@click.command("rekey", short_help="Make a fork's drafter file load in llama.cpp.")
@click.argument("old", type=NamedPath())
@click.argument("new", type=NamedPath())
@click.option(
    "--target",
    type=NamedPath(),
    help="The target's GGUF or its Hugging Face folder: it gives the tokenizer to a file without one.",
)
@click.option("--dry-run", is_flag=True, help="Print what would change, and write nothing.")
@value_options(QUESTIONS)
@force_option
@json_option
@click.pass_obj
def command(
    output: Output, /, old: Path, new: Path, target: Path | None, *, dry_run: bool, force: bool, **given: Any
) -> None:
    """Copies the drafter OLD to NEW under the names that llama.cpp reads; its tensor data stays as it is.

    \b
    dflash-gguf rekey dflash-draft-3.6-q8_0.gguf dflash-Qwen3.6-27B-Q8_0.gguf --target Qwen3.6-27B-Q4_K_M.gguf
    """
    from dflash_gguf.rekeying import api

    answers = Answers(**given)
    if dry_run:
        decided = api.planned(old, target, answers)
        _show(output, decided, None)
        return
    with output.progress("re-keying") as progress:
        done = api.rekey(old, new, target, answers, force=force, progress=progress)
    _show(output, done.plan, done.path)


def _show(output: Output, decided: RekeyPlan, written: Path | None) -> None:
    for note in decided.notes:
        output.warning(note)
    output.result(as_dict(decided, written))
    if decided.changes:
        rows = [(change.old or "(none)", "->", change.new or "(dropped)", change.value) for change in decided.changes]
        output.table(("key", "", "becomes", "value"), rows)
        output.line()
    if decided.renames:
        output.table(("tensor", "", "becomes"), [(old, "->", new) for old, new in decided.renames])
        output.line()
    if not decided.changed:
        output.line("nothing to change")
    output.line("nothing was written" if written is None else f"wrote {written}")


def as_dict(decided: RekeyPlan, written: Path | None) -> dict[str, Any]:
    """A plan as plain JSON values."""
    return {
        "path": None if written is None else str(written),
        "changed": decided.changed,
        "n_bytes": decided.n_bytes,
        "keys": [{"old": row.old, "new": row.new, "value": row.value} for row in decided.changes],
        "tensors": [{"old": old, "new": new} for old, new in decided.renames],
        "notes": list(decided.notes),
    }
