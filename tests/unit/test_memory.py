"""How much memory the caches of a pair are counted to need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import tiny
import tiny_architectures

from dflash_gguf.errors import SessionError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.runner import machine, memory

if TYPE_CHECKING:
    from pathlib import Path

N_CTX = 1000


@pytest.mark.parametrize(
    ("arch", "keys", "heads", "length"),
    [
        ("qwen3", {}, 8, 32),
        ("qwen3", {"qwen3.attention.sliding_window": 4}, 8, 32),  # a key that its loader does not read
        ("lfm2", {}, 4, 32),
        ("lfm2", {"lfm2.attention.sliding_window": 4}, 0, 32),
        ("gemma4", {}, 4, 32),
        ("gpt-oss", {}, 4, 32),
        ("gpt-oss", {"gpt-oss.attention.sliding_window_pattern": 4}, 2, 32),
        ("gpt-oss", {"gpt-oss.attention.sliding_window_pattern": 0}, 0, 32),
        ("mimo2", {"mimo2.attention.head_count_kv": [1, 2, 1, 4]}, 6, 32),
        ("bailingmoe3", {}, 2, 40),
        ("deepseek4", {}, 0, 32),
    ],
)
def test_bytes_of_a_token(arch: str, keys: dict[str, Any], heads: int, length: int, tmp_path: Path) -> None:
    """F16 keys and values of the layers that see all."""
    path = tiny_architectures.write(tmp_path / "t.gguf", arch, extra_keys=keys)
    cache = memory.Cache(read_header(path), N_CTX, "f16", "f16", 1)
    assert memory._bytes_a_token(cache) == heads * length * 2


@pytest.mark.parametrize(
    ("arch", "values"), [("qwen3", 0), ("qwen35", 64 * 16), ("nemotron_h", 64 * 16), ("bailingmoe3", 4 * 16 * 16)]
)
def test_bytes_of_a_state(arch: str, values: int, tmp_path: Path) -> None:
    path = tiny_architectures.write(tmp_path / "t.gguf", arch)
    assert memory._bytes_a_state(read_header(path)) == 4 * values * 4


def test_more_than_the_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = read_header(tiny_architectures.write(tmp_path / "t.gguf", "qwen3"))
    draft = read_header(tiny.write_drafter(tmp_path / "d.gguf", layers=1, kv_heads=2, head_dim=16, hidden=64, ffn=64))
    caches = [memory.Cache(target, N_CTX, "f16", "f16", 1), memory.Cache(draft, N_CTX, "f16", "f16", 0)]
    needed = N_CTX * (8 + 2) * 32 * 2
    monkeypatch.setattr(machine, "total", lambda: needed)
    memory.check_memory(caches)
    with pytest.raises(SessionError, match="a context of 1001 tokens needs about"):
        memory.check_memory([replace(caches[0], n_ctx=N_CTX + 1), caches[1]])
    memory.check_memory([replace(caches[0], n_ctx=N_CTX + 1), replace(caches[1], n_ctx=100)])


@pytest.mark.parametrize(
    ("type_k", "type_v", "bits"), [("f32", "f32", 64), ("q8_0", "q8_0", 17), ("f16", "q4_0", 20.5)]
)
def test_types_of_the_cache(type_k: str, type_v: str, bits: float, tmp_path: Path) -> None:
    header = read_header(tiny_architectures.write(tmp_path / "t.gguf", "qwen3"))
    assert memory._bytes_a_token(memory.Cache(header, 1, type_k, type_v, 0)) == 8 * 16 * bits / 8
