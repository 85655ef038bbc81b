"""Probes of what is installed: Python, this package, llama-cpp-python, libllama and the native core between them.

Comes in: a `Machine`. Goes out: a `Check` each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import dflash_gguf
from dflash_gguf.probes.checks import DISTRIBUTION, IN_CHECKOUT, LLAMA_CPP, OUR_OWN, Check, ProbeError
from dflash_gguf.probes.native import SYMBOLS

if TYPE_CHECKING:
    from dflash_gguf.probes.checks import Machine


def python(machine: Machine) -> Check:
    """The interpreter against ``requires-python``."""
    least = re.search(r">=\s*(\d+)\.(\d+)", machine.requires_python)
    given = tuple(map(int, machine.python.split(".")[:2]))
    if least is not None and given < tuple(map(int, least.groups())):
        wanted = ".".join(least.groups())
        remedy = f"python{wanted} -m venv .venv && .venv/bin/pip install {IN_CHECKOUT}"
        return Check("Python", "problem", f"{machine.python}, needs {wanted} or newer", remedy)
    return Check("Python", "ok", f"{machine.python} on {machine.system} {machine.processor}")


def package(machine: Machine) -> Check:
    """The version of this package that is imported, and the one that is installed."""
    installed, imported = machine.versions[DISTRIBUTION], dflash_gguf.__version__
    if installed == imported:
        return Check(DISTRIBUTION, "ok", imported)
    found = f"{imported} is imported, {installed or 'nothing'} is installed"
    return Check(DISTRIBUTION, "problem", found, OUR_OWN)


def llama_cpp_python(machine: Machine) -> Check:
    """llama-cpp-python against the one version that the native core is built for."""
    installed = machine.versions[LLAMA_CPP]
    if installed == machine.pin:
        return Check(LLAMA_CPP, "ok", installed)
    wanted = f"needs {machine.pin}" if machine.pin else f"{DISTRIBUTION} is not installed, so its pin is unknown"
    return Check(LLAMA_CPP, "problem", f"{installed or 'not installed'}, {wanted}", machine.reinstall())


def libllama(machine: Machine) -> Check:
    """The library's own version."""
    version, ggml = machine.fact("llama_version"), machine.fact("ggml_version")
    return Check("libllama", "ok", f"{version}, ggml {ggml}, {machine.fact('path')}")


def abi(machine: Machine) -> Check:
    """Importing the core compares both views of libllama; its words are the finding."""
    try:
        machine.fact("core")
    except ProbeError as error:
        difference = str(error).partition("; reinstall both")[0]
        return Check("ABI", "problem", difference, machine.mend_both())
    return Check("ABI", "ok", "the native core and llama-cpp-python agree")


def mapped(machine: Machine) -> Check:
    """One process, one libllama: two of them share no state."""
    paths = machine.fact("mapped")
    if paths is None:
        return Check("libllama mapped", "ok", f"not known on {machine.system}")
    if len(paths) == 1:
        return Check("libllama mapped", "ok", "once")
    return Check("libllama mapped", "problem", f"{len(paths)} times: {', '.join(paths)}", machine.mend_both())


def exports(machine: Machine) -> Check:
    """The C++ functions that libllama exports and its headers do not declare."""
    missing = machine.fact("missing_exports")
    if not missing:
        return Check("exported functions", "ok", f"{len(SYMBOLS)} of {len(SYMBOLS)}")
    found = f"{len(SYMBOLS) - len(missing)} of {len(SYMBOLS)}, missing: {', '.join(missing)}"
    return Check("exported functions", "problem", found, machine.mend())
