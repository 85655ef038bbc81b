"""What a long life costs: requests and sessions leave nothing behind."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import pytest
import tiny_targets

from dflash_gguf import Session

STATUS = Path("/proc/self/status")


def resident() -> int:
    """Bytes of this process in memory, without files that are mapped and without what is free and not given back."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


pytestmark = pytest.mark.skipif(not STATUS.exists(), reason="the system does not tell what a process holds")


@pytest.mark.parametrize("kind", ["plain", "hybrid"])
def test_500_requests_leave_the_memory_as_it_was(kind, tiny_target, tiny_drafter, tmp_path):
    """The hybrid target's states are marked in each."""
    target = tiny_target if kind == "plain" else tiny_targets.write_lfm2(tmp_path / "lfm2.gguf")
    with Session(target, tiny_drafter, n_ctx=256, n_threads=1) as session:

        def ask(n):
            for i in range(n):
                prompt = [8 + i % 5, *range(20, 30 + i % 30)]
                for _ in session.generate(prompt, max_tokens=4, stop="never"):
                    pass

        ask(100)
        before = resident()
        ask(400)
        assert resident() - before < 2 << 20


def test_200_sessions_leave_the_memory_as_it_was(tiny_target, tiny_drafter):
    def live():
        with Session(tiny_target, tiny_drafter, n_ctx=256, n_threads=1) as session:
            list(session.generate([8, 9, 10], max_tokens=2))

    for _ in range(40):
        live()
    before = resident()
    for _ in range(160):
        live()
    assert resident() - before < 8 << 20
