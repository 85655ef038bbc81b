"""Options about types, which `convert` and `quantize` share, with llama-quantize's names and meaning.

Comes in: nothing. Goes out: a click decorator. Choices come from the tables of the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.options import NamedPath
from dflash_gguf.quantize.mixes import MIXES
from dflash_gguf.quantize.recipe import TENSOR_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable

_TYPE: Final = click.Choice(TENSOR_TYPES, case_sensitive=False)


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Each ``PATTERN=TYPE`` as a pair, or a usage error."""
    found = []
    for value in values:
        pattern, equals, kind = value.partition("=")
        if not pattern or not equals or "\0" in pattern:
            raise click.BadParameter(f"{value!r} is not PATTERN=TYPE", ctx, param)
        found.append((pattern, str(_TYPE.convert(kind, param, ctx))))
    return tuple(found)


def quantize_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The keywords of `QuantizeOptions`, each with its flag."""
    mixes = "; ".join(f"{mix.name}: {mix.about}" for mix in MIXES.values())
    for option in (
        click.option(
            "--leave-output-tensor", is_flag=True, help="Leave the drafter's own head, output.weight, as it is."
        ),
        click.option(
            "--token-embedding-type", type=_TYPE, metavar="TYPE", help="Type of the drafter's own embeddings."
        ),
        click.option("--output-tensor-type", type=_TYPE, metavar="TYPE", help="Type of the drafter's own head."),
        click.option(
            "--tensor-type",
            "tensor_types",
            callback=_pairs,
            metavar="PATTERN=TYPE",
            multiple=True,
            help="Type of the tensors in whose names PATTERN, a regular expression, is found. May be repeated.",
        ),
        click.option("--pure", is_flag=True, help="Give every tensor the file's type, none a better one."),
        click.option(
            "--imatrix",
            type=NamedPath(),
            help="Weigh columns by this importance matrix, a GGUF or llama.cpp's older form: see `imatrix`.",
        ),
        click.option(
            "--mix",
            type=click.Choice(tuple(MIXES), case_sensitive=False),
            metavar="NAME",
            help=f"A named assignment of types instead of one for the file. {mixes}.",
        ),
    ):
        command = option(command)
    return command
