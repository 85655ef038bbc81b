"""One family of exceptions: what failed, the value, what was expected, and what to do next.

Comes in: the parts of a refusal. Goes out: an exception whose text is one sentence.
Knows nothing of terminals or exit codes; ``cli/errors.py`` maps these classes to them.
"""

from __future__ import annotations

from typing import Final

_UNSET: Final = object()


def brief(value: object) -> object:
    """``value`` as a message shows it, at most 80 characters of it: texts and numbers as they are."""
    if isinstance(value, str | int | float | None) and len(str(value)) <= 80:
        return value
    return ascii(value)[:80]


class DflashError(Exception):
    """Base of every error that this package raises on purpose.

    ``what`` names the thing that failed, ``value`` is what was found, ``expected`` what would have
    been right, ``remedy`` the next step. Each is kept as an attribute; ``str()`` joins them.
    """

    def __init__(self, what: str, *, value: object = _UNSET, expected: str = "", remedy: str = "") -> None:
        self.what = what
        self.value = None if value is _UNSET else value
        self.expected = expected
        self.remedy = remedy
        text = what
        if value is not _UNSET:
            text += f": got {value!r}" if isinstance(value, str) else f": got {value}"
        if expected:
            text += f", expected {expected}"
        if remedy:
            text += f"; {remedy}"
        super().__init__(text)


class CheckpointError(DflashError):
    """A drafter checkpoint or a target's folder that cannot be read, or is not what it says."""


class GGUFError(DflashError):
    """A GGUF file that is broken, out of bounds, or lacks what is needed."""


class QuantizeError(DflashError):
    """A type that does not exist here, or values that cannot be quantized to it."""


class OutputError(DflashError):
    """An output file that exists already, or could not be written."""


class PairError(DflashError):
    """A drafter and a target that do not fit each other."""


class SessionError(DflashError):
    """A model that would not load, or a pass through it that failed."""


class TemplateError(DflashError):
    """A chat template or Modelfile value that cannot be rendered."""


class MissingDependencyError(DflashError):
    """An optional package that this command needs is not installed."""


class BenchError(DflashError):
    """A file of prompts, a data set or a server that cannot be measured with."""


class TrainError(DflashError):
    """Prompts, a cache or a machine that no drafter can be trained with."""


class HubError(DflashError):
    """A repository of the hub that is missing, closed to this user, or not what was asked for."""


class HubUnreachableError(HubError):
    """The hub did not answer, or asked to be left alone for a while."""


class OllamaError(DflashError):
    """An ollama that is not there, is too old, or refuses what it is asked for."""
