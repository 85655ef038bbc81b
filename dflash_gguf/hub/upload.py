"""Files put into a repository of the hub, in one commit.

Comes in: a repository's name, files and texts. Goes out: the commit's address. A repository that does not exist is
made, private unless it is said otherwise; what one holds already is left as it is, but for files of the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_gguf.errors import HubError, HubUnreachableError
from dflash_gguf.hub.errors import failures, status_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dflash_gguf.hub.client import Hub, Listing


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where files are to go: ``listing`` is None for a repository that does not exist yet."""

    hub: Hub
    repo: str
    private: bool
    listing: Listing | None

    def __str__(self) -> str:
        kind = f"{'new' if self.listing is None else 'existing'} {'private' if self.private else 'public'}"
        return f"the {kind} repository `{self.repo}` on {self.hub.endpoint}"

    @property
    def page(self) -> str:
        """Its address."""
        return f"{self.hub.endpoint}/{self.repo}"

    def text(self, path: str) -> str | None:
        """What a small file of it says, or None."""
        if self.listing is None or path not in self.listing.files:
            return None
        return self.hub.download(self.listing, path).read_text(encoding="utf-8", errors="replace")


def find_shelf(hub: Hub, repo: str, *, public: bool) -> Shelf:
    """Look whether the repository exists; raises `HubError` when nothing could be put there."""
    asked = hub.asked(repo, writing=True)
    if hub.offline:
        raise HubUnreachableError(f"nothing can be put into `{repo}` offline", remedy="unset HF_HUB_OFFLINE")
    if not asked.known:
        raise HubError(f"the hub must know who puts files into `{repo}`", remedy=asked.login)
    with failures(asked):
        try:
            info = hub.api().model_info(repo)
        except Exception as error:
            if status_of(error) != 404:
                raise
            return Shelf(hub, repo, private=not public, listing=None)
    return Shelf(hub, repo, private=bool(info.private), listing=hub.listing(repo))


def put(shelf: Shelf, files: Mapping[str, Path | bytes], message: str) -> str:
    """One commit with ``files``, by their paths in the repository; returns its address. Raises `HubError`."""
    from huggingface_hub import CommitOperationAdd

    api = shelf.hub.api()
    with failures(shelf.hub.asked(shelf.repo, writing=True)):
        if shelf.listing is None:
            api.create_repo(shelf.repo, private=shelf.private)
        operations = [
            CommitOperationAdd(path, source if isinstance(source, bytes) else str(source))
            for path, source in files.items()
        ]
        return str(api.create_commit(shelf.repo, operations, commit_message=message).commit_url)
