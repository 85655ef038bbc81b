"""Log probabilities of tokens in OpenAI's two shapes.

Comes in: scored tokens, and what their bytes are. Goes out: plain dictionaries. A token that is no whole text is named
as OpenAI names it, by its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dflash_gguf.runner.scores import Scored

Spell = Callable[[int], bytes]

LEAST: Final = -9999.0
"""OpenAI's, for a token that cannot be: JSON has no infinity."""


def of_chat(scores: Sequence[Scored], spell: Spell) -> dict[str, Any]:
    """The ``logprobs`` of a chat's choice."""
    return {"content": [_entry(each, spell) for each in scores], "refusal": None}


def of_completion(scores: Sequence[Scored], spell: Spell) -> dict[str, Any]:
    """The ``logprobs`` of a completion's choice: the older shape, and the ``bytes`` of each token."""
    return {
        "tokens": [_name(spell(each.token)) for each in scores],
        "token_logprobs": [_bounded(each.logprob) for each in scores],
        "top_logprobs": [{_name(spell(token)): _bounded(value) for token, value in each.best} for each in scores],
        "text_offset": [each.offset for each in scores],
        "bytes": [list(spell(each.token)) for each in scores],
    }


def _entry(scored: Scored, spell: Spell) -> dict[str, Any]:
    best = [_one(token, value, spell) for token, value in scored.best]
    return {**_one(scored.token, scored.logprob, spell), "top_logprobs": best}


def _one(token: int, logprob: float, spell: Spell) -> dict[str, Any]:
    data = spell(token)
    return {"token": _name(data), "logprob": _bounded(logprob), "bytes": list(data)}


def _name(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _bounded(logprob: float) -> float:
    return max(logprob, LEAST)
