"""A model hub on this machine, with just what the real huggingface_hub client asks one for.

Comes in: repositories as tables of bytes. Goes out: an address, a log of what was asked, and the bytes that were
served, counted by file. Large files are redirected to another origin, as the hub does to its CDN. Nothing here is
slow or random; what goes wrong goes wrong because a test said so.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE: Final = (".safetensors", ".gguf", ".bin", ".pt", ".model")
"""What the hub keeps by Git LFS."""
PAGE: Final = 50
TOKEN: Final = "hf_" + "t" * 34
OTHER_TOKEN: Final = "hf_" + "o" * 34
"""A valid token without access to what is gated or private."""
Row = tuple[int, dict[str, str], bytes]


def git_id(data: bytes) -> str:
    """The id that git gives a blob."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclass
class Repo:
    """``gated``: its files need `TOKEN`; ``private``: so does knowing of it. ``revisions``: names of the commit."""

    files: dict[str, bytes]
    gated: bool = False
    private: bool = False
    revisions: set[str] = field(default_factory=lambda: {"main"})

    @property
    def commit(self) -> str:
        """A function of the content."""
        text = "".join(f"{path}\0{git_id(data)}\n" for path, data in sorted(self.files.items()))
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Request:
    """One request as it came; ``host`` tells the hub (127.0.0.1) from its CDN (localhost)."""

    method: str
    path: str
    host: str
    range: str | None
    token: str | None


