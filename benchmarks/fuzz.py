"""Broken inputs, many of them, through everything that reads a file: each must be taken or refused by our own errors.

    python benchmarks/fuzz.py gguf|safetensors|config|pair|all [--runs N] [--seed N] [--keep FOLDER]

    gguf         bytes of a GGUF, as a drafter, a target and a fork's file: inspect, check, rekey to a temporary folder
    pair         keys and tensors of a tiny pair, by choice: the same, and the check of the pair
    safetensors  the header of a checkpoint's weights: the plan of a conversion
    config       a checkpoint's config.json: the plan of a conversion

With atheris (pip install atheris) the inputs follow the branches that they reach; without it they are drawn blindly,
which the last line says. That line counts inputs, those that were refused, and what must be 0: exceptions that are
not ours, inputs that took over 5 seconds, and files left behind. ``--keep`` keeps the inputs that crashed or hung.
Nothing native runs here: that is tests/properties/test_pair_mutations.py.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

try:
    import atheris
except ImportError:
    atheris = None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Try = Callable[[bytes], object]

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

HANG = 5.0
MEMORY = Path("/dev/shm")  # noqa: S108  where it is there; files are made by mkdtemp
MODES = ("gguf", "pair", "safetensors", "config")
SIZES: dict[str, Any] = {"hidden": 64, "ffn": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 320, "top_k": 4}
KINDS = ("dflash", "dflash2", "dspark")
ROOM = 1 << 20
"""Bytes behind a mutated header, so that its tensors have room."""


@dataclass(slots=True)
class Counts:
    """State: what happened so far."""

    inputs: int = 0
    refused: int = 0
    crashed: int = 0
    hung: int = 0
    left: int = 0
    kinds: set[str] = field(default_factory=set)


class Fuzz:
    """State: the counts, and the folder that ``attempt`` works in."""

    def __init__(self, attempt: Try, folder: Path, keep: Path | None) -> None:
        self.attempt, self.folder, self.keep = attempt, folder, keep
        self.counts = Counts()
        self.own = set(folder.rglob("*"))

    def one(self, data: bytes) -> None:
        """Tries one input and counts what it does."""
        from dflash_gguf.errors import DflashError

        self.counts.inputs += 1
        began = time.perf_counter()
        try:
            self.attempt(data)
        except DflashError:
            self.counts.refused += 1
        except Exception:  # noqa: BLE001  whatever it is, it is what is looked for
            self.counts.crashed += 1
            self._tell(traceback.format_exc(), data)
        if time.perf_counter() - began > HANG:
            self.counts.hung += 1
            self._tell(f"took {time.perf_counter() - began:.1f} s", data)
        for path in set(self.folder.rglob("*")) - self.own:
            self.counts.left += 1
            self._tell(f"left {path.name}", data)
            path.unlink()

    def _tell(self, what: str, data: bytes) -> None:
        kind = "".join(what.splitlines()[-3:])
        if kind in self.counts.kinds:
            return
        self.counts.kinds.add(kind)
        print(what, file=sys.stderr, flush=True)
        if self.keep is not None:
            (self.keep / f"{len(self.counts.kinds):03}-{self.counts.inputs}").write_bytes(data)


# ---------------------------------------------------------------- modes: a folder -> what to try, and seeds


def gguf_mode(folder: Path) -> tuple[Try, list[bytes]]:
    """A header's bytes, with room for data behind them."""
    import forks
    import tiny

    target = tiny.write_target(folder / "target.gguf", layers=4, **_target_sizes())
    drafters = [tiny.write_drafter(folder / f"{kind}.gguf", kind=kind, **SIZES) for kind in KINDS]
    styles = sorted(forks.STYLES)
    forked = [forks.write_fork(drafters[0], folder / f"{style}.gguf", forks.STYLES[style]) for style in styles]
    changed, whole = folder / "changed.gguf", folder / "dflash2.gguf"
    changed.touch()

    def attempt(data: bytes) -> None:
        _write(changed, data, len(data) + ROOM)
        _read_all(changed, target, whole)

    return attempt, [_header_of(path) for path in (target, *drafters, *forked)]


