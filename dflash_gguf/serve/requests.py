"""The fields of the routes, once: requests are checked by these tables, and the OpenAPI document is made of them.

Comes in: a JSON body. Goes out: what it asks for. Names that OpenAI lacks are llama.cpp's; z-lab's client and SGLang
know ``return_meta_info``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from dflash_gguf.limits import RANGES, Range
from dflash_gguf.runner.bounds import BOUNDS, SEEDS, Bounds
from dflash_gguf.serve import request_schemas
from dflash_gguf.serve.errors import ApiError
from dflash_gguf.serve.fields import (
    SWITCH,
    TEXT,
    WORDS,
    Field,
    Fields,
    Kind,
    WrongError,
    either,
    list_of,
    one_or_more,
    only,
    record,
    short_text,
    whole,
)
from dflash_gguf.serve.fields import number as number_of
from dflash_gguf.serve.tools import CHOICES, MOST_TOOLS, NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.runner.sampling import SamplingOptions

MOST_STOPS: Final = 32
LONGEST_STOP: Final = 1024
"""Characters: behind each token it is looked for the beginnings of all."""
MOST_MESSAGES: Final = 4096
"""Twice as many as OpenAI takes."""
LIKELIEST: Final = Range(0, 20)
BAN: Final = -100.0
"""OpenAI's: a bias that keeps a token out."""

_TOKEN: Final = whole(Range(0, (1 << 31) - 1))


def _biases(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise WrongError
    found = {}
    for token, bias in value.items():
        if not token.isascii() or not token.isdigit() or len(token) > 10:
            raise WrongError
        checked = number_of(Bounds(BAN, -BAN)).take(bias)
        found[int(token)] = -math.inf if checked == BAN else checked
    return found


BIASES: Final = Kind(
    "token ids with a number from -100 to 100 each",
    {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]{1,10}$"},
        "additionalProperties": {"type": "number", "minimum": BAN, "maximum": -BAN},
    },
    _biases,
)

