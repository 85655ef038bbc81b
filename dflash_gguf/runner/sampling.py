"""How the tokens of an answer are chosen: llama.cpp's settings, checked, and the native sampler made of them.

Comes in: the keywords of `Session.generate`. Goes out: one frozen value, and for a prompt a native sampler. Knows
nothing of drafts: the choice at a position depends on logits, settings, seed, position and what was written before.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypedDict

from dflash_gguf.errors import SessionError, brief
from dflash_gguf.limits import checked
from dflash_gguf.runner.bounds import BOUNDS, LONGEST_GRAMMAR, SEEDS, SIGNED, check_bounds
from dflash_gguf.runner.deep_stack import with_deep_stack
from dflash_gguf.runner.json_schema import gbnf_of

if TYPE_CHECKING:
    from dflash_gguf import _core
    from dflash_gguf.runner.vocabulary import Vocabulary

DRY_BREAKERS: Final = ("\n", ":", '"', "*")
"""llama.cpp's, where none are given."""


class SamplingOptions(TypedDict, total=False):
    """The keywords of `Session.generate` that are fields of `Sampling`, with the same meaning and defaults."""

    seed: int | None
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    min_keep: int
    repeat_last_n: int
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]
    logit_bias: Mapping[int, float]
    grammar: str | None
    json_schema: str | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Sampling:
    """llama.cpp's names, meanings, order and defaults. Raises SessionError for a value out of bounds.

    - ``seed``: 0 to 2**64 - 1; None draws one.
    - ``temperature`` 0 takes the best token. ``dynatemp_range`` lets it move up and down by as much with the entropy of
      the candidates, by the power of ``dynatemp_exponent``.
    - Filters, in this order: ``top_n_sigma`` (0 and below: off), ``top_k`` (0 and below: off), ``typical_p``, ``top_p``
      (1: off), ``min_p`` (0: off), ``xtc_probability`` above ``xtc_threshold``; each but the first keeps ``min_keep``.
      XTC draws by the same key as the noise.
    - Before them, in logits: ``logit_bias`` (id -> what is added; minus infinity bans a token), ``repeat_penalty``,
      ``frequency_penalty`` and ``presence_penalty`` on the last ``repeat_last_n`` tokens of prompt and answer (-1:
      all), and DRY on the last ``dry_penalty_last_n``.
    - ``grammar``, in GBNF, or ``json_schema``: of the candidates the best that it allows.
    """

    seed: int | None = None
    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    min_keep: int = 0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: Sequence[str] = DRY_BREAKERS
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    grammar: str | None = None
    json_schema: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, bounds in BOUNDS.items():
            check_bounds(name, getattr(self, name), bounds)
        for name in ("top_k", "min_keep", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n"):
            checked(name, getattr(self, name))
        if self.seed is not None and not is_seed(self.seed):
            allowed = f"a whole number from 0 to {SEEDS - 1}, or None"
            raise SessionError("`seed`", value=brief(self.seed), expected=allowed)
        if self.grammar is not None and self.json_schema is not None:
            raise SessionError("`grammar` and `json_schema`", expected="one of the two", remedy="leave one out")
        _check_breakers(self.dry_sequence_breakers)

    def with_seed(self) -> tuple[Sampling, int]:
        """The same with a seed, drawn where there is none; and that seed."""
        seed = secrets.randbits(32) if self.seed is None else self.seed
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return Sampling(**{**values, "seed": seed}), seed

    def sampler(self, vocabulary: Vocabulary, n_vocab: int, n_ctx: int, prompt: Sequence[int]) -> _core.Sampler:
        """A native sampler for the answer to ``prompt``. Raises SessionError when libllama refuses the grammar."""
        from dflash_gguf import _core

        grammar, biases = _grammar(self), checked_biases(self.logit_bias, n_vocab)
        try:
            return with_deep_stack(
                len(grammar),
                lambda: _core.Sampler(
                    n_vocab,
                    self._filters(),
                    self.seed or 0,
                    biases,
                    self._penalties(n_ctx),
                    list(prompt),
                    grammar,
                    vocabulary.address,
                ),
            )
        except SessionError:
            if self.json_schema is None:
                raise
            raise SessionError(
                "libllama refuses the grammar that `json_schema` makes",
                value=brief(self.json_schema),
                expected="patterns of literal characters, [sets] and repetitions",
                remedy="write [0-9] for \\d, [a-zA-Z0-9_] for \\w and [ ] for \\s",
            ) from None

    def check_grammar(self) -> None:
        """Raises SessionError for a grammar or schema that can be told to be none without a vocabulary."""
        _grammar(self)

    def _filters(self) -> _core.FilterSettings:
        from dflash_gguf import _core

        native = _core.FilterSettings()
        for name in (
            *("temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "typical_p"),
            *("top_n_sigma", "xtc_probability", "xtc_threshold", "min_keep"),
        ):
            setattr(native, name, getattr(self, name))
        return native

    def _penalties(self, n_ctx: int) -> _core.PenaltySettings:
        from dflash_gguf import _core

        native = _core.PenaltySettings()
        native.last_n = _window(self.repeat_last_n, n_ctx)
        native.repeat = self.repeat_penalty
        native.frequency = self.frequency_penalty
        native.presence = self.presence_penalty
        native.dry_multiplier = self.dry_multiplier
        native.dry_base = self.dry_base
        native.dry_allowed_length = self.dry_allowed_length
        native.dry_last_n = _window(self.dry_penalty_last_n, n_ctx)
        native.dry_breakers = list(self.dry_sequence_breakers)
        return native


def _window(last_n: int, n_ctx: int) -> int:
    """Tokens to look back at, of which -1 means all that the context holds."""
    return n_ctx if last_n < 0 else min(last_n, n_ctx)


def is_seed(value: object) -> bool:
    """Whether it can key a noise: a whole number below `SEEDS`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < SEEDS


def _check_breakers(breakers: object) -> None:
    if isinstance(breakers, str) or not isinstance(breakers, Sequence):
        raise SessionError("`dry_sequence_breakers`", value=brief(breakers), expected="a list of texts")
    for text in breakers:
        if not isinstance(text, str) or not text or "\0" in text or not _is_unicode(text):
            raise SessionError(
                "a text of `dry_sequence_breakers`", value=brief(text), expected="a text that is not empty"
            )


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def checked_biases(biases: object, n_vocab: int) -> list[tuple[int, float]]:
    """Tokens and what is added to their logits; raises SessionError for what means nothing to so many tokens."""
    if not isinstance(biases, Mapping):
        raise SessionError("`logit_bias`", value=brief(biases), expected="token ids with a number each")
    found = []
    for token, bias in biases.items():
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < n_vocab:
            raise SessionError("a token of `logit_bias`", value=brief(token), expected=f"0 to {n_vocab - 1}")
        if bias != -math.inf:
            check_bounds(f"logit_bias[{token}]", bias, SIGNED)
        found.append((token, float(bias)))
    if len(found) >= n_vocab and all(bias == -math.inf for _, bias in found):
        raise SessionError("`logit_bias` bans every token of the vocabulary", value=len(found))
    return found


def _grammar(sampling: Sampling) -> str:
    """The grammar's text; empty when there is none."""
    text = gbnf_of(sampling.json_schema) if sampling.json_schema is not None else sampling.grammar
    if text is None:
        return ""
    if not isinstance(text, str) or not text.strip() or "\0" in text or not _is_unicode(text):
        raise SessionError("`grammar`", value=brief(text), expected="a grammar in GBNF, with a rule `root`")
    if len(text.encode()) > LONGEST_GRAMMAR:
        raise SessionError("the `grammar`", value=f"{len(text.encode())} bytes", expected=f"at most {LONGEST_GRAMMAR}")
    return text
