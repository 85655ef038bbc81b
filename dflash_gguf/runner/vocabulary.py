"""Text to token ids and back, by a loaded model's own tokenizer.

Comes in: a model's address. Goes out: ids, and text of whole UTF-8 characters only. Knows nothing of the loop.
"""

from __future__ import annotations

import codecs
import ctypes
from itertools import groupby
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import SessionError
from dflash_gguf.runner.deep_stack import with_deep_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from dflash_gguf.runner.models import Model

_PIECE_BYTES: Final = 64
"""First guess at the longest piece; libllama says when it is longer."""


class Vocabulary:
    """The tokenizer of a model that stays open while this is used."""

    def __init__(self, model: Model) -> None:
        import llama_cpp

        self._lib = llama_cpp
        self._vocab = llama_cpp.llama_model_get_vocab(model.address)
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}

    @property
    def address(self) -> int:
        """Of the ``llama_vocab``."""
        return int(ctypes.cast(self._vocab, ctypes.c_void_p).value or 0)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of ``text``. ``add_special`` lets the tokenizer add its own BOS or EOS."""
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise SessionError(
                f"the prompt is no valid text: {error.reason}", value=ascii(error.object[error.start])
            ) from None
        return with_deep_stack(len(data), lambda: self._tokenize(data, add_special, parse_special))

    def _tokenize(self, data: bytes, add_special: bool, parse_special: bool) -> list[int]:
        room = len(data) + 16
        while True:
            ids = (self._lib.llama_token * room)()
            n = self._lib.llama_tokenize(self._vocab, data, len(data), ids, room, add_special, parse_special)
            if n >= 0:
                return list(ids[:n])
            if -n <= room:
                raise SessionError("the target's tokenizer refused the prompt", value=n)
            room = -n

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that ``token`` stands for; control tokens are empty unless ``special``."""
        room = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(room)
            n = self._lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            room = -n

    def text_bytes(self, token: int) -> bytes:
        """The bytes of ``token`` in an answer, asked of libllama once."""
        if token not in self._pieces:
            self._pieces[token] = self.piece(token)
        return self._pieces[token]

    def spelt(self, tokens: Collection[int]) -> Callable[[int], bytes]:
        """`text_bytes`, but control tokens among ``tokens`` are spelt out."""
        if not tokens:
            return self.text_bytes
        return lambda token: self.piece(token, special=True) if token in tokens else self.text_bytes(token)

    def is_end(self, token: int) -> bool:
        """Whether ``token`` ends a generation (EOS, end of turn and the like), asked of libllama once."""
        if token not in self._ends:
            self._ends[token] = bool(self._lib.llama_vocab_is_eog(self._vocab, token))
        return self._ends[token]

    def special_id(self, name: str) -> int:
        """Id of the ``bos`` or ``eos`` token; -1 when the model has none."""
        return int(getattr(self._lib, f"llama_vocab_{name}")(self._vocab))

    @property
    def adds_bos(self) -> bool:
        """Whether a text begins with the ``bos`` token."""
        return bool(self._lib.llama_vocab_get_add_bos(self._vocab))

    def special(self, name: str) -> str:
        """Text of the ``bos`` or ``eos`` token; empty when the model has none."""
        token = self.special_id(name)
        return self.piece(token, special=True).decode("utf-8", "replace") if token >= 0 else ""


Span = tuple[int, int]
"""Characters of a text: the first, and the one behind the last."""


class TextStream:
    """Joins pieces into text, holding back what may yet change: half a character, or the beginning of a stop string.

    ``stops`` end the text: neither they nor anything behind them belongs to it. Of each character it is known whether
    it was drafted: whether all tokens that hold a part of it were.
    """

    def __init__(self, text_bytes: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        self._text_bytes = text_bytes
        self._stops = tuple(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._drafted: list[bool] = []
        self._begun: bool | None = None  # whether what there is of a character was drafted
        self._n_taken = 0
        self._stopped = False

    @property
    def length(self) -> int:
        """Whole characters by now, handed out or held back."""
        return self._n_taken + len(self._held)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self._stopped

    def add(self, token: int, *, drafted: bool = False) -> bool:
        """Takes the next token; true when it completes a stop string. Nothing may be added after that."""
        for byte in self._text_bytes(token):
            self._add_byte(byte, drafted=drafted)
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            self._held = self._held[: min(places)]
            self._stopped = True
        return self._stopped

    def take(self) -> tuple[str, tuple[Span, ...]]:
        """The text so far that will not change, and what of it was drafted; it is handed out once."""
        held = 0 if self._stopped else self._beginning()
        return self._cut(len(self._held) - held)

    def end(self) -> tuple[str, tuple[Span, ...]]:
        """What was held back, with replacement characters for what never became whole."""
        if not self._stopped:
            text = self._decoder.decode(b"", final=True)
            self._held += text
            self._drafted += [bool(self._begun)] * len(text)
        return self._cut(len(self._held))

    def _add_byte(self, byte: int, *, drafted: bool) -> None:
        text = self._decoder.decode(bytes([byte]))
        waits = bool(self._decoder.getstate()[0])
        before = drafted if self._begun is None else self._begun
        # The byte belongs to the last character, unless it waits for more, or stands behind a broken one.
        last = [] if waits or not text else [drafted and (before or len(text) > 1)]
        self._held += text
        self._drafted += [before] * (len(text) - len(last)) + last
        if waits:
            self._begun = drafted if text else before and drafted
        else:
            self._begun = None

    def _cut(self, length: int) -> tuple[str, tuple[Span, ...]]:
        text, self._held = self._held[:length], self._held[length:]
        self._n_taken += length
        spans, self._drafted = spans_of(self._drafted[:length]), self._drafted[length:]
        return text, spans

    def _beginning(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0


def spans_of(flags: Sequence[bool]) -> tuple[Span, ...]:
    """Where ``flags`` are set."""
    spans, start = [], 0
    for value, group in groupby(flags):
        end = start + len(list(group))
        if value:
            spans.append((start, end))
        start = end
    return tuple(spans)
