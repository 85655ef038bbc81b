"""What a probe is given and what it hands back.

Comes in: this machine. Goes out: `Machine`, plain facts and the few ways to look further, each of which a test can
replace; `Check`, a probe's answer. Judges nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from dflash_gguf.environment import LIBRARY_PATH, library_path, ollama_host
from dflash_gguf.errors import DflashError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DISTRIBUTION: Final = "dflash-gguf"
LLAMA_CPP: Final = "llama-cpp-python"

IN_CHECKOUT: Final = f".  # in the checkout of {DISTRIBUTION}"
"""This package as pip is told of it: it is on no index."""
OUR_OWN: Final = f"pip install --no-cache-dir --force-reinstall --no-deps {IN_CHECKOUT}"
"""The command that installs it anew."""

TOOL_TIMEOUT: Final = 1.0
"""Seconds that another program may take to answer."""


class ProbeError(DflashError):
    """A fact that could not be had, and why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One answer: what was found and, unless all is well, the command or the words that mend it."""

    name: str
    status: Literal["ok", "warning", "problem"]
    found: str
    remedy: str = ""


def tool_answer(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What a program writes to stdout and stderr; raises `ProbeError` when it fails or takes too long."""
    try:
        done = subprocess.run(  # noqa: S603  the programs are named in the probes
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=TOOL_TIMEOUT, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ProbeError(f"`{os.fspath(command[0])}` did not answer: {error}") from None
    return (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where probes look. ``root`` stands for ``/``; ``native`` maps a fact about libllama to its value or its error.

    ``versions`` maps a distribution to what is installed (None: nothing); ``requires_python`` and ``pin`` are what this
    package's own metadata asks for. ``library_path`` is a folder that llama_cpp is told to take libllama from.
    """

    native: Mapping[str, Mapping[str, Any]]
    versions: Mapping[str, str | None]
    requires_python: str
    pin: str
    python: str = field(default_factory=platform.python_version)
    system: str = field(default_factory=platform.system)
    processor: str = field(default_factory=platform.machine)
    root: Path = Path("/")
    ollama_host: str = ""
    library_path: str = ""
    which: Callable[[str], str | None] = shutil.which
    answer: Callable[[Sequence[str], Mapping[str, str] | None], str] = tool_answer

    def fact(self, name: str) -> Any:
        """A fact about libllama; raises `ProbeError` when it could not be had."""
        found = self.native[name]
        if "error" in found:
            raise ProbeError(str(found["error"]))
        return found["value"]

    def reinstall(self, flags: str = "") -> str:
        """The command that installs the pinned llama-cpp-python anew, built with ``flags``."""
        prefix = f'CMAKE_ARGS="{flags}" ' if flags else ""
        wanted = f"{LLAMA_CPP}=={self.pin}" if self.pin else IN_CHECKOUT
        return f"{prefix}pip install --no-cache-dir --force-reinstall {wanted}"

    def mend(self, flags: str = "") -> str:
        """What mends libllama itself: `reinstall`, unless it is not llama-cpp-python's own."""
        return f"{self._own_library()}{self.reinstall(flags)}"

    def mend_both(self) -> str:
        """The command that also installs this package anew, against the pinned llama-cpp-python."""
        commands = [self.reinstall(), OUR_OWN] if self.pin else [OUR_OWN]
        return self._own_library() + " && ".join(commands)

    def _own_library(self) -> str:
        if not self.library_path:
            return ""
        return f"unset {LIBRARY_PATH}, by which libllama comes from `{self.library_path}`; if that does not help: "


def this_machine(native: Mapping[str, Mapping[str, Any]]) -> Machine:
    """The machine that this process runs on."""
    return Machine(
        native=native,
        versions={name: _installed(name) for name in (DISTRIBUTION, LLAMA_CPP)},
        requires_python=_metadata("Requires-Python"),
        pin=_pin(_metadata("Requires-Dist")),
        ollama_host=ollama_host(),
        library_path=library_path(),
    )


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _metadata(name: str) -> str:
    """A field of this package's metadata, one line for each time it is there; empty when it is not installed."""
    try:
        return "\n".join(importlib.metadata.metadata(DISTRIBUTION).get_all(name, []))
    except importlib.metadata.PackageNotFoundError:
        return ""


def _pin(requirements: str) -> str:
    match = re.search(rf"^{LLAMA_CPP}\s*==\s*([\w.]+)", requirements, re.MULTILINE)
    return match[1] if match else ""
