"""Clients on the command line: llm, curl and z-lab's dflash, as their users call them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from live import Live

PROMPT = "Count from 1 to 30."
GREEDY = {"temperature": 0, "max_tokens": 48}
DFLASH = Path(sys.prefix) / "dflash-client" / "bin" / "dflash"
"""z-lab's client pins what it needs, so that it has an environment of its own: `make test-serve` makes it."""


def said(command: list[object], variables: dict[str, str] | None = None) -> str:
    """What a command that ends well prints."""
    surroundings = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    words, surroundings = [str(word) for word in command], surroundings | (variables or {})
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120, env=surroundings)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


# ---------------------------------------------------------------- llm


@pytest.fixture
def llm_home(tmp_path: Path, demo: Live) -> dict[str, str]:
    """llm's own folder, in which this server is a model; plugins are left out."""
    model = f"- model_id: demo\n  model_name: demo\n  api_base: {demo.v1}\n  supports_schema: true\n"
    (tmp_path / "extra-openai-models.yaml").write_text(model)
    return {"LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": ""}


def ask_llm(home: dict[str, str], *words: object) -> str:
    return said([Path(sys.prefix) / "bin" / "llm", "-m", "demo", "-o", "temperature", 0, *words], home)


def test_llm_streams_and_waits_for_the_same_text(llm_home: dict[str, str], demo: Live) -> None:
    text = demo.text(PROMPT, **GREEDY).strip()
    assert ask_llm(llm_home, "-o", "max_tokens", 48, PROMPT).strip() == text
    assert ask_llm(llm_home, "-o", "max_tokens", 48, "--no-stream", PROMPT).strip() == text


def test_llm_goes_on_with_a_chat(llm_home: dict[str, str]) -> None:
    ask_llm(llm_home, "-o", "max_tokens", 8, PROMPT)
    assert ask_llm(llm_home, "-c", "-o", "max_tokens", 8, "Go on.").strip()


def test_llm_asks_for_a_schema(llm_home: dict[str, str]) -> None:
    text = ask_llm(llm_home, "-o", "max_tokens", 100, "--schema", "old bool, height int", "Describe a tree.")
    assert set(json.loads(text)) == {"old", "height"}


# ---------------------------------------------------------------- curl


def curl(*words: object) -> str:
    if shutil.which("curl") is None:
        pytest.skip("needs curl: apt-get install curl")
    return said(["curl", "-sS", "--noproxy", "*", *words])


def test_curl_gets_a_stream_of_events(demo: Live) -> None:
    body = {"messages": [{"role": "user", "content": PROMPT}], **GREEDY, "stream": True}
    shown = curl("-N", "-i", f"{demo.v1}/chat/completions", "-d", json.dumps(body))
    head, _, rest = shown.partition("\n\n") if "\r" not in shown else shown.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200")
    assert "text/event-stream" in head
    events = [line.removeprefix("data: ") for line in rest.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert len({chunk["id"] for chunk in chunks}) == 1
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == demo.text(PROMPT, **GREEDY)


def test_curl_sends_a_long_body_from_a_file_and_tokens_come_back(demo: Live, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text(json.dumps({"content": "one two " * 9000}))
    found = curl(f"{demo.url}/tokenize", "-d", f"@{tmp_path / 'body.json'}")
    ids = json.loads(found)["tokens"]
    assert len(ids) > 9000
    text = curl(f"{demo.url}/detokenize", "-d", json.dumps({"tokens": ids[:8]}))
    assert json.loads(text)["content"].startswith("one two one two")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("-d", "{"), 400),
        (("-d", "[1]"), 400),
        (("-X", "DELETE"), 405),
        (("-d", "{}", "-H", "Host: elsewhere.example"), 403),
        (("-d", "{}", "-H", "Origin: https://elsewhere.example"), 403),
    ],
)
def test_curl_is_refused_in_openais_shape(demo: Live, words: tuple[str, ...], status: int) -> None:
    shown = curl("-w", "\n%{http_code}", f"{demo.v1}/chat/completions", *words)
    body, _, code = shown.rpartition("\n")
    assert int(code) == status
    assert set(json.loads(body)["error"]) >= {"message", "type", "param", "code"}


def test_curl_asks_after_the_servers_health_and_figures(demo: Live) -> None:
    assert json.loads(curl(f"{demo.url}/health")) == {"status": "ok"}
    assert "# TYPE" in curl(f"{demo.url}/metrics")


# ---------------------------------------------------------------- z-lab's client


def test_zlabs_client_generates_the_same_text(demo: Live) -> None:
    if not DFLASH.exists():
        pytest.skip(f"needs z-lab's client in {DFLASH.parent.parent}: make test-serve")
    settings = ["--max-new-tokens", 48, "--temperature", 0]
    shown = said([DFLASH, "generate", "openai", "--base-url", demo.url, "--model", "demo", *settings, PROMPT])
    assert shown.strip() == demo.text(PROMPT, **GREEDY).strip()


def test_what_zlabs_benchmark_reads(demo: Live) -> None:
    """Of its requests: `return_meta_info`, and an empty `chat_template_kwargs`. Its data sets need a hub."""
    found = demo.chat(PROMPT, **GREEDY, top_p=1.0, chat_template_kwargs={}, return_meta_info=True)
    meta = found["meta_info"]
    assert meta["spec_verify_ct"] > 0
    assert meta["spec_accept_length"] > 2
    assert found["usage"]["completion_tokens"] == 48
