"""Logits that do not depend on how many tokens go through the target at once, where that can be had.

Comes in: a target behind the native seam, and a text. Goes out: the widest pass whose logits are bit by bit those of
single tokens. Knows nothing of drafters.

What makes them differ on a CPU, with llama.cpp 0.5.0: products of K-quants in tiles, which an environment variable
turns off before the first pass; weights repacked into other buffers; attention without the flash kernel; in that,
passes of 64 rows or more, and from 512 cells on those of a single row, which sums a part a thread: both only while K
and V are kept in one type of F16 and F32 (ggml-cpu/ops.cpp). None of it is taken for granted: passes are compared, near
the beginning of a text and far from it.
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

BEHIND: Final = 2
"""Single tokens behind a pass that are compared as well: they read what it left in the cache."""

N_TEXT: Final = 50
"""Tokens that are compared: the longest piece, and those behind it."""

FAR: Final = 520
"""Where they are compared again: libllama counts the cells of a cache in steps of 256."""

V_TYPE: Final = "bf16"
"""Of the values in the cache, where keys and values would be of one type."""

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
    """`adjusted` settings, and the process's environment likewise.

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
    return adjusted(settings)


def adjusted(settings: Settings) -> Settings:
    """``settings`` with what exactness needs of them."""
    unpacked = settings.type_k == settings.type_v and settings.type_k in {"f16", "f32"}
    return replace(
        settings,
        flash_attention="on",
        type_k="f16" if unpacked else settings.type_k,
        type_v=V_TYPE if unpacked else settings.type_v,
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

    Once from the beginning of a text, and once from behind `FAR` tokens where the context holds as many. Leaves the
    cache empty. Raises SessionError when a drafter was to be verified, and no width above 1 is identical.
    """
    found = Widths(n_outputs, PIECES[0])
    for start in (0, FAR):
        if start + len(ids) <= target.n_ctx:
            found = _compared(_Probe(target, ids, start, n_batch), found.verify, min(n_batch, found.piece))
    target.rewind(0)
    if n_outputs > 1 and found.verify == 1:
        raise SessionError(
            "`exact` cannot be had here: a pass of 2 tokens does not leave the logits of single ones, bit by bit",
            remedy="use a target in Q8_0 or a K-quant on the CPU (`-dev none`), or leave `exact` out",
        )
    return found


def _compared(probe: _Probe, n_outputs: int, n_batch: int) -> Widths:
    verify = 1
    while verify < n_outputs and probe.same([verify + 1] * 2):
        verify += 1
    return Widths(verify, next(size for size in PIECES if size <= n_batch and _piece_holds(probe, size, verify)))


def sample_ids(vocabulary: Vocabulary) -> list[int]:
    """The text to compare on, as ids of ``vocabulary``."""
    ids = vocabulary.tokenize(TEXT, add_special=True, parse_special=False) or [0]
    return (ids * N_TEXT)[:N_TEXT]


def _piece_holds(probe: _Probe, size: int, verify: int) -> bool:
    """Whether pieces of ``size``, and shorter ones beyond ``verify``, leave single tokens' logits, then and later."""
    shorter = {max(1, size - 1), size // 2 + 1, *(length for length in (8, 4, 2) if verify < length < size)}
    return all(probe.same([length]) for length in (size, *shorter))


class _Probe:
    """A text from a place on, and the logits that single tokens leave there."""

    def __init__(self, target: LlamaTarget, ids: Sequence[int], start: int, n_batch: int) -> None:
        self._target, self._ids, self._start = target, ids, start
        self._filled_by = min(n_batch, PIECES[0])
        self._filled = False
        self._single = self._logits([1] * len(ids))

    def same(self, widths: Sequence[int]) -> bool:
        """Whether passes of ``widths``, and single ones behind them, leave the logits of single tokens."""
        rest = min(BEHIND, len(self._ids) - sum(widths))
        found = self._logits([*widths, *[1] * rest])
        return all(row in (b"", self._single[i]) for i, row in enumerate(found))

    def _logits(self, widths: Sequence[int]) -> list[bytes]:
        """Logits of each token, empty where a pass gave none."""
        self._to_start()
        rows: list[bytes] = []
        for width in widths:
            first = len(rows)
            n_logits = width if width <= self._target.n_outputs else 1
            self._target.decode(self._ids[first : first + width], self._start + first, n_logits)
            rows += [b""] * (width - n_logits)
            rows += [self._target.logits(row).tobytes() for row in range(width - n_logits, width)]
        return rows

    def _to_start(self) -> None:
        """The cache holds what stands before the text: the text itself, over and over, always in the same passes."""
        if self._filled and self._target.rewind(self._start) == self._start:
            return
        self._target.rewind(0)
        for first in range(0, self._start, self._filled_by):
            length = min(self._filled_by, self._start - first)
            self._target.decode([self._ids[(first + i) % len(self._ids)] for i in range(length)], first, 0)
        self._target.mark(self._start)
        self._filled = True
