"""Logits that do not depend on how many tokens go through the target at once, where that can be had.

Comes in: a target behind the native seam, and a text. Goes out: the widest pass whose logits are bit by bit those of
single tokens. Knows nothing of drafters.

What makes them differ on a CPU, with llama.cpp 0.5.0: products of K-quants in tiles, which an environment variable
turns off before the first pass; weights repacked into other buffers; attention without the flash kernel; and passes of
64 rows or more, from where on that kernel sums in another order. None of it is taken for granted: passes are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dflash_gguf import environment
from dflash_gguf.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf._core import LlamaTarget
    from dflash_gguf.runner.settings import Settings
    from dflash_gguf.runner.vocabulary import Vocabulary

PIECES: Final = (48, 32, 16, 8, 4, 2, 1)
"""Sizes of a prompt's pieces to try, all below 64 rows."""

N_TEXT: Final = 56
"""Tokens that are compared."""

TEXT: Final = (
    'The 3 rivers of the valley (north, east & west) meet at 7:45 below the mill; "there", she wrote: x = [1, 2, 3]'
)


class _Process:
    """Whether the first context of this process was made with tiled products off; None: none was made yet."""

    tiled_off: bool | None = None


def note_context() -> None:
    """Remembers, at the first context of the process, what libllama will read at the first pass."""
    if _Process.tiled_off is None:
        _Process.tiled_off = environment.tiled_products_off()


def prepare(settings: Settings) -> Settings:
    """``settings`` with what exactness needs, and the process's environment likewise.

    Raises SessionError when flash attention is off, or when this process has run a target without that environment.
    """
    if settings.flash_attention == "off":
        raise SessionError(
            "`exact` needs flash attention: without it passes of several tokens round otherwise",
            value="off",
            expected="on or auto",
        )
    if _Process.tiled_off is False:
        raise SessionError(
            "`exact` comes too late: this process has run a target with tiled products, which libllama decides on once",
            remedy=f"open the exact session first, in a process of its own, or set {environment.TILED_PRODUCTS}=0",
        )
    environment.turn_tiled_products_off()
    return replace(
        settings,
        flash_attention="on",
        n_ubatch=min(settings.n_ubatch, PIECES[0]),
        placement=replace(settings.placement, use_extra_bufts=False),
    )


@dataclass(frozen=True, slots=True)
class Widths:
    """``verify``: tokens of the widest pass that leaves the logits of single ones; ``piece``: of a prompt's pieces."""

    verify: int
    piece: int

    def __str__(self) -> str:
        passes = f"passes of 1 to {self.verify} tokens and " if self.verify > 1 else ""
        return f"exact: {passes}prompt pieces of up to {self.piece} leave the logits of single tokens, bit by bit"


def compare(target: LlamaTarget, ids: Sequence[int], n_outputs: int, n_batch: int) -> Widths:
    """Runs ``ids`` through passes of every width up to ``n_outputs``, and of a prompt's sizes up to ``n_batch``.

    Leaves the cache empty. Raises SessionError when a drafter was to be verified, and no width above 1 is identical.
    """
    single = _logits(target, [1] * len(ids), ids)
    verify = 1
    while verify < n_outputs and _same(target, ids, single, [verify + 1] * 2):
        verify += 1
    piece = next(size for size in PIECES if size <= n_batch and _piece_holds(target, ids, single, size, verify))
    target.rewind(0)
    if n_outputs > 1 and verify == 1:
        raise SessionError(
            "`exact` cannot be had here: a pass of 2 tokens does not leave the logits of single ones, bit by bit",
            remedy="use the CPU (`-dev none`), another quantization of the target, or leave `exact` out",
        )
    return Widths(verify, piece)


def sample_ids(vocabulary: Vocabulary) -> list[int]:
    """The text to compare on, as ids of ``vocabulary``."""
    ids = vocabulary.tokenize(TEXT, add_special=True, parse_special=False) or [0]
    return (ids * N_TEXT)[:N_TEXT]


def _piece_holds(target: LlamaTarget, ids: Sequence[int], single: Sequence[bytes], size: int, verify: int) -> bool:
    """Whether pieces of ``size``, and shorter ones beyond ``verify``, leave single tokens' logits, then and later."""
    shorter = {max(1, size - 1), size // 2 + 1, *(length for length in (8, 4, 2) if verify < length < size)}
    return all(_same(target, ids, single, [length]) for length in (size, *shorter))


def _same(target: LlamaTarget, ids: Sequence[int], single: Sequence[bytes], widths: Sequence[int]) -> bool:
    """Whether passes of ``widths``, and single ones behind them, leave the logits of single tokens."""
    rest = min(8, len(ids) - sum(widths))
    found = _logits(target, [*widths, *[1] * rest], ids)
    return all(row in (b"", single[pos]) for pos, row in enumerate(found))


def _logits(target: LlamaTarget, widths: Sequence[int], ids: Sequence[int]) -> list[bytes]:
    """Logits at each position, empty where a pass gave none."""
    target.rewind(0)
    rows: list[bytes] = []
    for width in widths:
        start = len(rows)
        n_logits = width if width <= target.n_outputs else 1
        target.decode(ids[start : start + width], start, n_logits)
        rows += [b""] * (width - n_logits)
        rows += [target.logits(row).tobytes() for row in range(width - n_logits, width)]
    return rows
