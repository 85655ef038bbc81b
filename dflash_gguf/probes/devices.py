"""Probes of the machine: what libllama computes on, a GPU that it leaves idle, cores and memory.

Comes in: a `Machine`. Goes out: a `Check` each.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.probes.checks import Check, ProbeError
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_gguf.probes.checks import Machine

_AMD: Final = "0x1002"


@dataclass(frozen=True, slots=True)
class Vendor:
    """A maker of GPUs: how one is seen without libllama, the backends that serve it, and how to get one.

    ``seen`` returns where the GPU was seen, or an empty text; ``tool`` tells what the driver says of it.
    """

    title: str
    seen: Callable[[Machine], str]
    backends: frozenset[str]
    flag: str
    tool: str


def _nvidia(machine: Machine) -> str:
    device = next(machine.root.glob("dev/nvidia[0-9]*"), None)
    if device is not None:
        return f"/dev/{device.name}"
    if (machine.root / "proc/driver/nvidia/version").exists():
        return "/proc/driver/nvidia/version"
    tool = machine.which("nvidia-smi")
    try:
        listed = machine.answer([tool, "-L"], None) if tool else ""
    except ProbeError:
        return ""
    return "nvidia-smi" if re.search(r"^GPU \d+:", listed, re.MULTILINE) else ""


def _amd(machine: Machine) -> str:
    if (machine.root / "dev/kfd").exists():
        return "/dev/kfd"
    cards = machine.root.glob("sys/class/drm/card*/device/vendor")
    return next((f"/sys/class/drm/{card.parts[-3]}" for card in cards if card.read_text().strip() == _AMD), "")


def _apple(machine: Machine) -> str:
    return "its processor" if (machine.system, machine.processor) == ("Darwin", "arm64") else ""


VENDORS: Final = (
    Vendor("NVIDIA", _nvidia, frozenset({"CUDA", "Vulkan"}), "-DGGML_CUDA=on", "nvidia-smi"),
    Vendor("AMD", _amd, frozenset({"ROCm", "HIP", "Vulkan"}), "-DGGML_HIP=on", "rocminfo"),
    Vendor("Apple", _apple, frozenset({"Metal", "MTL"}), "-DGGML_METAL=on", "system_profiler SPDisplaysDataType"),
)


def devices(machine: Machine) -> Check:
    """What libllama computes on."""
    found = machine.fact("devices")
    if not found:
        return Check("devices", "problem", "libllama has none", machine.reinstall())
    texts = [f"{device['name']} ({device['description']}, {_memory(device)})" for device in found]
    offload = "yes" if machine.fact("gpu_offload") else "no"
    backends = ", ".join(machine.fact("backends"))
    return Check("devices", "ok", f"{'; '.join(texts)}; backends: {backends}; offload to a GPU: {offload}")


def _memory(device: dict[str, int]) -> str:
    return f"{device['free'] / 1e9:.1f} of {device['total'] / 1e9:.1f} GB free"


def gpu(machine: Machine) -> Check:
    """Whether a GPU is there and libllama uses it."""
    sights = [(vendor, where) for vendor in VENDORS if (where := vendor.seen(machine))]
    if not sights:
        return Check("GPU", "ok", "none found")
    there = ", ".join(f"{vendor.title} (seen by {where})" for vendor, where in sights)
    backends = set(machine.fact("backends"))
    if any(device["type"] in ("GPU", "IGPU") for device in machine.fact("devices")):
        return Check("GPU", "ok", f"{there}, and libllama uses one")
    served = next((vendor for vendor, _ in sights if vendor.backends & backends), None)
    if served is not None:
        return Check("GPU", "warning", f"{there}, but libllama's backend finds no device", served.tool)
    found = f"{there}, but libllama has no backend for it: it would compute on the CPU"
    return Check("GPU", "problem", found, machine.reinstall(sights[0][0].flag))


def processor(machine: Machine) -> Check:
    """Cores, memory, and what libllama was compiled to use of the CPU. For information."""
    features = re.findall(r"(\w+) = 1", machine.fact("system_info"))
    cores = f"{physical_cores()} cores for a pass, {os.cpu_count()} hardware threads"
    return Check("processor", "ok", f"{cores}; libllama uses {', '.join(features) or 'no extensions'}")


def memory(machine: Machine) -> Check:
    """Free memory. For information."""
    table = machine.root / "proc/meminfo"
    if not table.exists():
        return Check("memory", "ok", f"not known on {machine.system}")
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", table.read_text(), re.MULTILINE)}
    free, total = sizes["MemAvailable"] * 1024, sizes["MemTotal"] * 1024
    return Check("memory", "ok", f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free")
