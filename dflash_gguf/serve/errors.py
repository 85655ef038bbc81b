"""What a client is told when its request cannot be answered, in the shape of OpenAI's errors.

Comes in: what failed, and a status. Goes out: an exception with a body and headers. Knows nothing of sockets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import DflashError, TemplateError
from dflash_gguf.runner.chat import RAW

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

KINDS: Final[dict[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}
"""Status -> the ``type`` of an error."""
FORMAT: Final = "response_format"
_OF_GRAMMAR: Final = frozenset({"grammar", "json_schema"})


class ApiError(DflashError):
    """A request that is refused or has failed. ``param`` names the field, ``more`` is added to the error's body."""

    def __init__(
        self,
        what: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(what, **parts)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})
        self.more = dict(more or {})

    def body(self) -> dict[str, Any]:
        """The answer's body."""
        error = {"message": str(self), "type": KINDS[self.status], "param": self.param, "code": self.code}
        return {"error": error | self.more}


def of_request(error: DflashError, param: str | None) -> ApiError:
    """What the session says of a value of the field ``param``."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TemplateError) and error.remedy == RAW:
        return ApiError(error.what, param=param, remedy="write the prompt yourself and ask /v1/completions")
    return ApiError(str(error), param=param)


def named_in(what: str, fields: Collection[str]) -> str | None:
    """Which of a request's ``fields`` the words of an error name; a grammar may be that of another field."""
    names = re.findall(r"`(\w+)", what)
    of_grammar = () if _OF_GRAMMAR.isdisjoint(names) else (FORMAT, *sorted(_OF_GRAMMAR), "tools")
    return next((name for name in (*names, *of_grammar) if name in fields), None)


def of_server(error: BaseException) -> ApiError:
    """A fault of this side. Only our own errors are told in full: another may hold what is nobody's business."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, DflashError):
        return ApiError(str(error), status=500)
    return ApiError(f"the server failed: {type(error).__name__}", status=500)
