"""The OpenAPI document, and schemathesis, which makes requests of it: good ones, and such as it says are bad."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live import Live

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
"""All but `positive_data_acceptance`: what a schema cannot say, such as that a prompt fits the context, is refused."""


def test_schemathesis_finds_nothing(small: Live, tmp_path: Path) -> None:
    command = [
        Path(sys.prefix) / "bin" / "schemathesis",
        "run",
        f"{small.url}/openapi.json",
        *("--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing", "--max-examples", 15),
        *("--seed", 1, "--request-timeout", 30, "--no-color"),
    ]
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert "mostly rejected" not in done.stdout, "what the document calls good is refused: the rest was hardly tried"
    assert small.text("hello", max_tokens=2)
