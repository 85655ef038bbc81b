"""The options of a session, once for all commands that open one; names and meanings are llama.cpp's.

Comes in: nothing. Goes out: click decorators, what was given as arguments of `Session`, and what a session made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.cli.options import number_within, range_of
from dflash_gguf.runner.bounds import ARGMAX, AUTO, DEPTHS, DRAFT_HEADS, DRAFT_RULES, SHARE
from dflash_gguf.runtimes import CACHE_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dflash_gguf.cli.output import Output
    from dflash_gguf.runner.session import Session

FLASH: Final = ("auto", "on", "off")
SPLITS: Final = ("none", "layer", "row", "tensor")
PLACING: Final = (
    "n_threads",
    "n_ubatch",
    "flash_attention",
    "n_gpu_layers",
    "device",
    "split_mode",
    "main_gpu",
    "tensor_split",
)
"""Where and how fast a session runs, not what it does."""


def _names(text: str | tuple[str, ...]) -> tuple[str, ...]:
    return text if isinstance(text, tuple) else tuple(part.strip() for part in text.split(","))


def _shares(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of numbers, such as 3,1") from None


@dataclass(frozen=True, slots=True)
class Row:
    """``usage`` are the flags; ``argument`` is Session's; a ``default`` of None leaves it to Session."""

    usage: tuple[str, ...]
    argument: str
    type: Any
    help: str
    default: Any = None
    metavar: str | None = None


def _cache(letter: str, draft: str, of: str) -> Row:
    flags = (f"-ct{letter}{draft[:1]}", f"--cache-type-{letter}{'-draft' if draft else ''}")
    argument = f"type_{letter}{'_draft' if draft else ''}"
    whose = "the drafter's cache" if draft else "the cache"
    return Row(flags, argument, click.Choice(CACHE_TYPES), f"Type of {whose} of {of}.", "f16", "TYPE")


TABLE: Final = (
    Row(("-t", "--threads"), "n_threads", range_of("n_threads"), "Threads to use. Default: the physical cores."),
    Row(("-td", "--threads-draft"), "n_threads_draft", range_of("n_threads_draft"), "Threads of the drafter."),
    Row(("-c", "--ctx-size"), "n_ctx", range_of("n_ctx"), "Context in tokens; 0: the target's own.", 4096),
    Row(
        ("-cd", "--ctx-size-draft"),
        "n_ctx_draft",
        range_of("n_ctx_draft"),
        "The drafter's context; behind its end nothing is drafted. Default: the target's.",
    ),
    Row(("-b", "--batch-size"), "n_batch", range_of("n_batch"), "Prompt tokens in one pass at the most."),
    Row(("-ub", "--ubatch-size"), "n_ubatch", range_of("n_ubatch"), "Prompt tokens in one pass.", 512),
    Row(
        ("--spec-draft-n-max",),
        "spec_draft_n_max",
        range_of("spec_draft_n_max"),
        "Tokens to draft a round. Default and most: what a block holds.",
    ),
    Row(("-fa", "--flash-attn"), "flash_attention", click.Choice(FLASH), "Flash attention.", "auto"),
    _cache("k", "", "keys"),
    _cache("v", "", "values"),
    _cache("k", "draft", "keys"),
    _cache("v", "draft", "values"),
    Row(("-ngl", "--n-gpu-layers"), "n_gpu_layers", range_of("n_gpu_layers"), "Layers on the GPU; -1: all.", -1),
    Row(
        ("-dev", "--device"), "device", _names, "Devices, as `doctor` lists them; none: the CPU alone.", None, "NAME,.."
    ),
    Row(("-devd", "--device-draft"), "device_draft", _names, "Devices of the drafter.", None, "NAME,.."),
    Row(("-sm", "--split-mode"), "split_mode", click.Choice(SPLITS), "How several GPUs share a model.", "layer"),
    Row(("-mg", "--main-gpu"), "main_gpu", range_of("main_gpu"), "The GPU of split mode none.", 0),
    Row(("--depth",), "depth", click.Choice(DEPTHS), "Who decides how many tokens are drafted.", AUTO),
    Row(
        ("--spec-draft-n-min",), "spec_draft_n_min", range_of("spec_draft_n_min"), "Shorter drafts are not verified.", 0
    ),
    Row(("--spec-draft-p-min",), "spec_draft_p_min", number_within(SHARE), "Less likely tokens are not verified.", 0.0),
    Row(("--draft-rule",), "draft_rule", click.Choice(DRAFT_RULES), "How a DFlash 2 drafter picks.", ARGMAX),
    Row(("--draft-head",), "draft_head", click.Choice(DRAFT_HEADS), "The head of a drafter that has none.", AUTO),
    Row(("--rpc",), "rpc", _names, "RPC servers whose devices to use.", (), "HOST:PORT,.."),
    Row(("-ts", "--tensor-split"), "tensor_split", _shares, "Share of each GPU.", None, "N,N,.."),
)


def options_for(*arguments: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A flag for each of these arguments of `Session`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for row in reversed(TABLE):
            if row.argument in arguments:
                command = click.option(
                    *row.usage,
                    row.argument,
                    type=row.type,
                    default=row.default,
                    show_default=row.default not in (None, ()),
                    metavar=row.metavar,
                    help=row.help,
                )(command)
        return command

    return decorate


def session_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for each row, ``--exact`` and ``--mmap``."""
    exact = click.option(
        "--exact", is_flag=True, help="The same tokens as without the drafter, rounding or not; slower."
    )
    mmap = click.option("--mmap/--no-mmap", "use_mmap", default=None, help="Whether weights are mapped or read.")
    return options_for(*(row.argument for row in TABLE))(exact(mmap(command)))


def session_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Takes what belongs to `Session` out of a command's ``options``."""
    return {name: options.pop(name) for name in [*(row.argument for row in TABLE), "exact", "use_mmap"]}


def fit_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--no-fit-check``; see `check_fit`."""
    return click.option(
        "--fit-check/--no-fit-check", default=True, show_default=True, help="Refuse to load what will not fit."
    )(command)


def check_fit(output: Output, target: Path, draft: Path | None, arguments: dict[str, Any]) -> None:
    """Warns of a session that will be slow for want of memory; raises SessionError when it will not fit."""
    from dflash_gguf.runner import estimate

    if estimate.may_not_fit(target, draft, **arguments):
        for text in estimate.check_fit(estimate.estimate(target, draft, **arguments)):
            output.warning(text)


def show_remarks(output: Output, session: Session) -> None:
    """The warnings of a session that was opened, and what it found of widths."""
    for note in session.notes:
        output.warning(note)
    if session.widths is not None:
        output.note(str(session.widths))
