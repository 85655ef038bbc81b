"""A model in ollama from a rendered Modelfile: over HTTP for GGUF files, by ollama's program for safetensors.

Comes in: a `Modelfile`, a name, where ollama is. Goes out: what was done. Prints nothing.
Source: ollama parser/parser.go, cmd/cmd.go and server/create.go (v0.33.0-rc2): files are sent as blobs under their
SHA-256, and named by it in the request; safetensors are imported by the program itself, into its own store.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.environment import ollama_host
from dflash_gguf.errors import OllamaError
from dflash_gguf.modelfile.api import create_command
from dflash_gguf.modelfile.content import GGUF
from dflash_gguf.modelfile.parameters import DEPTH, as_options
from dflash_gguf.modelfile.syntax import model_name
from dflash_gguf.modelfile.versions import known_key, needed, version_key
from dflash_gguf.ollama.address import address, is_here
from dflash_gguf.ollama.client import PIECE, Client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dflash_gguf.modelfile.api import Modelfile
    from dflash_gguf.modelfile.content import Content

UPGRADE: Final = "upgrade ollama: https://ollama.com/download"
PLAIN_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.gguf")
"""A file name that every ollama takes in a request; it refuses colons and backslashes."""


@dataclass(frozen=True, slots=True)
class Created:
    """A model that was made: ``sent`` are bytes that ollama did not have yet; 0 for safetensors."""

    name: str
    place: str
    version: str
    sent: int


def create(
    made: Modelfile,
    name: str,
    *,
    host: str | None = None,
    told: Callable[[str], None] = lambda _: None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Created:
    """Make model ``name`` from a rendered Modelfile. ``host`` is as OLLAMA_HOST, which is the default.

    ``told`` hears what ollama says it does, ``progress`` what is read or sent: a label, bytes so far, bytes in all.
    Raises `OllamaError`, with ollama's own words where it refuses.
    """
    model_name(name)
    host = ollama_host() if host is None else host
    if made.content.source.lane is not GGUF:
        return _by_program(made, name, host)
    with Client(host) as client:
        version = client.version()
        check_version(made.content, version, client.place)
        digests: dict[Path, str] = {}
        sent = 0
        for path in _files(made.content):
            digests[path] = _digest(path, progress)
            sent += _send(client, digests[path], path, progress)
        client.create(request(made.content, name, digests), told)
        return Created(name, client.place, version, sent)


def check_version(content: Content, version: str, place: str) -> None:
    """Raise `OllamaError` when this server is too old for the pair, or for what the Modelfile requires."""
    reason = needed(content.source.kind, version)
    found = version_key(version)
    if not reason and found is not None and any(found[0]) and found < known_key(content.requires):
        reason = f"the Modelfile requires {content.requires}"
    if reason:
        raise OllamaError(f"ollama at {place} is {version}, and {reason}", remedy=UPGRADE)


def request(content: Content, name: str, digests: Mapping[Path, str]) -> dict[str, Any]:
    """The body of ``POST /api/create``: what the Modelfile says, with files named by their digests."""
    source = content.source
    body: dict[str, Any] = {
        "model": name,
        "draft_files": {_sent_name(source.draft, "drafter"): digests[source.draft]},
        "parameters": {DEPTH: content.depth, **as_options(content.parameters)},
        "requires": content.requires,
        "system": content.system,
        "template": content.template,
        "license": list(content.licenses) or None,
        "renderer": content.renderer,
        "parser": content.parser,
        "draft_quantize": content.draft_quantize,
    }
    if source.from_model:
        body["from"] = source.target
    else:
        target = Path(source.target)
        body["files"] = {_sent_name(target, "target"): digests[target]}
    return {key: value for key, value in body.items() if value is not None}


def _files(content: Content) -> tuple[Path, ...]:
    source = content.source
    return (source.draft,) if source.from_model else (Path(source.target), source.draft)


def _sent_name(path: Path, role: str) -> str:
    return path.name if PLAIN_FILE.fullmatch(path.name) else f"{role}.gguf"


def _digest(path: Path, progress: Callable[[str, int, int], None]) -> str:
    total, done, digest = path.stat().st_size, 0, hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            done += len(piece)
            progress(f"reading {path.name}", done, total)
    return f"sha256:{digest.hexdigest()}"


def _send(client: Client, digest: str, path: Path, progress: Callable[[str, int, int], None]) -> int:
    """Sends a file unless ollama has it; returns the bytes that were sent."""
    if client.has_blob(digest):
        return 0
    size = path.stat().st_size
    client.send_blob(digest, path, lambda done: progress(f"sending {path.name}", done, size))
    return size


def _by_program(made: Modelfile, name: str, host: str) -> Created:
    """Runs ``ollama create``; it writes into its store itself, and so only on this machine."""
    _, server, port = address(host)
    if not is_here(server):
        raise OllamaError(
            f"OLLAMA_HOST is {server}:{port}, and ollama imports safetensors only on its own machine",
            remedy="run this there, or unset OLLAMA_HOST",
        )
    program = shutil.which("ollama")
    if program is None:
        by_hand = create_command(made.content, "Modelfile", name)
        raise OllamaError(
            "`ollama` is not installed", remedy=f"install it, write the Modelfile with `-o`, then: {by_hand}"
        )
    with tempfile.TemporaryDirectory(prefix="dflash-gguf-") as folder:
        modelfile = Path(folder) / "Modelfile"
        modelfile.write_text(made.text, encoding="utf-8", newline="\n")
        command = [program, "create", name, "-f", str(modelfile), *made.content.flags]
        # What it says of its progress is no answer of ours. Where it runs, no folder has the name of a model: it would
        # be taken for that.
        done = subprocess.run(  # noqa: S603
            command, check=False, cwd=folder, stdout=sys.stderr, stdin=subprocess.DEVNULL
        )
    if done.returncode != 0:
        raise OllamaError(f"`ollama create` ended with code {done.returncode}", remedy="see what it said above")
    return Created(name, f"{server}:{port}", "", 0)