def pair_mode(folder: Path) -> tuple[Try, list[bytes]]:
    """An input is a list of choices: which of a pair is changed, and how."""
    import tiny
    import tiny_architectures
    from gguf_changes import changed as with_changes
    from gguf_parts import Parts

    sound = {arch: tiny_architectures.write(folder / f"{arch}.gguf", arch) for arch in tiny_architectures.ARCHITECTURES}
    sound |= {kind: tiny.write_drafter(folder / f"{kind}.gguf", kind=kind, **SIZES) for kind in KINDS}
    parts = {name: Parts.of(path) for name, path in sound.items()}
    names = [*KINDS * 4, *tiny_architectures.ARCHITECTURES]
    changed = folder / "changed.gguf"
    changed.touch()

    def attempt(data: bytes) -> None:
        choices = _Choices(data)
        name = names[choices.take(len(names))]
        with_changes(parts[name], "dflash" if name in KINDS else name, choices.take, 4).write(changed)
        _read_all(changed, sound["qwen3"], sound["dflash2"])

    return attempt, [bytes(range(start, start + 32)) for start in range(0, 224, 16)]


def safetensors_mode(folder: Path) -> tuple[Try, list[bytes]]:
    """The header of the weights; the data behind it stays as long as it was."""
    checkpoint, target, plan = _checkpoint(folder)
    weights = checkpoint / "model.safetensors"
    sound = weights.read_bytes()
    length = 8 + struct.unpack("<Q", sound[:8])[0]

    def attempt(data: bytes) -> None:
        _write(weights, data, len(data) + len(sound) - length)
        plan(checkpoint, target, "F16")

    return attempt, [sound[:length]]


def config_mode(folder: Path) -> tuple[Try, list[bytes]]:
    """The text of config.json."""
    checkpoint, target, plan = _checkpoint(folder)
    config = checkpoint / "config.json"
    seeds = [config.read_bytes(), json.dumps(json.loads(config.read_text()), separators=(",", ":")).encode()]

    def attempt(data: bytes) -> None:
        config.write_bytes(data)
        plan(checkpoint, target, "F16")

    return attempt, seeds


PREPARE: dict[str, Callable[[Path], tuple[Try, list[bytes]]]] = {
    "gguf": gguf_mode,
    "pair": pair_mode,
    "safetensors": safetensors_mode,
    "config": config_mode,
}


def _target_sizes() -> dict[str, Any]:
    return {name: size for name, size in SIZES.items() if name != "top_k"}


def _checkpoint(folder: Path) -> tuple[Path, Path, Any]:
    import tiny

    from dflash_gguf.convert.api import plan

    target = tiny.write_target(folder / "target.gguf", layers=4, **_target_sizes())
    return tiny.write_checkpoint(folder / "checkpoint", layers=1, **SIZES), target, plan


def _header_of(path: Path) -> bytes:
    from dflash_gguf.gguf_header import read_header

    return read_header(path).blob


def _write(path: Path, data: bytes, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)
        file.truncate(size)


def _read_all(changed: Path, target: Path, draft: Path) -> None:
    """Everything that reads a GGUF. Refused is what no step takes but `inspect`, which takes all sound headers."""
    from dflash_gguf.convert.target import load_target
    from dflash_gguf.difference import as_dict as difference_as_dict
    from dflash_gguf.difference import diff
    from dflash_gguf.errors import DflashError
    from dflash_gguf.gguf_header import read_header
    from dflash_gguf.inspect import as_dict, inspect
    from dflash_gguf.pair import check, check_alone
    from dflash_gguf.rekeying.api import rekey

    rekeyed = changed.with_name("rekeyed.gguf")
    header = read_header(changed)
    json.dumps(as_dict(inspect(changed)))
    json.dumps(difference_as_dict(diff(draft, changed, data=False)))
    taken, refusal = False, None
    for step in (
        lambda: check(target, changed).raise_if_bad(),
        lambda: check(changed, draft).raise_if_bad(),
        lambda: check_alone(header),
        lambda: load_target(changed),
        lambda: rekey(changed, rekeyed, target).path.unlink(),  # noqa: PLW0108  not made before it is asked for
    ):
        try:
            step()
            taken = True
        except DflashError as error:
            refusal = error
    if refusal is not None and not taken:
        raise refusal