class HubServer(ThreadingHTTPServer):
    """The server; tests set `repos`, `statuses` and `cuts`, and read `requests` and `served`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, Repo] = {}
        self.requests: list[Request] = []
        self.served: Counter[str] = Counter()
        self.cuts: dict[str, list[int]] = {}
        """Name of a file -> after how many bytes each of the next answers breaks off."""
        self.statuses: list[tuple[str, int, dict[str, str]]] = []
        """Rows of (part of a path, status, headers), each answered once instead of the real answer."""
        self.ranges = True
        self.xet = False
        """Whether large files are said to lie in Xet storage, of which there is none here."""
        self.uploads: dict[str, bytes] = {}
        self.created: list[dict[str, Any]] = []
        self.commits: list[list[dict[str, Any]]] = []
        self.naps: list[float] = []
        """Seconds that the client would have waited."""

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no fault."""

    @property
    def endpoint(self) -> str:
        """The hub's address."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def cdn(self) -> str:
        """Another origin of the same server."""
        return f"http://localhost:{self.server_port}"

    def add(self, name: str, files: dict[str, bytes], **more: Any) -> Repo:
        """Publishes a repository."""
        self.repos[name] = Repo(dict(files), **more)
        return self.repos[name]

    def bytes_of(self, ending: str) -> int:
        """Bytes that were served of files whose path ends so."""
        return sum(count for path, count in self.served.items() if path.endswith(ending))

    def asked(self, method: str, part: str) -> list[Request]:
        """The requests of a method whose path contains ``part``."""
        return [row for row in self.requests if row.method == method and part in row.path]

    def forget(self) -> None:
        """Empties the log and the counts."""
        self.requests.clear()
        self.served.clear()


@contextmanager
def serving() -> Iterator[HubServer]:
    """A hub that answers inside the block."""
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: HubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """A body would wait for the client's acknowledgement of its headers, of which the client is in no hurry."""

    def log_message(self, *_: object) -> None:
        """The log is `HubServer.requests`."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    # ------------------------------------------------------------ one request

    def _answer(self) -> None:
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        self.body = self._chunks() if chunked else self.rfile.read(int(self.headers.get("Content-Length") or 0))
        words = (self.headers.get("Authorization") or "").split()
        self.token = words[1] if len(words) == 2 else None
        self.url = urlsplit(self.path)
        path = unquote(self.url.path)
        host = (self.headers.get("Host") or "").partition(":")[0]
        self.server.requests.append(Request(self.command, path, host, self.headers.get("Range"), self.token))
        status, headers, data = self._planned(path) or self._routed(path)
        self._send(status, headers, data, path)

    def _chunks(self) -> bytes:
        data = b""
        while length := int(self.rfile.readline(), 16):
            data += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _planned(self, path: str) -> Row | None:
        for i, (part, status, headers) in enumerate(self.server.statuses):
            if part in path:
                del self.server.statuses[i]
                return status, headers, b""
        return None

    def _routed(self, path: str) -> Row:
        if self.token not in (None, TOKEN, OTHER_TOKEN):
            return _error(401, "Invalid credentials in Authorization header", None)
        parts = path.strip("/").split("/")
        if parts[0] == "cdn":
            return self._content(self.server.repos[f"{parts[1]}/{parts[2]}"], "/".join(parts[3:]), {})
        if parts[0] == "lfs":
            self.server.uploads[parts[1]] = self.body
            return 200, {}, b""
        if parts[0] == "api":
            return self._api(parts[1:])
        if parts[-1] == "batch":
            return self._batch()
        if len(parts) > 4 and parts[2] == "resolve":
            return self._resolve(f"{parts[0]}/{parts[1]}", parts[3], "/".join(parts[4:]))
        return _error(404, "Not Found", None)

    def _send(self, status: int, headers: dict[str, str], data: bytes, path: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        cuts = self.server.cuts.get(path.rpartition("/")[2])
        if cuts and data:
            data = data[: cuts.pop(0)]
            self.close_connection = True
        self.server.served[path] += len(data)
        self.wfile.write(data)

    # ------------------------------------------------------------ reading

    def _repo(self, name: str) -> Repo | Row:
        repo = self.server.repos.get(name)
        if repo is None or (repo.private and self.token != TOKEN):
            # The hub does not tell those who are not known what exists.
            return _error(404 if self.token else 401, "Repository not found", "RepoNotFound")
        return repo

    def _api(self, parts: list[str]) -> Row:
        if parts == ["whoami-v2"]:
            return _json({"name": "me", "type": "user"}) if self.token else _error(401, "Unauthorized", None)
        if parts == ["repos", "create"]:
            return self._create()
        if parts == ["validate-yaml"]:
            return _json({"errors": [], "warnings": []})
        if parts[0] != "models" or len(parts) < 3:
            return _error(404, "Not Found", None)
        name, rest = f"{parts[1]}/{parts[2]}", parts[3:]
        repo = self._repo(name)
        if not isinstance(repo, Repo):
            return repo
        if rest and rest[0] in ("preupload", "commit"):
            return self._writing(repo, name, rest[0])
        revision = rest[1] if len(rest) > 1 else "main"
        if revision not in {*repo.revisions, repo.commit}:
            return _error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        if rest[:1] == ["tree"]:
            return self._tree(repo)
        return _json({"id": name, "sha": repo.commit, "gated": "manual" if repo.gated else False, "siblings": []})

    def _tree(self, repo: Repo) -> Row:
        """A page of the tree, and the address of the next one in `Link`."""
        start = int(parse_qs(self.url.query).get("cursor", ["0"])[0])
        rows = [_tree_row(path, data) for path, data in sorted(repo.files.items())]
        folders = sorted({path.rpartition("/")[0] for path in repo.files if "/" in path})
        rows += [{"type": "directory", "oid": git_id(name.encode()), "size": 0, "path": name} for name in folders]
        status, headers, data = _json(rows[start : start + PAGE])
        if start + PAGE < len(rows):
            address = f"{self.server.endpoint}{self.url.path}?recursive=true&cursor={start + PAGE}"
            headers["Link"] = f'<{address}>; rel="next"'
        return status, headers, data

    def _resolve(self, name: str, revision: str, path: str) -> Row:
        repo = self._repo(name)
        if not isinstance(repo, Repo):
            return repo
        if repo.gated and self.token != TOKEN:
            return _error(403 if self.token else 401, f"Access to model {name} is restricted", "GatedRepo")
        if revision not in {*repo.revisions, repo.commit}:
            return _error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        commit = {"X-Repo-Commit": repo.commit}
        if path not in repo.files:
            status, headers, data = _error(404, "Entry not found", "EntryNotFound")
            return status, headers | commit, data
        data = repo.files[path]
        if not path.endswith(LARGE):
            return self._content(repo, path, commit)
        linked = {"X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Linked-Size": str(len(data))}
        if self.server.xet:
            linked |= {"X-Xet-Hash": hashlib.sha256(data).hexdigest()}
            linked |= {"Link": f'<{self.server.endpoint}/api/models/{name}/xet-read-token/{revision}>; rel="xet-auth"'}
        return 302, {"Location": f"{self.server.cdn}/cdn/{name}/{path}", **linked, **commit}, b""

    def _content(self, repo: Repo, path: str, headers: dict[str, str]) -> Row:
        data = repo.files[path]
        headers = {"ETag": f'"{git_id(data)}"', "Accept-Ranges": "bytes", **headers}
        wanted = self.headers.get("Range")
        if wanted is None or not self.server.ranges:
            return 200, headers, data
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
        if start > end:
            return 416, {**headers, "Content-Range": f"bytes */{len(data)}"}, b""
        return 206, {**headers, "Content-Range": f"bytes {start}-{end}/{len(data)}"}, data[start : end + 1]

    # ------------------------------------------------------------ writing

    def _create(self) -> Row:
        wanted = json.loads(self.body)
        name = f"{wanted['organization'] or 'me'}/{wanted['name']}"
        if self.token != TOKEN:
            return _error(403 if self.token else 401, "You may not create a repository here", None)
        if name in self.server.repos:
            status, headers, _ = _error(409, "You already created this model repo", None)
            return status, headers, json.dumps({"url": f"{self.server.endpoint}/{name}"}).encode()
        self.server.created.append(wanted)
        self.server.add(name, {}, private=wanted.get("visibility") == "private" or wanted.get("private") is True)
        return _json({"url": f"{self.server.endpoint}/{name}", "name": name})

    def _writing(self, repo: Repo, name: str, step: str) -> Row:
        if self.token != TOKEN:
            return _error(403 if self.token else 401, "You may not write here", None)
        if step == "preupload":
            files = [row["path"] for row in json.loads(self.body)["files"]]
            modes = [(path, "lfs" if path.endswith(LARGE) else "regular") for path in files]
            return _json({"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes]})
        rows = [json.loads(line) for line in self.body.splitlines()]
        self.server.commits.append(rows)
        for row in rows:
            value = row["value"]
            if row["key"] == "file":
                repo.files[value["path"]] = base64.b64decode(value["content"])
            elif row["key"] == "lfsFile":
                repo.files[value["path"]] = self.server.uploads[value["oid"]]
        url = f"{self.server.endpoint}/{name}/commit/{repo.commit}"
        return _json({"success": True, "commitOid": repo.commit, "commitUrl": url})

    def _batch(self) -> Row:
        """Where each large file is to be put."""
        objects = [
            {**row, "actions": {"upload": {"href": f"{self.server.cdn}/lfs/{row['oid']}"}}}
            for row in json.loads(self.body)["objects"]
        ]
        return _json({"transfer": "basic", "objects": objects})


def _tree_row(path: str, data: bytes) -> dict[str, Any]:
    row = {"type": "file", "oid": git_id(data), "size": len(data), "path": path}
    if path.endswith(LARGE):
        row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return row


def _json(value: object) -> Row:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _error(status: int, message: str, code: str | None) -> Row:
    headers = {"X-Error-Message": message, "Content-Type": "application/json"}
    return status, headers | ({"X-Error-Code": code} if code else {}), json.dumps({"error": message}).encode()
