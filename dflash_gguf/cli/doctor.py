"""``dflash-gguf doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dflash_gguf.cli.errors import NOT_PASSED
from dflash_gguf.cli.output import Output, json_option

if TYPE_CHECKING:
    from dflash_gguf.probes.checks import Check

_HEADINGS = (("problem", "To mend it:"), ("warning", "If you need it:"))


@click.command("doctor", short_help="Check this machine and what is installed.")
@json_option
@click.pass_context
def command(ctx: click.Context) -> None:
    """Checks Python, the packages, libllama and its devices, the hub's cache and ollama. Asks nothing on the network.

    The exit code is 0 when there is no problem, 3 when there is; warnings alone are none.
    """
    from dflash_gguf.doctor import as_dict, examine, healthy, remedies

    output: Output = ctx.obj
    checks = examine()
    output.result(as_dict(checks))
    output.table(("check", "status", "found"), [_row(check) for check in checks])
    for status, heading in _HEADINGS:
        commands = remedies(checks, status)
        if commands:
            output.line("\n".join(["", heading, *(f"  {text}" for text in commands)]))
    ctx.exit(0 if healthy(checks) else NOT_PASSED)


def _row(check: Check) -> tuple[str, str, str]:
    return check.name, check.status, check.found.replace("\n", " ")
