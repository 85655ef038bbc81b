"""``dflash-gguf check``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.errors import NOT_PASSED
from dflash_gguf.cli.hub_options import Models, fetched, models_options
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import verbose_option
from dflash_gguf.cli.output import Output, json_option, printable
from dflash_gguf.cli.session_options import options_for

if TYPE_CHECKING:
    from dflash_gguf.findings import Finding, PairReport
    from dflash_gguf.runner.proof import Proof


def _build(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"b?(\d{1,9})", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is no build of llama.cpp, such as b10665")
    return int(match[1])


POOR: Final = 1.2
"""Mean acceptance length below which a drafter cannot pay on any machine."""
UNTRAINED: Final = "the drafter may not have been trained, or for another version of this target; get it again"


@click.command("check", short_help="Say all that is wrong with a pair.")
@models_options(required=True)
@click.option("--run", is_flag=True, help="Load the pair too, draft on built-in prompts, and see something accepted.")
@click.option("--runtime", callback=_build, metavar="BUILD", help="The llama.cpp that is to run the pair, as b10665.")
@options_for("n_threads", "type_k_draft", "type_v_draft")
@verbose_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    models: Models,
    *,
    run: bool,
    runtime: int | None,
    n_threads: int | None,
    type_k_draft: str,
    type_v_draft: str,
    verbose: bool,
) -> None:
    """Checks a target and its drafter by their headers: every finding in one report, with what to do.

    Of files on the hub it reads the headers alone, unless --run loads the pair.
    Exit code 0: the pair fits; 3: it does not.

    \b
    dflash-gguf check -m Qwen3.8-27B-Q4_K_M.gguf -md dflash-Qwen3.8-27B-Q4_K_M.gguf
    """
    from dflash_gguf.pair import check

    output: Output = ctx.obj
    target, draft = models.find_pair(ctx)
    report = check(target.source(), draft.source(), runtime=runtime, cache_types=(type_k_draft, type_v_draft))
    proof = None
    if run and report.ok:
        from dflash_gguf.runner.proof import prove

        native_log(ctx, verbose=verbose)
        files = fetched(ctx, target), fetched(ctx, draft)
        proof = prove(*files, n_threads=n_threads, type_k_draft=type_k_draft, type_v_draft=type_v_draft)
    passed = report.ok and (proof is None or proof.ok)
    output.result(as_dict(report) | {"ok": passed} | ({} if proof is None else {"run": proof.as_dict()}))
    _show(output, report)
    if proof is not None:
        _show_proof(output, proof)
    ctx.exit(0 if passed else NOT_PASSED)


def as_dict(report: PairReport) -> dict[str, Any]:
    """The report as plain JSON values."""
    return {
        "ok": report.ok,
        "target": report.target,
        "draft": report.draft,
        "kind": report.facts.kind if report.facts else None,
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "level": finding.level,
        "what": finding.what,
        "target": _plain(finding.target_value),
        "draft": _plain(finding.draft_value),
        "remedy": finding.remedy,
    }


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, int | str) else str(value)


def _show(output: Output, report: PairReport) -> None:
    for finding in report.findings:
        output.line(f"{finding.level}: {printable(finding.what)}")
        for side, value in (("target", finding.target_value), ("drafter", finding.draft_value)):
            if value is not None:
                output.line(f"  {side + ':':<9}{printable(str(value))}")
        output.line(f"  {'do:':<9}{printable(finding.remedy)}")
    n_errors = len(report.errors)
    n_warnings = len(report.findings) - n_errors
    counts = f"{_counted(n_errors, 'error')}, {_counted(n_warnings, 'warning')}"
    output.line(f"{counts}: the drafter {'fits' if report.ok else 'does not fit'} the target")


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _show_proof(output: Output, proof: Proof) -> None:
    output.line(
        f"{proof.drafter}: drafted {proof.draft_n} tokens in {proof.draft_calls} passes, "
        f"accepted {proof.draft_n_accepted}, mean acceptance length {proof.acceptance_length:.2f}"
    )
    if proof.ok:
        if proof.acceptance_length < POOR:
            output.line(f"that is little: {UNTRAINED}")
        return
    output.line("nothing was accepted; likely causes, the likeliest first:")
    for cause in proof.causes:
        output.line(f"  {cause.name + ':':<22}{cause.measured}")
        if cause.remedy:
            output.line(f"  {'do:':<22}{cause.remedy}")
    if not any(cause.remedy for cause in proof.causes):
        output.line(f"none of these is at fault, as far as was tried: {UNTRAINED}")
