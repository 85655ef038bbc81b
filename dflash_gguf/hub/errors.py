"""What huggingface_hub raises, as a sentence with the next step.

Comes in: an exception and what was asked for. Goes out: a `HubError`. Classes are told by name, so that this module
loads neither huggingface_hub nor its HTTP library, whichever that is.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import DflashError, HubError, HubUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOGIN: Final = "run `hf auth login`, or set HF_TOKEN to a token from {endpoint}/settings/tokens"
ONLINE: Final = "leave out `--offline` and unset HF_HUB_OFFLINE"
WORDS_LIMIT: Final = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request was about: ``page`` is the repository's on the web, ``known`` whether a token went along."""

    endpoint: str
    repo: str
    revision: str | None = None
    file: str | None = None
    known: bool = False
    writing: bool = False

    @property
    def page(self) -> str:
        """The repository's page."""
        return f"{self.endpoint}/{self.repo}"

    @property
    def login(self) -> str:
        """How to be known."""
        return LOGIN.format(endpoint=self.endpoint)


@contextmanager
def failures(asked: Asked) -> Iterator[None]:
    """Turns what huggingface_hub raises inside the block into a `HubError`; an error that is not its own passes."""
    try:
        yield
    except DflashError:
        raise
    except Exception as error:
        told = as_hub_error(asked, error)
        if told is None:
            raise
        raise told from error


def as_hub_error(asked: Asked, error: BaseException) -> HubError | None:
    """The sentence for ``error``, or None when it is not about the hub."""
    names = {cause.__name__ for cause in type(error).__mro__}
    if names & WRAPPERS and error.__cause__ is not None:
        cause = as_hub_error(asked, error.__cause__)
        if cause is not None:
            return cause
    for name, tell in TABLE:
        if name in names:
            return tell(asked, error)
    if type(error).__module__.partition(".")[0] in ("hf_xet", "builtins") and "xet" in str(error).lower():
        return _xet(asked, error)
    return None


WRAPPERS: Final = frozenset({"LocalEntryNotFoundError", "RuntimeError"})
"""What huggingface_hub raises from the error that says what happened."""


def is_network(error: BaseException) -> bool:
    """Whether the connection failed, so that asking again may help."""
    names = {cause.__name__ for cause in type(error).__mro__}
    return bool(names & NETWORK) and "OfflineModeIsEnabled" not in names


NETWORK: Final = frozenset({"TransportError", "ConnectionError", "Timeout", "ChunkedEncodingError"})
"""Failures of a connection, by the names that httpx and requests give them."""


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries."""
    response: Any = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    return status if isinstance(status, int) else None


# ---------------------------------------------------------------- the sentences


def _gated(asked: Asked, error: BaseException) -> HubError:
    if asked.known and status_of(error) != 401:
        remedy = f"ask for access at {asked.page} with the account of your token, and wait until it is granted"
    else:
        remedy = f"accept its terms at {asked.page}, then {asked.login}"
    return HubError(f"`{asked.repo}` is gated: its owners decide who may download it", remedy=remedy)


def _disabled(asked: Asked, _error: BaseException) -> HubError:
    return HubError(f"`{asked.repo}` was disabled on the hub", remedy=f"see {asked.page}, or use another repository")


def _no_revision(asked: Asked, _error: BaseException) -> HubError:
    return HubError(
        f"`{asked.repo}` has no revision `{asked.revision or 'main'}`",
        remedy=f"branches, tags and commits are listed at {asked.page}/tree/main",
    )


def _no_repo(asked: Asked, _error: BaseException) -> HubError:
    private = "your token may not see it" if asked.known else f"for a private one {asked.login}"
    return HubError(
        f"there is no repository `{asked.repo}` on {asked.endpoint}, or it is private",
        remedy=f"check the spelling at {asked.endpoint}/models?search={asked.repo.partition('/')[2]}; {private}",
    )


def _no_file(asked: Asked, _error: BaseException) -> HubError:
    what = f"`{asked.repo}` has no file `{asked.file}`" if asked.file else f"`{asked.repo}` lacks a file"
    return HubError(what, remedy=f"see what it holds at {asked.page}/tree/{asked.revision or 'main'}")


def _offline(asked: Asked, _error: BaseException) -> HubError:
    what = f"`{asked.file}` of `{asked.repo}`" if asked.file else f"`{asked.repo}`"
    return HubUnreachableError(
        f"{what} is not in the cache, and nothing may be downloaded",
        remedy=f"{ONLINE}, or download it first: `hf download {asked.repo}{f' {asked.file}' if asked.file else ''}`",
    )


def _no_hub(asked: Asked, _error: BaseException) -> HubError:
    return HubError(
        f"{asked.endpoint} does not answer as a model hub does",
        remedy="check MODEL_ENDPOINT and HF_ENDPOINT, and a proxy or sign-in page in between",
    )


def _unreachable(asked: Asked, error: BaseException) -> HubError:
    return HubUnreachableError(
        f"{asked.endpoint} cannot be reached ({_words(error)}), where `{asked.repo}` was looked for",
        remedy="check the connection, HF_ENDPOINT and HTTPS_PROXY; what was downloaded is kept",
    )


def _by_status(asked: Asked, error: BaseException) -> HubError:
    status = status_of(error)
    if status == 401:
        what = "does not take the token" if asked.known else "must know who asks"
        return HubError(f"{asked.endpoint} {what}", remedy=asked.login)
    if status == 403:
        what = "write to" if asked.writing else "read"
        remedy = f"use a token that may {what} it: {asked.login}"
        return HubError(f"the token may not {what} `{asked.repo}`", remedy=remedy)
    if status == 429:
        return _rate_limited(asked, error)
    if status is not None and status >= 500:
        remedy = "try again later; what was downloaded is kept"
        return HubUnreachableError(f"{asked.endpoint} fails with status {status}", remedy=remedy)
    return HubError(f"{asked.endpoint} refused the request ({_words(error)})", remedy=f"see {asked.page}")


def _rate_limited(asked: Asked, error: BaseException) -> HubError:
    response: Any = getattr(error, "response", None)
    seconds = str(getattr(response, "headers", {}).get("Retry-After", "")).strip()
    wait = f"wait {seconds} seconds and try again" if seconds.isdigit() else "wait some minutes and try again"
    more = "" if asked.known else f"; those who are known may ask more often: {asked.login}"
    remedy = f"{wait}, what was downloaded is kept{more}"
    return HubUnreachableError(f"{asked.endpoint} got too many requests from here (status 429)", remedy=remedy)


def _xet(asked: Asked, error: BaseException) -> HubError:
    return HubUnreachableError(
        f"the transfer from `{asked.repo}` failed ({_words(error)})",
        remedy="try again, or with HF_HUB_DISABLE_XET=1, which takes plain HTTP",
    )


def _no_token(asked: Asked, _error: BaseException) -> HubError:
    """The error's own text would show the token."""
    return HubError(
        "the token of `-hft` or HF_TOKEN holds characters that no token has",
        expected="letters, digits and `_`, as in hf_...",
        remedy=f"copy it again from {asked.endpoint}/settings/tokens",
    )


