"""Text to token ids and back, by a loaded model's own tokenizer.

Comes in: a model's address. Goes out: ids, and text of whole UTF-8 characters only. Knows nothing of the loop.
"""

from __future__ import annotations

import codecs
import ctypes
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import SessionError
from dflash_gguf.runner.deep_stack import with_deep_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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

    def is_end(self, token: int) -> bool:
        """Whether ``token`` ends a generation (EOS, end of turn and the like), asked of libllama once."""
        if token not in self._ends:
            self._ends[token] = bool(self._lib.llama_vocab_is_eog(self._vocab, token))
        return self._ends[token]

    def special(self, name: str) -> str:
        """Text of the ``bos`` or ``eos`` token; empty when the model has none."""
        token = getattr(self._lib, f"llama_vocab_{name}")(self._vocab)
        return self.piece(token, special=True).decode("utf-8", "replace") if token >= 0 else ""


class TextStream:
    """Joins pieces into text, holding back the bytes of a character that is not complete yet."""

    def __init__(self, text_bytes: Callable[[int], bytes]) -> None:
        self._text_bytes = text_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, tokens: Iterable[int]) -> str:
        """The text that ``tokens`` complete."""
        return self._decoder.decode(b"".join(map(self._text_bytes, tokens)))

    def end(self) -> str:
        """What was held back, with replacement characters for what never became whole."""
        return self._decoder.decode(b"", final=True)
