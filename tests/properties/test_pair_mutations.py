"""Whatever is changed in the files of a pair, the check refuses it, or it loads and drafts with no signal.

What passes the check goes to the real libllama, each in a process of its own.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import scratch
import tiny
import tiny_architectures
from fork_server import ForkServer
from gguf_bytes import Memory
from gguf_changes import changed
from gguf_parts import Parts
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_gguf import pair
from dflash_gguf.errors import GGUFError, PairError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.inspect import as_dict, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES: dict[str, Any] = {"hidden": 64, "ffn": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 320}
KINDS = ("dflash", "dflash2", "dspark")
ARCHITECTURES = sorted(tiny_architectures.ARCHITECTURES)
TRIES = 200
PASSES = {True: 6, False: 3}
"""Changed drafters of a kind, and changed targets of an architecture, that pass the check and go on to libllama."""


@dataclass(frozen=True, slots=True)
class Files:
    """Sound files, and their parts, by kind and by architecture."""

    paths: dict[str, Path]
    parts: dict[str, Parts]


@cache
def files() -> Files:
    paths = {}
    folder = scratch.folder("pairs")
    for kind in KINDS:
        paths[kind] = tiny.write_drafter(folder / kind, kind=kind, layers=2, top_k=4, block=4, **SIZES)
    for arch in ARCHITECTURES:
        paths[arch] = tiny_architectures.write(folder / arch, arch)
    return Files(paths, {name: Parts.of(path) for name, path in paths.items()})


def written(name: str, path: Path, take: Any) -> Path:
    """A file with random changes."""
    arch = "dflash" if name in KINDS else name
    return changed(files().parts[name], arch, take).write(path)


def judged(target: Path, draft: Path) -> bool:
    """Whether the pair passes; both checks and `inspect` either answer or raise our errors."""
    for path in (target, draft):
        with suppress(GGUFError):
            as_dict(inspect(path))
    with suppress(GGUFError, PairError):
        pair.check_alone(read_header(target))
        return pair.check(target, draft).ok
    return False


def judged_alone(target: Path) -> bool:
    """Whether a target passes that takes no drafter."""
    with suppress(GGUFError, PairError):
        pair.check_alone(read_header(target))
        return True
    return False


@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_the_check_answers(data: st.DataObject) -> None:
    def take(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    name = data.draw(st.sampled_from([*KINDS, *ARCHITECTURES]))
    header = read_header(files().paths["dflash2" if name not in KINDS else "qwen3"])
    parts = changed(files().parts[name], "dflash" if name in KINDS else name, take)
    with tempfile.TemporaryDirectory() as folder, suppress(GGUFError, PairError):
        other = read_header(Memory(parts.write(Path(folder) / "changed").read_bytes()))
        as_dict(inspect(other))
        (pair.check(header, other) if name in KINDS else pair.check(other, header)).raise_if_bad()


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as opened:
        yield opened


@pytest.mark.parametrize("name", [*KINDS, *ARCHITECTURES])
def test_what_passes_runs_with_no_signal(name: str, server: ForkServer, tmp_path: Path) -> None:
    """Seeded rather than drawn by hypothesis, whose shrinking would run a crash many times."""
    random = Random(f"pairs of {name}")  # noqa: S311  nothing to keep secret
    path = tmp_path / "changed"
    passed, sound = 0, files().paths[name]
    alone = name not in KINDS and not judged(sound, files().paths["dflash2"])
    for number in range(TRIES):
        written(name, path, random.randrange)
        target, draft = (files().paths["qwen3"], path) if name in KINDS else (path, files().paths["dflash2"])
        if not (judged_alone(target) if alone else judged(target, draft)):
            continue
        ended = server.draft(target, None if alone else draft)
        assert ended.returncode in {0, 1}, (number, ended)
        passed += 1
        if passed == PASSES[name in KINDS]:
            return
    pytest.fail(f"only {passed} of {TRIES} passed the check")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_target_alone_runs_or_is_refused_with_no_signal(name: str, server: ForkServer, tmp_path: Path) -> None:
    random = Random(f"targets of {name}")  # noqa: S311
    path = tmp_path / "changed"
    for number in range(3):
        ended = server.draft(written(name, path, random.randrange), None)
        assert ended.returncode in {0, 1}, (number, ended)
