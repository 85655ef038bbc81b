"""Which token fills a block: a reserved one that no text holds.

Comes in: the header of a target, its embeddings, the tokens of the answers. Goes out: an id, or a refusal that offers
others. A token of a role, padding above all (which is often the end of a text), would mean two things at once.
Source: the recipes of NVIDIA's NeMo AutoModel for DFlash; llama.cpp include/llama.h, ``llama_token_type`` (0.5.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from dflash_gguf.contract.vocabulary import SPECIALS
from dflash_gguf.errors import TrainError
from dflash_gguf.facts import integer_of
from dflash_gguf.file_text import shown
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from dflash_gguf.gguf_header import GGUFHeader

ROLES: Final = SPECIALS
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
RESERVED: Final = (CONTROL, USER_DEFINED, UNUSED)
"""Types of tokens that a tokenizer does not make of plain text."""
OTHER: Final = 3
"""The last rank of a candidate."""
NAMED_MASK: Final = re.compile(r"mask", re.IGNORECASE)
NAMED_SPARE: Final = re.compile(r"reserved|unused|extra|placeholder|dummy", re.IGNORECASE)
OFFERED: Final = 5
FAINT: Final = 0.01
"""An embedding shorter than this part of the usual length says nothing: all rows of a block would be alike."""


@dataclass(frozen=True, slots=True)
class _Tokens:
    """``texts`` and ``types`` by number; ``roles``: number -> key; ``lengths`` of the embeddings.

    ``ends``: tokens that end a text, of which libllama knows some by their text alone.
    """

    texts: list[str]
    types: NDArray[np.int64]
    roles: dict[int, str]
    lengths: NDArray[np.float32]
    template: str
    ends: Collection[int]
    used: Collection[int]
    own: int | None

    @classmethod
    def of(
        cls, header: GGUFHeader, embeddings: NDArray[np.float32], ends: Collection[int], used: Collection[int]
    ) -> Self:
        """Of a target; ``used``: ids that the texts hold."""
        texts = header.strings(Keys.TOKENS)
        types = header.integers(Keys.TOKEN_TYPES) if Keys.TOKEN_TYPES in header.keys else []
        roles = {number: key for key in ROLES if (number := integer_of(header, key)) is not None}
        return cls(
            texts=texts,
            types=np.array([*types, *[0] * len(texts)], np.int64)[: len(texts)],
            roles=roles,
            lengths=np.linalg.norm(embeddings, axis=1),
            template=header.string(Keys.CHAT_TEMPLATE, ""),
            ends=ends,
            used=used,
            own=integer_of(header, Keys.MASK_TOKEN_ID),
        )

    def candidates(self) -> list[int]:
        """The best first: the file's own mask, what is called so, spare ones, then the last of the others."""
        numbers = np.flatnonzero(np.isin(self.types, RESERVED)).tolist()
        ranked = [(self._rank(number), number) for number in numbers if not self.objection(number)]
        return [
            number for _, number in sorted(ranked, key=lambda row: (row[0], -row[1] if row[0] == OTHER else row[1]))
        ]

    def _rank(self, number: int) -> int:
        if number == self.own:
            return 0
        if NAMED_MASK.search(self.texts[number]):
            return 1
        return OTHER - 1 if self._spare(number) else OTHER

    def _spare(self, number: int) -> bool:
        return bool(self.types[number] == UNUSED or NAMED_SPARE.search(self.texts[number]))

    def objection(self, number: int) -> str:
        """What speaks against a token; empty when nothing does."""
        if not 0 <= number < min(len(self.texts), len(self.lengths)):
            return f"is none of the {len(self.texts)}"
        if number in self.roles:
            return f"is the target's `{self.roles[number]}`"
        if number in self.ends:
            return "ends a text"
        if self.types[number] not in RESERVED or (self.types[number] == USER_DEFINED and not self._spare(number)):
            return "is not reserved: texts are made of it"
        if number in self.used:
            return "stands in the texts that are learnt from"
        if self.texts[number] and self.texts[number] in self.template:
            return "stands in the target's chat template"
        if self.lengths[number] <= FAINT * np.median(self.lengths):
            return "has an embedding of nearly nothing"
        return ""


def choose(
    header: GGUFHeader,
    embeddings: NDArray[np.float32],
    ends: Collection[int],
    used: Collection[int],
    asked: int | None = None,
) -> int:
    """The mask token of the target in ``header``: ``asked``, if nothing speaks against it, or the best there is.

    ``embeddings``: [vocab, hidden]; ``ends``: ids that end a text; ``used``: ids that the texts hold. Raises TrainError
    when there is none.
    """
    tokens = _Tokens.of(header, embeddings, ends, used)
    if asked is not None and not tokens.objection(asked):
        return asked
    offered = tokens.candidates()
    if asked is None and offered:
        return offered[0]
    if asked is None or not offered:
        raise _none(tokens)
    named = ", ".join(f"{number} (`{shown(tokens.texts[number])}`)" for number in offered[:OFFERED])
    raise TrainError(
        f"the mask token {tokens.objection(asked)}", value=asked, expected=f"a reserved one, such as {named}"
    )


def _none(tokens: _Tokens) -> TrainError:
    """Why there is none, by the token that would have been best but for the texts."""
    what = "the target's vocabulary has no reserved token that could be the mask"
    best = next(iter(replace(tokens, used=()).candidates()), None)
    if best is None:
        return TrainError(what, remedy="train for a target whose tokenizer has spare tokens")
    return TrainError(
        f"{what}: {best} (`{shown(tokens.texts[best])}`) {tokens.objection(best)}",
        remedy="leave out the prompts that it stands in, or that are answered with it",
    )
