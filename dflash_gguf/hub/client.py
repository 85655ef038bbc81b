"""The hub as this package uses it: what a repository holds at one commit, and its files in the shared cache.

Comes in: the name of a repository. Goes out: a `Listing`, and paths in the cache's snapshot. The cache is the one of
huggingface_hub and of llama.cpp: what either has downloaded is not downloaded again. Knows nothing of models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf import environment
from dflash_gguf.errors import HubError, HubUnreachableError
from dflash_gguf.hub.errors import ONLINE, Asked, failures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from huggingface_hub import HfApi

DEFAULT_REVISION: Final = "main"
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
SHA256: Final = re.compile(r"[0-9a-f]{64}")
FILES_LIMIT: Final = 100_000
HTTP_LIMIT: Final = 50_000_000_000
"""Bytes of the largest file that the hub serves over plain HTTP."""
LIBRARY: Final = "dflash-gguf"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository: ``size`` in bytes; ``oid`` is its SHA-256 when it is ``large``, else git's id."""

    path: str
    size: int
    oid: str
    large: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """What ``repo`` holds at ``commit``, by path and in order of paths.

    ``cached``: by the cache alone, so that files may be missing; ``note`` says why when the hub should have been asked.
    """

    repo: str
    revision: str
    commit: str
    files: Mapping[str, HubFile]
    cached: bool = False
    note: str = ""

    def __str__(self) -> str:
        return f"{self.repo} at {self.commit}"


@dataclass(frozen=True, slots=True)
class Hub:
    """Where the hub is, where its files go, and who asks: ``token`` None stands for the one of `hf auth login`.

    ``offline``: nothing is asked over the network.
    """

    endpoint: str
    cache: Path
    token: str | None = field(default=None, repr=False)
    offline: bool = False

    def listing(self, repo: str, revision: str | None = None) -> Listing:
        """What the repository holds now at ``revision``; by the cache when offline or when the hub cannot be reached.

        Raises `HubError`.
        """
        if self.offline:
            return self._cached_listing(repo, revision)
        try:
            return self._remote_listing(repo, revision or DEFAULT_REVISION)
        except HubUnreachableError as error:
            try:
                listing = self._cached_listing(repo, revision)
            except HubError:
                raise error from None
            return replace(listing, note=f"{error.what}: `{repo}` is taken from the cache")

    def cached(self, listing: Listing, path: str) -> Path | None:
        """Where the cache keeps the file at this commit, or None."""
        found = self._snapshot(listing) / path
        return found if found.is_file() else None

    def download(self, listing: Listing, path: str) -> Path:
        """The file's path in the cache's snapshot, downloaded unless it is there; raises `HubError`."""
        from huggingface_hub import hf_hub_download

        found = self.cached(listing, path)
        if found is not None:
            return found
        with failures(self.asked(listing.repo, listing.revision, path)):
            self._fetch_large(listing, path)
            got = hf_hub_download(
                listing.repo,
                path,
                revision=listing.commit,
                cache_dir=self.cache,
                endpoint=self.endpoint,
                token=self.token,
                local_files_only=self.offline or listing.cached,
                library_name=LIBRARY,
            )
        self._remember(listing)
        return Path(got)

    def _fetch_large(self, listing: Listing, path: str) -> None:
        """Bring a large file's blob over plain HTTP, on from where an earlier run stopped.

        What the hub keeps in Xet storage is left to huggingface_hub where its package for that is there.
        """
        from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

        from dflash_gguf.hub.blobs import fetch_blob
        from dflash_gguf.hub.ranges import RemoteFile

        file = listing.files.get(path)
        if self.offline or listing.cached or file is None or not file.large:
            return
        url = hf_hub_url(listing.repo, path, revision=listing.commit, endpoint=self.endpoint)
        found = get_hf_file_metadata(url, token=self.token, library_name=LIBRARY, endpoint=self.endpoint)
        in_xet = found.xet_file_data is not None and not constants.HF_HUB_DISABLE_XET and find_spec("hf_xet")
        if not in_xet and file.size <= HTTP_LIMIT and found.etag == file.oid:
            fetch_blob(RemoteFile(self, listing, file), self._repo_folder(listing.repo) / "blobs" / file.oid)

    def snapshot(self, listing: Listing) -> Path:
        """The folder of this commit in the cache, which holds what was downloaded of it."""
        folder = self._snapshot(listing)
        with failures(self.asked(listing.repo)):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def asked(self, repo: str, revision: str | None = None, file: str | None = None, *, writing: bool = False) -> Asked:
        """What a request to this hub is about, for its errors."""
        return Asked(self.endpoint, repo, revision, file, known=self._known(), writing=writing)

    def api(self) -> HfApi:
        """huggingface_hub's client of this hub."""
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, token=self.token, library_name=LIBRARY)

    def _known(self) -> bool:
        from huggingface_hub import get_token

        return bool(self.token) or get_token() is not None

    def _remote_listing(self, repo: str, revision: str) -> Listing:
        api = self.api()
        with failures(self.asked(repo, revision)):
            commit = api.model_info(repo, revision=revision).sha
            if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
                raise HubError(f"{self.endpoint} names no commit for `{repo}`", value=commit)
            tree = api.list_repo_tree(repo, recursive=True, revision=commit)
            files = sorted((file for row in tree if (file := _file(row)) is not None), key=lambda file: file.path)
        return Listing(repo, revision, commit, {file.path: file for file in files})

    def _cached_listing(self, repo: str, revision: str | None) -> Listing:
        commit = self._cached_commit(repo, revision)
        listing = Listing(repo, revision or DEFAULT_REVISION, commit or "", {}, cached=True)
        folder = self._snapshot(listing)
        if commit is None or not folder.is_dir():
            what = f"`{repo}`{f' at `{revision}`' if revision else ''}"
            raise HubUnreachableError(
                f"{what} is not in the cache `{self.cache}`, and nothing may be downloaded",
                remedy=f"{ONLINE}, or run `hf download {repo}` first",
            )
        return replace(listing, files={file.path: file for file in sorted(_walked(folder), key=lambda f: f.path)})

    def _cached_commit(self, repo: str, revision: str | None) -> str | None:
        """The commit of a revision by the cache; without a revision that of any branch will do, as in llama.cpp."""
        if revision is not None and COMMIT.fullmatch(revision):
            return revision
        refs = self._repo_folder(repo) / "refs"
        wanted = [refs / (revision or DEFAULT_REVISION)]
        if revision is None:
            wanted += sorted(path for path in refs.rglob("*") if path.is_file())
        texts = (path.read_text(encoding="ascii", errors="replace").strip() for path in wanted if path.is_file())
        return next((text for text in texts if COMMIT.fullmatch(text)), None)

    def _repo_folder(self, repo: str) -> Path:
        return self.cache / f"models--{repo.replace('/', '--')}"

    def _snapshot(self, listing: Listing) -> Path:
        return self._repo_folder(listing.repo) / "snapshots" / listing.commit

    def _remember(self, listing: Listing) -> None:
        """Keeps what commit the revision was: files are asked for by commit, and the cache is read by revision."""
        if listing.cached or COMMIT.fullmatch(listing.revision):
            return
        ref = self._repo_folder(listing.repo) / "refs" / listing.revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        if not ref.is_file() or ref.read_text(encoding="ascii", errors="replace") != listing.commit:
            ref.write_text(listing.commit, encoding="ascii")


