"""llama_cpp's sampling arguments, as a session names them.

Comes in: arguments of a request by name. Goes out: keywords of `Session.generate`, or an error for the first that
cannot be honoured. Knows nothing of sessions.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import brief
from dflash_gguf.llama_arguments import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.runner.sampling import SamplingOptions

RANDOM_SEEDS: Final = (-1, 0xFFFFFFFF)
"""llama_cpp's way to ask for another seed each time."""

_NAMES: Final = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("repeat_penalty", "frequency_penalty", "presence_penalty"),
)
_UNFILTERED: Final[SamplingOptions] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}
"""What llama_cpp makes of a temperature below 0: a draw from the softmax of all logits."""


class Seeds:
    """Seeds of requests that name none: a sequence that the first seed fixes, or another each time."""

    def __init__(self, seed: object) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise RequestError("`seed`", value=brief(seed), expected="a whole number, -1 for another each time")
        self._sequence = None if seed in RANDOM_SEEDS else random.Random(seed)  # noqa: S311  to be repeated

    def of_request(self, seed: int | None) -> int | None:
        """The seed of a request; None lets the session draw one."""
        if seed is None:
            return None if self._sequence is None else self._sequence.getrandbits(32)
        return None if seed in RANDOM_SEEDS else seed


def sampling_of(given: Mapping[str, Any]) -> SamplingOptions:
    """Keywords of `Session.generate`, without a seed. Raises RequestError for what has no counterpart."""
    temperature = given["temperature"]
    if isinstance(temperature, bool) or not isinstance(temperature, int | float):
        raise RequestError("`temperature`", value=brief(temperature), expected="a number")
    if temperature > 0 and given["mirostat_mode"] != 0:
        raise RequestError(
            "`mirostat_mode` cannot be honoured",
            value=given["mirostat_mode"],
            expected="0",
            remedy="its choices depend on a running estimate, not on the position alone: use `top_p` or `min_p`",
        )
    options: SamplingOptions = {name: given[name] for name in _NAMES}  # type: ignore[assignment]
    if temperature < 0:
        options |= _UNFILTERED
    options["logit_bias"] = _biases(given["logit_bias"])
    return options | _constraint(given["grammar"], given.get("response_format"))


def _biases(given: object) -> dict[int, float]:
    """Ids and numbers may be written as text, as in JSON."""
    try:
        return {int(token): float(bias) for token, bias in dict(given or {}).items()}  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        expected = "a mapping from token ids to numbers"
        raise RequestError("`logit_bias`", value=brief(given), expected=expected) from None


def _constraint(grammar: object, response_format: object) -> SamplingOptions:
    form = _form(response_format)
    if grammar is not None and form:
        raise RequestError("`grammar` and `response_format`", expected="one of the two", remedy="leave one out")
    if grammar is None:
        return form
    text = getattr(grammar, "_grammar", grammar)
    if not isinstance(text, str):
        raise RequestError("`grammar`", value=brief(grammar), expected="a llama_cpp.LlamaGrammar, or GBNF")
    return {"grammar": text}


def _form(given: object) -> SamplingOptions:
    """OpenAI's three types, and llama_cpp's ``schema`` beside ``json_object``."""
    from llama_cpp.llama_grammar import JSON_GBNF

    match given:
        case None | {"type": "text"}:
            return {}
        case {"type": "json_object", "schema": None}:
            return {"grammar": JSON_GBNF}
        case {"type": "json_object", "schema": schema}:
            return {"json_schema": schema}
        case {"type": "json_schema", "json_schema": {"schema": schema}} if schema is not None:
            return {"json_schema": schema}
        case {"type": "json_object"}:
            return {"grammar": JSON_GBNF}
    allowed = "the type text, json_object, or json_schema with its `schema`"
    raise RequestError("`response_format`", value=brief(given), expected=allowed)
