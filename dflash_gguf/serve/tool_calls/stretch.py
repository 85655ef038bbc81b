"""A stretch of text of which it is known, character by character, whether it was drafted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from dflash_gguf.runner.thinking import Piece


@dataclass(slots=True)
class Stretch:
    """Grows at its end, is cut at its beginning. ``flags``: one for each character of ``text``."""

    text: str = ""
    flags: list[bool] = field(default_factory=list)

    @classmethod
    def of(cls, piece: Piece) -> Stretch:
        """The text of a piece."""
        return cls(piece.text, [piece.drafted] * len(piece.text))

    def __add__(self, other: Stretch) -> Stretch:
        return Stretch(self.text + other.text, self.flags + other.flags)

    def __iadd__(self, other: Stretch) -> Self:
        self.text += other.text
        self.flags += other.flags
        return self

    def cut(self, length: int) -> Stretch:
        """Its first ``length`` characters, which it loses."""
        head = Stretch(self.text[:length], self.flags[:length])
        self.text, self.flags = self.text[length:], self.flags[length:]
        return head