_WHOLE_SETTINGS: Final = ("top_k", "min_keep", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n")
_SETTINGS_HELP: Final = "As llama.cpp's of this name."

SAMPLING: Final = (
    *(Field(name, number_of(bounds), _SETTINGS_HELP) for name, bounds in BOUNDS.items()),
    *(Field(name, whole(RANGES[name]), _SETTINGS_HELP) for name in _WHOLE_SETTINGS),
    Field("dry_sequence_breakers", list_of(WORDS, most=MOST_STOPS), _SETTINGS_HELP),
    Field("logit_bias", BIASES, "Added to tokens' logits; -100 bans."),
    Field("seed", whole(Range(-1, SEEDS - 1)), "Key of the choices: the same text again; -1: a random one."),
    Field("grammar", TEXT, "A grammar in GBNF that the text must follow."),
    Field("json_schema", record("a JSON schema"), "A JSON schema that the text must follow."),
)
"""What goes to `Session.generate` as it is."""

_LIMIT: Final = whole(RANGES["max_tokens"])

COMMON: Final = (
    Field("model", TEXT, "Not looked at: there is one."),
    Field("max_tokens", _LIMIT, "Tokens to write at the most; -1: until the context is full."),
    Field("stop", one_or_more(short_text(LONGEST_STOP), MOST_STOPS), "Texts before which the answer ends."),
    Field("n", only(1), "There is one answer."),
    Field("stream", SWITCH, "Send the answer as it is written, as server-sent events."),
    Field(
        "stream_options",
        record("an object with `include_usage`", request_schemas.STREAM_OPTIONS),
        "`include_usage`: a last chunk says how many tokens there were.",
    ),
    *SAMPLING,
    Field(
        "response_format",
        record("an object with a `type`", request_schemas.RESPONSE_FORMAT),
        "Text, a JSON object, or what a JSON schema allows.",
    ),
    Field("speculative", SWITCH, "Whether drafts are used; the text is the same."),
    Field("cache_prompt", SWITCH, "Whether what the prompt shares with the one before is kept."),
    Field("timings_per_token", SWITCH, "Put `timings` into every chunk."),
    Field("return_drafted", SWITCH, "Put the spans of text that drafts wrote into each choice."),
    Field("return_meta_info", SWITCH, "Add SGLang's `meta_info`."),
)

_MESSAGES: Final = list_of(record("a message", request_schemas.MESSAGE), least=1, most=MOST_MESSAGES)
_TOOLS: Final = list_of(record("a function's description", request_schemas.tool(NAME.pattern)), most=MOST_TOOLS)

CHAT: Final = Fields(
    (
        Field("messages", _MESSAGES, "The conversation so far.", needed=True),
        *COMMON,
        Field("max_completion_tokens", _LIMIT, "The newer name of `max_tokens`; it wins."),
        Field("chat_template_kwargs", record("an object"), "Values for the chat template's own variables."),
        Field("reasoning_effort", TEXT, "How much to think, where the chat template knows such a thing."),
        Field("tools", _TOOLS, "Functions that may be called."),
        Field(
            "tool_choice",
            either(only(*CHOICES), record("an object that names a function", request_schemas.TOOL_CHOICE)),
            "Whether one must be called, and which.",
        ),
        Field("parallel_tool_calls", SWITCH, "Whether several may be called where one must be. Default: true."),
        Field("logprobs", SWITCH, "Say how likely the target found each token."),
        Field("top_logprobs", whole(LIKELIEST), "And so many of the likeliest tokens at each place."),
    )
)

_PROMPT: Final = either(TEXT, list_of(_TOKEN, least=1), list_of(TEXT, least=1, most=1))

COMPLETION: Final = Fields(
    (
        Field("prompt", _PROMPT, "Text, or token ids.", needed=True),
        *COMMON,
        Field("echo", SWITCH, "Put the prompt before the answer."),
        Field("best_of", only(1), "There is one answer."),
        Field("suffix", only(""), "There is no infill."),
        Field("logprobs", whole(LIKELIEST), "Say how likely each token was, and so many of the likeliest ones."),
    )
)

TOKENIZE: Final = Fields(
    (
        Field("content", TEXT, "Text to tokenize.", needed=True),
        Field("add_special", SWITCH, "Add what the tokenizer adds to a prompt, such as BOS. Default: false."),
        Field("parse_special", SWITCH, "Read special tokens as such. Default: true."),
        Field("with_pieces", SWITCH, "Say what text each token is."),
    )
)

DETOKENIZE: Final = Fields((Field("tokens", list_of(_TOKEN), "Token ids.", needed=True),))


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request for an answer asks for, but for its prompt.

    ``fields``: those that it has. ``max_tokens`` -1: no limit. ``logprobs``: how many of the likeliest tokens to name
    at each place; None: nothing of the kind.
    """

    fields: frozenset[str]
    stream: bool
    include_usage: bool
    max_tokens: int
    stop: tuple[str, ...]
    speculative: bool
    cache_prompt: bool
    timings_per_token: bool
    return_drafted: bool
    return_meta_info: bool
    logprobs: int | None
    sampling: SamplingOptions

    @classmethod
    def of(cls, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Ask:
        """Of checked values; ``defaults`` stand in for sampling settings that are not given."""
        sampling = {**defaults, **{one.name: values[one.name] for one in SAMPLING if one.name in values}}
        if sampling.get("seed") == -1:
            sampling["seed"] = None
        if "grammar" in values and "json_schema" in values:
            raise ApiError("`grammar` and `json_schema`", param="grammar", expected="one of the two")
        for given, other in (("grammar", "json_schema"), ("json_schema", "grammar")):
            if given in values:
                sampling[other] = None  # the server's default
        return cls(
            fields=frozenset(values),
            stream=values.get("stream", False),
            include_usage=_include_usage(values.get("stream_options", {})),
            max_tokens=values.get("max_completion_tokens", values.get("max_tokens", -1)),
            stop=values.get("stop", ()),
            speculative=values.get("speculative", True),
            cache_prompt=values.get("cache_prompt", True),
            timings_per_token=values.get("timings_per_token", False),
            return_drafted=values.get("return_drafted", False),
            return_meta_info=values.get("return_meta_info", False),
            logprobs=_logprobs(values),
            sampling=cast("SamplingOptions", sampling),
        )

    @property
    def options(self) -> dict[str, Any]:
        """As keywords of `Session.generate`."""
        return {
            "max_tokens": self.max_tokens,
            "stop": [text for text in self.stop if text],
            "speculative": self.speculative,
            "logprobs": self.logprobs,
            **self.sampling,
        }


def _logprobs(values: Mapping[str, Any]) -> int | None:
    """A chat says whether and how many, a completion how many."""
    wanted, most = values.get("logprobs"), values.get("top_logprobs")
    if most is not None and wanted is not True:
        raise ApiError("`top_logprobs`", param="top_logprobs", value=most, expected="`logprobs` to be true")
    if values.get("echo") and wanted is not None:
        raise ApiError("`logprobs` with `echo`", param="logprobs", expected="one of the two: the prompt has none")
    if wanted is None or wanted is False:
        return None
    return most or 0 if wanted is True else int(wanted)


def _include_usage(options: Mapping[str, Any]) -> bool:
    wanted = options.get("include_usage")
    if wanted is not None and not isinstance(wanted, bool):
        raise ApiError("`stream_options.include_usage`", param="stream_options", value=wanted, expected="true or false")
    return bool(wanted)
