"""llama.cpp's server as a peer. It must be built from the same llama.cpp as the installed llama-cpp-python."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

N_CTX = 2048


class Server:
    """llama-server until ``close()``: alone, or with a drafter at one depth. It takes no other for a single request."""

    def __init__(self, program: str, target: Path, threads: int, draft: Path | None = None, depth: int = 0) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        words: list[Any] = [program, "-m", target, "-c", N_CTX, "-t", threads, "-np", 1, "-fa", "on", "--no-webui"]
        if draft is not None:
            words += ["-md", draft, "-td", threads, "--spec-type", "draft-dflash", "--spec-draft-n-max", depth]
        words += ["--port", self.port]
        self.process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if self.process.poll() is not None:
                raise SystemExit(f"{program} ended with {self.process.returncode}")
            try:
                self._get("/health")
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise SystemExit(f"{program} did not become ready within a minute")

    def ask(self, ids: list[int], n_predict: int, temperature: float = 0.0, seed: int = 0) -> dict[str, float]:
        """llama-server's own timings of one completion, with what it drafted and accepted."""
        body = {"prompt": ids, "n_predict": n_predict, "temperature": temperature, "seed": seed, "cache_prompt": False}
        return json.loads(self._get("/completion", json.dumps(body).encode()))["timings"]

    def _get(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310
            return answer.read()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