def hub(*, token: str | None = None, offline: bool = False) -> Hub:
    """The hub by the environment: `environment.VARIABLES` and huggingface_hub's own."""
    from huggingface_hub import constants

    endpoint = environment.hub_endpoint() or constants.ENDPOINT
    cache = Path(environment.llama_cache() or constants.HF_HUB_CACHE).expanduser()
    return Hub(endpoint, cache, (token or "").strip() or None, offline=offline or bool(constants.HF_HUB_OFFLINE))


def _file(row: Any) -> HubFile | None:
    """A row of huggingface_hub's tree; folders, and names or ids that lead out of the cache, are none."""
    size = getattr(row, "size", None)
    path = str(row.path)
    if size is None or not _inside(path):
        return None
    lfs = getattr(row, "lfs", None)
    if lfs is None:
        return HubFile(path, size, str(row.blob_id), large=False)
    # Its blob is named by it.
    return HubFile(path, int(lfs.size), lfs.sha256, large=True) if SHA256.fullmatch(str(lfs.sha256)) else None


def _inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and path.isprintable() and not path.startswith("/") and ".." not in parts and "\\" not in path


def _walked(folder: Path) -> Iterator[HubFile]:
    for count, path in enumerate(sorted(folder.rglob("*"))):
        if count >= FILES_LIMIT:
            raise HubError(f"`{folder}` holds too many files", expected=f"at most {FILES_LIMIT}")
        if path.is_file():
            oid = path.readlink().name if path.is_symlink() else ""
            name = path.relative_to(folder).as_posix()
            yield HubFile(name, path.stat().st_size, oid, large=SHA256.fullmatch(oid) is not None)
