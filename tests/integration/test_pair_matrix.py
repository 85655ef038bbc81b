"""Tiny targets and tiny drafters, each with one thing wrong: every pair is refused with its own message, by no signal.

Each case is a process of its own, that runs the command line as a user would.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import gguf_bytes
import gguf_parts
import numpy as np
import pytest
import tiny
import tiny_architectures
from faulty_drafters import DRAFTERS
from faulty_targets import TARGETS
from fork_server import Ended, ForkServer
from gguf_parts import Parts

from dflash_gguf.cli.errors import NOT_PASSED
from dflash_gguf.findings import Finding
from dflash_gguf.gguf_header import read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from faults import Case

SIZES: dict[str, Any] = {"hidden": 64, "ffn": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 320}
DRAFTER: dict[str, Any] = SIZES | {"layers": 1, "top_k": 4, "rank": 32, "block": 4}
TARGET: dict[str, Any] = SIZES | {"layers": 4}
KINDS = ("dflash", "dflash2", "dspark")
CASES = DRAFTERS | TARGETS


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as opened:
        yield opened


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, tuple[tuple[str, Any], ...]], Path]:
    """Role, architecture or kind, and sizes -> a sound file, written once."""
    folder = tmp_path_factory.mktemp("sound")

    @cache
    def sound(role: str, what: str, sizes: tuple[tuple[str, Any], ...] = ()) -> Path:
        path = folder / f"{len(list(folder.iterdir()))}.gguf"
        if role == "drafter":
            return tiny.write_drafter(path, kind=what, **DRAFTER | dict(sizes))
        if what in tiny_architectures.ARCHITECTURES and what != "qwen3":
            return tiny_architectures.write(path, what)
        return tiny.write_target(path, what, **TARGET | dict(sizes))

    return sound


def faulty(sound: Path, path: Path, keys: dict[str, bytes | None], edit: Any) -> Path:
    """``sound`` with a change."""
    parts = Parts.of(sound).changed(keys)
    if edit == "shards":
        return split(parts, path)
    if edit == "text":
        path.write_text("hello")
    elif edit == "cut":
        data = sound.read_bytes()
        path.write_bytes(data[: len(data) // 2])
    elif edit == "alignment":
        parts.changed({"general.alignment": gguf_bytes.u32(8)}).write(path, alignment=8)
    else:
        (parts if edit is None else edit(parts)).write(path)
    return path


def split(parts: Parts, path: Path) -> Path:
    """``parts`` as two shards, the second of which is aligned to 8 bytes and has its data where 32 do not divide."""
    names = list(parts.tensors)
    counts = {"split.count": gguf_parts.u16(2), "split.tensors.count": gguf_parts.i32(len(names))}
    halves = names[len(names) // 2 :], names[: len(names) // 2]
    paths = [path.with_name(f"target-{number:05}-of-00002.gguf") for number in (1, 2)]
    first = parts.changed(counts | {"split.no": gguf_parts.u16(0)}, dict.fromkeys(halves[0]))
    first.write(paths[0])
    for length in range(0, 32, 8):
        own = {"general.alignment": gguf_bytes.u32(8), "x": gguf_bytes.string("x" * length)}
        second = Parts(counts | own | {"split.no": gguf_parts.u16(1)}, parts.tensors)
        second.changed(tensors=dict.fromkeys(halves[1])).write(paths[1], alignment=8)
        if read_header(paths[1]).data_offset % 32 == 8:
            return paths[0]
    raise AssertionError


def pair_of(case: Case, files: Any, folder: Path) -> tuple[Path, Path]:
    drafter = faulty(
        files("drafter", case.kind, tuple(case.drafter.items())), folder / "drafter.gguf", case.keys, case.edit
    )
    if case.arch in {"swapped", "dflash"}:
        target = files("target", "qwen3", ())
        return (drafter, target) if case.arch == "swapped" else (drafter, drafter)
    sound = files("target", case.arch, tuple(case.target.items()))
    return faulty(sound, folder / "target.gguf", case.target_keys, case.target_edit), drafter


PROMPT = ("-p", "hello there", "--raw", "-n", 4, "-c", 256, "-t", 1)


@pytest.fixture(scope="module")
def outcome(server: ForkServer, files: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ended]:
    """Case -> how ``run`` ended, run once."""

    @cache
    def run(name: str) -> Ended:
        target, drafter = pair_of(CASES[name], files, tmp_path_factory.mktemp("pair"))
        return server.command("run", "-m", target, "-md", drafter, *PROMPT)

    return run


@pytest.mark.parametrize("name", CASES)
def test_run_refuses(name: str, outcome: Callable[[str], Ended]) -> None:
    case, ended = CASES[name], outcome(name)
    assert ended.returncode == 1, ended
    assert ended.out == ""
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ")
    assert case.message in line
    assert ("(2) " in line) == case.several, line


@pytest.mark.parametrize("name", CASES)
def test_check_tells(name: str, server: ForkServer, files: Any, tmp_path: Path) -> None:
    case = CASES[name]
    target, drafter = pair_of(case, files, tmp_path)
    ended = server.command("check", "-m", target, "-md", drafter, "--json")
    assert ended.returncode == case.check_code, ended
    if case.check_code != NOT_PASSED:
        (line,) = ended.err.splitlines()
        assert case.message in line
        return
    errors = [finding for finding in json.loads(ended.out)["findings"] if finding["level"] == "error"]
    assert (len(errors) > 1) == case.several
    assert any(case.message in said(finding) for finding in errors), errors
    assert all(finding["remedy"] for finding in errors)


def said(finding: dict[str, Any]) -> str:
    """A finding of the report as `run` says it."""
    return str(Finding(finding["level"], finding["what"], finding["target"], finding["draft"], finding["remedy"]))


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if (case.target_keys or case.target_edit) and name != "twins"]
)
def test_a_target_alone_is_refused_too(name: str, server: ForkServer, files: Any, tmp_path: Path) -> None:
    target, _ = pair_of(CASES[name], files, tmp_path)
    ended = server.command("run", "-m", target, "--no-draft", *PROMPT)
    assert ended.returncode == 1, ended
    assert CASES[name].message in ended.err


def test_every_fault_has_words_of_its_own(outcome: Callable[[str], Ended]) -> None:
    said: dict[str, str] = {}
    for name in CASES:
        words = re.sub(r"`/[^`]*`", "the file", outcome(name).err)
        assert words not in said, (name, said.get(words))
        said[words] = name
    messages = [case.message for case in CASES.values()]
    assert len(set(messages)) == len(messages)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_pair_runs(kind: str, server: ForkServer, files: Any) -> None:
    words = ("-m", files("target", "qwen3", ()), "-md", files("drafter", kind, ()))
    assert server.command("run", *words, *PROMPT).returncode == 0
    assert server.command("check", *words).returncode == 0


@pytest.mark.parametrize("arch", sorted(tiny_architectures.ARCHITECTURES))
def test_every_sound_target_runs_with_a_drafter(arch: str, server: ForkServer, files: Any) -> None:
    ended = server.command("run", "-m", files("target", arch, ()), "-md", files("drafter", "dflash2", ()), *PROMPT)
    assert ended.returncode == 0, ended


def test_the_weights_of_a_sound_drafter_may_be_infinite(server: ForkServer, files: Any, tmp_path: Path) -> None:
    parts = Parts.of(files("drafter", "dflash2", ()))
    broken = {
        name: (shape, kind, np.full(len(data) // 4, np.inf, np.float32).tobytes())
        for name, (shape, kind, data) in parts.tensors.items()
    }
    drafter = parts.changed(tensors=broken).write(tmp_path / "drafter.gguf")
    ended = server.command("run", "-m", files("target", "qwen3", ()), "-md", drafter, *PROMPT)
    assert ended.returncode == 1, ended
