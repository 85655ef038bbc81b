"""Parts of a file that stays on the hub, asked for by ranges of bytes.

Comes in: a file of a listing. Goes out: bytes of it, exactly as many as were asked for. An answer that was cut short
is asked for again from where it ended; a server that sends the whole file in the place of a part is refused.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from dflash_gguf.errors import HubError, HubUnreachableError
from dflash_gguf.hub.client import LIBRARY
from dflash_gguf.hub.errors import failures, is_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dflash_gguf.hub.client import Hub, HubFile, Listing

PAUSES: Final = (0.0, 0.0, 1.0, 2.0, 4.0)
"""Seconds before each try to get what is still missing of a range; what brings something begins them anew."""
TIMEOUT: Final = 30.0
PARTIAL: Final = 206


@dataclass(frozen=True, slots=True, eq=False)
class RemoteFile:
    """A file on the hub, which serves ranges of bytes as `gguf_parser.ByteSource` asks for them."""

    hub: Hub
    listing: Listing
    file: HubFile

    def __str__(self) -> str:
        return f"{self.listing.repo}/{self.file.path}"

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.file.path).name

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.file.size

    def here(self) -> Path:
        """Its path in the cache, downloaded whole; raises `HubError`."""
        return self.hub.download(self.listing, self.file.path)

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end; raises `HubError`."""
        data = bytearray()
        self.stream(offset, length, data.extend)
        return bytes(data)

    def stream(self, offset: int, length: int, take: Callable[[bytes], object]) -> int:
        """Hands the bytes of a range to ``take`` as they come; returns their number. Raises `HubError`."""
        part = _Part(offset, max(0, min(length, self.size - offset)), take)
        with failures(self.hub.asked(self.listing.repo, self.listing.revision, self.file.path)):
            tries = 0
            while part.done < part.wanted and tries < len(PAUSES):
                time.sleep(PAUSES[tries])
                before = part.done
                self._ask(part, once_more=tries + 1 < len(PAUSES))
                tries = 1 if part.done > before else tries + 1
        if part.done < part.wanted:
            raise HubUnreachableError(f"`{self}` came incomplete", value=part.done, expected=f"{part.wanted} bytes")
        return part.wanted

    def _ask(self, part: _Part, *, once_more: bool) -> None:
        """One request for what is missing; a lost connection is passed over when there will be another.

        That is so when it brought something, too.
        """
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff

        before = part.done
        first, last = part.offset + before, part.offset + part.wanted - 1
        url = hf_hub_url(self.listing.repo, self.file.path, revision=self.listing.commit, endpoint=self.hub.endpoint)
        headers = build_hf_headers(token=self.hub.token, library_name=LIBRARY)
        headers |= {"Range": f"bytes={first}-{last}", "Accept-Encoding": "identity"}
        try:
            with http_stream_backoff("GET", url, headers=headers, timeout=TIMEOUT, retry_on_exceptions=()) as response:
                hf_raise_for_status(response)
                self._check_range(response.status_code, response.headers.get("Content-Range", ""), first)
                for chunk in response.iter_bytes():
                    part.add(chunk, self)
        except Exception as error:
            if not (is_network(error) and (once_more or part.done > before)):
                raise

    def _check_range(self, status: int, content_range: str, first: int) -> None:
        if status != PARTIAL or not content_range.startswith(f"bytes {first}-"):
            raise HubError(
                f"{self.hub.endpoint} does not serve parts of `{self}`",
                value=f"status {status}",
                expected=f"{PARTIAL}",
                remedy=f"`hf download {self.listing.repo} {self.file.path}`, and pass the path of the file",
            )


class _Part:
    """What has come of a range."""

    def __init__(self, offset: int, wanted: int, take: Callable[[bytes], object]) -> None:
        self.offset = offset
        self.wanted = wanted
        self.done = 0
        self._take = take

    def add(self, chunk: bytes, file: RemoteFile) -> None:
        if self.done + len(chunk) > self.wanted:
            raise HubError(f"more of `{file}` came than was asked for", expected=f"{self.wanted} bytes")
        self._take(chunk)
        self.done += len(chunk)
