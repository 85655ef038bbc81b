"""Probes of the machine: what libllama computes on, a GPU that it leaves idle, cores and memory.

Comes in: a `Machine`. Goes out: a `Check` each.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.environment import KERNELS
from dflash_gguf.probes.checks import Check, ProbeError
from dflash_gguf.threads import physical_cores

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dflash_gguf.probes.checks import Machine

_AMD: Final = "0x1002"
_OWN_MEMORY: Final = 4 << 30
"""Bytes. Firmware lends a GPU inside a processor less than this, unless told otherwise; a card has more."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Where a GPU was seen, without libllama. ``worth_using``: it is surely faster than the processor beside it."""

    where: str
    worth_using: bool = True


@dataclass(frozen=True, slots=True)
class Vendor:
    """A maker of GPUs: how one is seen without libllama, the backends that serve it, and how to get one.

    ``seen`` returns None where there is none; ``tool`` tells what the driver says of it.
    """

    title: str
    seen: Callable[[Machine], Sight | None]
    backends: frozenset[str]
    flag: str
    tool: str


def _nvidia(machine: Machine) -> Sight | None:
    device = next(machine.root.glob("dev/nvidia[0-9]*"), None)
    if device is not None:
        return Sight(f"/dev/{device.name}")
    if (machine.root / "proc/driver/nvidia/version").exists():
        return Sight("/proc/driver/nvidia/version")
    tool = machine.which("nvidia-smi")
    try:
        listed = machine.answer([tool, "-L"], None) if tool else ""
    except ProbeError:
        return None
    return Sight("nvidia-smi") if re.search(r"^GPU \d+:", listed, re.MULTILINE) else None


def _amd(machine: Machine) -> Sight | None:
    """Most of AMD's processors hold a small GPU, which has ``/dev/kfd`` and a card as the others do."""
    found = None
    for vendor in sorted(machine.root.glob("sys/class/drm/card*/device/vendor")):
        if _said(vendor) == _AMD:
            size = _said(vendor.with_name("mem_info_vram_total"))
            sight = Sight(f"/sys/class/drm/{vendor.parts[-3]}", size.isdecimal() and int(size) >= _OWN_MEMORY)
            if sight.worth_using:
                return sight
            found = found or sight
    if (machine.root / "dev/kfd").exists():
        return Sight("/dev/kfd", worth_using=False)
    return found


def _said(file: Path) -> str:
    """What a file of the kernel's says; empty when it cannot be read."""
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _apple(machine: Machine) -> Sight | None:
    return Sight("its processor") if (machine.system, machine.processor) == ("Darwin", "arm64") else None


VENDORS: Final = (
    Vendor("NVIDIA", _nvidia, frozenset({"CUDA", "Vulkan"}), "-DGGML_CUDA=on", "nvidia-smi"),
    Vendor("AMD", _amd, frozenset({"ROCm", "HIP", "Vulkan"}), "-DGGML_HIP=on", "rocminfo"),
    Vendor("Apple", _apple, frozenset({"Metal", "MTL"}), "-DGGML_METAL=on", "system_profiler SPDisplaysDataType"),
)


def devices(machine: Machine) -> Check:
    """What libllama computes on."""
    found = machine.fact("devices")
    if not found:
        return Check("devices", "problem", "libllama has none", machine.mend())
    texts = [f"{device['name']} ({device['description']}, {_memory(device)})" for device in found]
    offload = "yes" if machine.fact("gpu_offload") else "no"
    backends = ", ".join(machine.fact("backends"))
    return Check("devices", "ok", f"{'; '.join(texts)}; backends: {backends}; offload to a GPU: {offload}")


def _memory(device: dict[str, int]) -> str:
    return f"{device['free'] / 1e9:.1f} of {device['total'] / 1e9:.1f} GB free"


def gpu(machine: Machine) -> Check:
    """Whether a GPU is there and libllama uses it."""
    sights = [(vendor, sight) for vendor in VENDORS if (sight := vendor.seen(machine))]
    if not sights:
        return Check("GPU", "ok", "none found")
    there = ", ".join(f"{vendor.title} (seen by {sight.where})" for vendor, sight in sights)
    backends = set(machine.fact("backends"))
    if any(device["type"] in ("GPU", "IGPU") for device in machine.fact("devices")):
        return Check("GPU", "ok", f"{there}, and libllama uses one")
    served = next((vendor for vendor, _ in sights if vendor.backends & backends), None)
    if served is not None:
        return Check("GPU", "warning", f"{there}, but libllama's backend finds no device", served.tool)
    found = f"{there}, but libllama has no backend for it: it would compute on the CPU"
    idle = next((vendor for vendor, sight in sights if sight.worth_using), None)
    if idle is None:
        return Check("GPU", "warning", f"{found}, which may be as fast", machine.mend(sights[0][0].flag))
    return Check("GPU", "problem", found, machine.mend(idle.flag))


def processor(machine: Machine) -> Check:
    """Cores, memory, and what libllama was compiled to use of the CPU. For information."""
    features = re.findall(r"(\w+) = 1", machine.fact("system_info"))
    cores = f"{physical_cores()} cores for a pass, {os.cpu_count()} hardware threads"
    return Check("processor", "ok", f"{cores}; libllama uses {', '.join(features) or 'no extensions'}")


def memory(machine: Machine) -> Check:
    """Free memory. For information."""
    table = machine.root / "proc/meminfo"
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", _said(table), re.MULTILINE)}
    if not {"MemAvailable", "MemTotal"} <= sizes.keys():
        return Check("memory", "ok", f"not known on {machine.system}")
    free, total = sizes["MemAvailable"] * 1024, sizes["MemTotal"] * 1024
    return Check("memory", "ok", f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free")


def kernels(machine: Machine) -> Check:
    """Which types our own kernels quantize, and which are ggml's because the bytes would differ here."""
    try:
        found = machine.fact("kernels")
    except ProbeError as error:
        if KERNELS not in str(error):
            raise
        return Check("kernels", "problem", str(error), f"unset {KERNELS}")
    if found["lanes"] == 0:
        return Check("kernels", "ok", f"ggml's own code quantizes, by `{KERNELS}`")
    exact = [name for name, same in found["types"].items() if same]
    slow = [name for name, same in found["types"].items() if not same]
    fast = f"{found['lanes']} lanes for {', '.join(exact) or 'no type'}"
    if not slow:
        return Check("kernels", "ok", fast)
    remedy = "nothing is wrong with the files: ggml's own code makes these types, slower; report it with this output"
    return Check("kernels", "warning", f"{fast}; other bytes than ggml's for {', '.join(slow)}", remedy)
