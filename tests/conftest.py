"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import signal
import tempfile
from typing import TYPE_CHECKING

import hub_server
import pytest
import tiny

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_configure() -> None:
    """A shell that starts the suite with `&` has it ignore SIGINT, and so would every command that a test stops."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Those of `tempfile`, here and in every command that is started, lie with pytest's own, and none is left."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        yield
    ours = "dflash-gguf-", tempfile.gettempprefix()  # PyTorch and browsers keep files of their own there
    left = [path.name for path in folder.iterdir() if path.name.startswith(ours)]
    assert not left, f"a test, or a command that it ran, left {left}"


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BF16 DFlash 2 checkpoint of two layers, in z-lab's layout."""
    return tiny.write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Q8_0 target of four Qwen3 layers that `tiny_checkpoint` fits."""
    return tiny.write_target(tmp_path_factory.mktemp("target") / "tiny-qwen3-Q8_0.gguf", type="Q8_0")


@pytest.fixture(scope="session")
def tiny_drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of `tiny_checkpoint` as an F32 GGUF, written without this package."""
    return tiny.write_drafter(tmp_path_factory.mktemp("drafter") / "dflash-tiny-qwen3-F32.gguf")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.HubServer]:
    """A hub of this machine that the client asks, in this process and in those that it starts.

    Its cache is `tmp_path / "hub"`. No user's token, no waiting, nothing from the environment.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    for name in ("MODEL_ENDPOINT", "LLAMA_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "hub"
    places = {"HF_HUB_CACHE": folder, "HF_ASSETS_CACHE": tmp_path / "assets", "HF_TOKEN_PATH": tmp_path / "token"}
    for name, value in places.items():
        monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(constants, name, str(value))
    for name, on in (("HF_HUB_OFFLINE", False), ("HF_HUB_DISABLE_XET", True), ("HF_HUB_DISABLE_TELEMETRY", True)):
        monkeypatch.setattr(constants, name, on)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    with hub_server.serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setattr("time.sleep", server.naps.append)
        yield server
        close_session()
