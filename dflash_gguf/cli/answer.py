"""An answer, shown as it comes.

Comes in: pieces of an answer. Goes out: text on stdout: on a terminal thinking is dim and drafts are tinted, anywhere
else it is the text and nothing more.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dflash_gguf.cli.errors import ending_code
from dflash_gguf.environment import colors_wanted
from dflash_gguf.file_text import without_controls
from dflash_gguf.runner.generation import Finished, Round
from dflash_gguf.runner.thinking import Piece

if TYPE_CHECKING:
    from collections.abc import Generator

    from dflash_gguf.cli.chat_options import ChatOptions
    from dflash_gguf.cli.output import Output
    from dflash_gguf.runner.stats import RunStats

DIM: Final = ("\x1b[2m", "\x1b[22m")
TINT: Final = ("\x1b[32m", "\x1b[39m")
"""Select Graphic Rendition: on, and off again."""


@dataclass(slots=True)
class Answer:
    """``code`` is the exit code that its end stands for."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    reason: str = "interrupted"
    code: int = 0


class AnswerWriter:
    """Writes one answer. Each piece ends the colours that it begins, so that an interrupt leaves none behind."""

    def __init__(self, output: Output, options: ChatOptions) -> None:
        self._output = output
        self._options = options
        self._terminal = sys.stdout.isatty()
        self._styled = self._terminal and colors_wanted()
        self._last = ""
        self._thought = False

    def write(self, piece: Piece) -> None:
        """Shows what of ``piece`` is to be seen."""
        if self._styled or self._options.hide_thinking:
            if piece.kind == "mark" or (piece.kind == "thinking" and self._options.hide_thinking):
                return
            if self._thought and piece.kind == "answer":
                self._put("\n" if self._last == "\n" else "\n\n")
            self._thought = piece.kind == "thinking"
        self._put(piece.text, *self._styles(piece))

    def end(self) -> None:
        """Ends the last line."""
        if self._last != "\n":
            self._put("\n")

    def _styles(self, piece: Piece) -> list[tuple[str, str]]:
        if not self._styled:
            return []
        tinted = piece.drafted and self._options.color_draft
        return [*([DIM] if piece.kind == "thinking" else []), *([TINT] if tinted else [])]

    def _put(self, text: str, *styles: tuple[str, str]) -> None:
        self._last = text[-1:]
        shown = without_controls(text) if self._terminal else text
        self._output.text("".join([*(on for on, _ in styles), shown, *(off for _, off in styles)]))


def show(writer: AnswerWriter, pieces: Generator[Piece | Round | Finished]) -> Answer:
    """Shows an answer to its end, or until the user interrupts or a signal ends the process; then it is over."""
    answer = Answer()
    try:
        for event in pieces:
            match event:
                case Piece(_, text):
                    answer.text += text
                    writer.write(event)
                case Round(tokens):
                    answer.ids.extend(tokens)
                case Finished(why):
                    answer.reason = why
    except (KeyboardInterrupt, SystemExit) as ending:
        answer.code = ending_code(ending)
    finally:
        pieces.close()
    return answer


def describe(stats: RunStats, reason: str) -> str:
    """Statistics for a person: a line for speed and, with a drafter, one for what its drafts were worth."""
    kept = f" ({stats.cache_n} more kept)" if stats.cache_n else ""
    speed = (
        f"prompt {stats.prompt_n} tokens{kept}, {stats.prompt_per_second:.1f} tokens/s; "
        f"generated {stats.predicted_n} tokens, {stats.predicted_per_second:.1f} tokens/s; {reason}; seed {stats.seed}"
    )
    if not stats.drafter:
        return speed
    rates = " ".join(f"{rate:.2f}" for rate in stats.accepted_per_position)
    return (
        f"{speed}\n{stats.drafter}: drafted {stats.draft_n}, accepted {stats.draft_n_accepted}; "
        f"mean acceptance length {stats.acceptance_length:.2f}; per position {rates or 'none'}"
    )
