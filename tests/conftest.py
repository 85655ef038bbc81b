"""Fixtures that every folder of tests shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tiny

if TYPE_CHECKING:
    from pathlib import Path


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