def _nobody(asked: Asked, _error: BaseException) -> HubError:
    return HubError(f"{asked.endpoint} must know who asks, and there is no token", remedy=asked.login)


def _misspelt(asked: Asked, error: BaseException) -> HubError:
    return HubError(f"`{asked.repo}` cannot be the name of a repository ({_words(error)})", expected="ORG/REPO")


UNWRITABLE: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""What a folder answers that this user may not write to."""


def _os_error(asked: Asked, error: BaseException) -> HubError | None:
    if getattr(error, "errno", None) == errno.ENOSPC:
        remedy = "free some space, or choose another folder for downloads with HF_HUB_CACHE or LLAMA_CACHE"
        return HubError(f"the disk is full while downloading from `{asked.repo}`", remedy=remedy)
    if getattr(error, "errno", None) in UNWRITABLE:
        return HubError(
            f"the cache cannot be written to ({error})",
            remedy="choose another folder for downloads with HF_HUB_CACHE or LLAMA_CACHE",
        )
    if "Consistency check failed" in str(error):
        return HubUnreachableError(f"a file of `{asked.repo}` came incomplete", remedy="try again")
    return None


def _words(error: BaseException) -> str:
    said = getattr(error, "server_message", None) or str(error).strip() or type(error).__name__
    text = " ".join(str(said).split()).rstrip(".")
    return text if len(text) <= WORDS_LIMIT else f"{text[: WORDS_LIMIT - 3]}..."


TABLE: Final[tuple[tuple[str, Callable[[Asked, BaseException], HubError | None]], ...]] = (
    ("GatedRepoError", _gated),
    ("DisabledRepoError", _disabled),
    ("RevisionNotFoundError", _no_revision),
    ("RepositoryNotFoundError", _no_repo),
    ("LocalEntryNotFoundError", _offline),
    ("EntryNotFoundError", _no_file),
    ("OfflineModeIsEnabled", _offline),
    ("HfHubHTTPError", _by_status),
    ("FileMetadataError", _no_hub),
    ("HFValidationError", _misspelt),
    ("JSONDecodeError", _no_hub),
    ("TooManyRedirects", _no_hub),
    ("UnicodeEncodeError", _no_token),
    ("LocalProtocolError", _no_token),
    ("HTTPError", _unreachable),
    ("ConnectionError", _unreachable),
    ("RequestException", _unreachable),
    ("InvalidURL", _no_hub),
    ("LocalTokenNotFoundError", _nobody),
    ("OSError", _os_error),
)
"""Class -> its sentence; the first row that fits counts."""