class _Choices:
    """Bytes as numbers below a limit; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self.data, self.pos = data, 0

    def take(self, n: int) -> int:
        """From 0 to n - 1."""
        width = 1 if n <= 256 else 2
        chunk = self.data[self.pos : self.pos + width]
        self.pos += width
        return int.from_bytes(chunk, "little") % n


# ---------------------------------------------------------------- drivers


def blindly(fuzz: Fuzz, seeds: Iterable[bytes], runs: int, seed: int) -> None:
    """Seeds with a few bytes overwritten, taken out, put in or doubled."""
    rng, pool = random.Random(seed), list(seeds)  # noqa: S311  nothing to keep secret
    while fuzz.counts.inputs < runs:
        data = bytearray(rng.choice(pool))
        for _ in range(1 + rng.randrange(6)):
            place, length = rng.randrange(len(data) + 1), 1 + rng.randrange(8)
            piece = rng.choice((rng.randbytes(length), bytes(length), b"\xff" * length, bytes(data[place:][:length])))
            end = place + rng.choice((len(piece), 0, length))
            data[place:end] = b"" if rng.randrange(8) == 0 else piece
        fuzz.one(bytes(data))


def guided(fuzz: Fuzz, seeds: Iterable[bytes], runs: int, seed: int, done: Callable[[], None]) -> None:
    """Atheris, which never returns: ``done`` reports, and the process ends."""
    with tempfile.TemporaryDirectory(prefix="dflash-corpus-") as corpus:
        for number, data in enumerate(seeds):
            (Path(corpus) / str(number)).write_bytes(data)

        def one(data: bytes) -> None:
            fuzz.one(data)
            if fuzz.counts.inputs >= runs:
                done()
                shutil.rmtree(corpus, ignore_errors=True)
                sys.stdout.flush()
                os._exit(0)

        options = [sys.argv[0], f"-seed={seed + 1}", "-max_len=65536", "-timeout=60", "-rss_limit_mb=4096"]
        atheris.Setup([*options, "-verbosity=0", "-len_control=0", corpus], one)
        atheris.Fuzz()


def _instrument() -> None:
    """Lets atheris see the branches of the package, whose modules an editable install loads by a loader of its own."""
    import dflash_gguf.convert.api
    import dflash_gguf.difference
    import dflash_gguf.inspect
    import dflash_gguf.rekeying.api  # noqa: F401

    for found in gc.get_objects():
        if isinstance(found, FunctionType) and (found.__module__ or "").startswith("dflash_gguf"):
            atheris.instrument_func(found)


def fuzz_one_mode(mode: str, runs: int, seed: int, keep: Path | None) -> None:
    """Fuzzes and prints the line."""
    folder = Path(tempfile.mkdtemp(prefix="dflash-fuzz-", dir=MEMORY if MEMORY.is_dir() else None))
    attempt, seeds = PREPARE[mode](folder)
    if atheris is not None:
        _instrument()
    fuzz, began = Fuzz(attempt, folder, keep), time.monotonic()

    def done() -> None:
        shutil.rmtree(folder)
        counts, how = fuzz.counts, "atheris" if atheris is not None else "blind (atheris is not installed)"
        print(
            f"{mode}: {counts.inputs} inputs by {how} in {time.monotonic() - began:.0f} s: {counts.refused} refused, "
            f"{counts.crashed} crashed, {counts.hung} hung, {counts.left} files left behind",
            flush=True,
        )

    if atheris is not None:
        guided(fuzz, seeds, runs, seed, done)
    blindly(fuzz, seeds, runs, seed)
    done()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=[*MODES, "all"])
    parser.add_argument("--runs", type=int, default=25_000, help="inputs of a mode")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for inputs that crashed or hung")
    asked = parser.parse_args()
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
    if asked.mode != "all":
        fuzz_one_mode(asked.mode, asked.runs, asked.seed, asked.keep)
        return
    options = ["--runs", str(asked.runs), "--seed", str(asked.seed)]
    options += [] if asked.keep is None else ["--keep", str(asked.keep)]
    for mode in MODES:
        subprocess.run([sys.executable, __file__, mode, *options], check=True)


if __name__ == "__main__":
    main()
