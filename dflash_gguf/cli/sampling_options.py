"""The options of a choice, once for all commands that draw; names and meanings are llama.cpp's.

Comes in: nothing. Goes out: click decorators, and what was given as keywords of `Session.generate`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import click

from dflash_gguf.cli.options import Number, number_within, range_of, read_text
from dflash_gguf.errors import SessionError
from dflash_gguf.runner.bounds import BOUNDS, LONGEST_GRAMMAR, SEEDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from dflash_gguf.runner.sampling import SamplingOptions


def _type_of(name: str) -> click.IntRange | Number:
    return number_within(BOUNDS[name]) if name in BOUNDS else range_of(name)


@dataclass(frozen=True, slots=True)
class Row:
    """``usage`` are the flags; ``argument`` is `Sampling`'s, whose default it names."""

    usage: tuple[str, ...]
    argument: str
    help: str
    default: float


TABLE: Final = (
    Row(("--temp", "--temperature"), "temperature", "Temperature; 0: the best token.", 0.8),
    Row(("--top-k",), "top_k", "Keep the best so many; 0: all.", 40),
    Row(("--top-p",), "top_p", "Keep the best until they weigh so much; 1: all.", 0.95),
    Row(("--min-p",), "min_p", "Keep what weighs so much of the best; 0: all.", 0.05),
    Row(("--typical", "--typical-p"), "typical_p", "Keep the typical until they weigh so much; 1: all.", 1.0),
    Row(("--top-nsigma", "--top-n-sigma"), "top_n_sigma", "Keep what lies so many deviations below the best.", -1.0),
    Row(("--xtc-probability",), "xtc_probability", "How often to leave out the likely ones but for one.", 0.0),
    Row(("--xtc-threshold",), "xtc_threshold", "What weight is likely.", 0.1),
    Row(("--dynatemp-range",), "dynatemp_range", "How far the temperature follows the entropy.", 0.0),
    Row(("--dynatemp-exp",), "dynatemp_exponent", "By which power.", 1.0),
    Row(("--repeat-last-n",), "repeat_last_n", "Tokens that penalties look back at; -1: all.", 64),
    Row(("--repeat-penalty",), "repeat_penalty", "Divides the logit of a repeated token; 1: off.", 1.0),
    Row(("--presence-penalty",), "presence_penalty", "Taken from the logit of a token that occurred.", 0.0),
    Row(("--frequency-penalty",), "frequency_penalty", "Taken from it for each time.", 0.0),
    Row(("--dry-multiplier",), "dry_multiplier", "Strength of DRY, against repeated sequences; 0: off.", 0.0),
    Row(("--dry-base",), "dry_base", "Its base.", 1.75),
    Row(("--dry-allowed-length",), "dry_allowed_length", "Longest sequence that may be repeated.", 2),
    Row(("--dry-penalty-last-n",), "dry_penalty_last_n", "Tokens that DRY looks back at; -1: all.", 64),
)

_BIAS: Final = re.compile(r"(\d+)([+-])(\d+\.?\d*|inf)")


def _bias(text: str) -> tuple[int, float]:
    """``TOKEN_ID+BIAS`` or ``TOKEN_ID-BIAS``; a bias of inf bans."""
    found = _BIAS.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no token id with a bias, such as 15043+1 or 15043-inf")
    return int(found[1]), float(found[2] + found[3])


_OTHERS: Final = (
    click.option(
        "--dry-sequence-breaker",
        "dry_sequence_breakers",
        multiple=True,
        metavar="TEXT",
        help="Text that ends a sequence for DRY; repeatable.  [default: newline, colon, quote, asterisk]",
    ),
    click.option(
        "-l",
        "--logit-bias",
        multiple=True,
        type=_bias,
        metavar="ID(+|-)BIAS",
        help="Add to a token's logit; -inf bans it; repeatable.",
    ),
    click.option("--grammar", metavar="GBNF", help="A grammar that the text must follow."),
    click.option("--grammar-file", type=click.File("rb"), help="The same from a file."),
    click.option("-j", "--json-schema", metavar="SCHEMA", help="A JSON schema for the text; {}: any JSON."),
    click.option("-jf", "--json-schema-file", type=click.File("rb"), help="The same from a file."),
)


def sampling_options(*, temperature: float | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A flag for each setting of a choice; ``temperature``: another default than llama.cpp's."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(_OTHERS):
            command = option(command)
        for row in reversed(TABLE):
            default = temperature if temperature is not None and row.argument == "temperature" else row.default
            flag = click.option(
                *row.usage,
                row.argument,
                type=_type_of(row.argument),
                default=default,
                show_default=True,
                help=row.help,
            )
            command = flag(command)
        seed = click.option(
            "-s", "--seed", type=click.IntRange(-1, SEEDS - 1), default=-1, help="Key of the choices; -1: a random one."
        )
        return seed(command)

    return decorate


def sampling_arguments(ctx: click.Context, options: dict[str, Any]) -> SamplingOptions:
    """Takes what belongs to a choice out of a command's ``options``."""
    values: dict[str, Any] = {row.argument: options.pop(row.argument) for row in TABLE}
    seed = options.pop("seed")
    breakers = options.pop("dry_sequence_breakers")
    values |= {"seed": None if seed < 0 else seed, "logit_bias": dict(options.pop("logit_bias"))}
    if breakers:
        values["dry_sequence_breakers"] = breakers
    for name in ("grammar", "json_schema"):
        values[name] = _one_of(ctx, name, options.pop(name), options.pop(f"{name}_file"))
    if values["grammar"] is not None and values["json_schema"] is not None:
        raise click.UsageError("give a grammar or a JSON schema, not both", ctx)
    _check(ctx, values)
    return cast("SamplingOptions", values)


def check_tokens(ctx: click.Context, target: Path, biases: Mapping[int, float]) -> None:
    """A usage error for tokens of ``--logit-bias`` that the target lacks, before it is loaded."""
    if biases:
        from dflash_gguf.facts import TOKEN_LIMIT, count_of
        from dflash_gguf.gguf_header import read_header
        from dflash_gguf.schema import Keys

        _check_biases(ctx, biases, count_of(read_header(target), Keys.TOKENS) or TOKEN_LIMIT)


def _check_biases(ctx: click.Context, biases: Mapping[int, float], n_vocab: int) -> None:
    from dflash_gguf.runner.sampling import checked_biases

    try:
        checked_biases(biases, n_vocab)
    except SessionError as error:
        raise click.UsageError(str(error), ctx) from error


def _check(ctx: click.Context, values: dict[str, Any]) -> None:
    """What is wrong of itself, before anything is loaded; and a warning about what a schema does not hold a text to."""
    from dflash_gguf.facts import TOKEN_LIMIT
    from dflash_gguf.runner.json_schema import unenforced
    from dflash_gguf.runner.sampling import Sampling

    try:
        Sampling(**values).check_grammar()
    except SessionError as error:
        raise click.UsageError(str(error), ctx) from error
    _check_biases(ctx, values["logit_bias"], TOKEN_LIMIT)
    ignored = unenforced(values["json_schema"]) if values["json_schema"] is not None else ()
    if ignored:
        ctx.obj.warning(f"the JSON schema's {', '.join(map(repr, ignored))} will not be enforced: check the answer")


def _one_of(ctx: click.Context, name: str, text: str | None, file: BinaryIO | None) -> str | None:
    flag = name.replace("_", "-")
    if text is not None and file is not None:
        raise click.UsageError(f"give --{flag} or --{flag}-file, not both", ctx)
    if file is None:
        return text
    return read_text(ctx, file, f"the file of --{flag}-file", LONGEST_GRAMMAR)
