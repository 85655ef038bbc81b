"""Is everything here that the commands need? A table of probes, run one after another.

Comes in: this machine, or a made-up one. Goes out: a frozen `Check` for each probe. A probe that fails becomes a
problem of its own and stops no other. Prints nothing, changes nothing, asks nothing beyond this machine.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.probes import devices, packages, services
from dflash_gguf.probes.checks import Check, Machine, ProbeError, this_machine
from dflash_gguf.probes.native import gather

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to look at; ``remedy`` mends what makes the probe itself fail."""

    name: str
    run: Callable[[Machine], Check]
    remedy: Callable[[Machine], str]


def _hub_remedy(_machine: Machine) -> str:
    return "pip install --no-cache-dir --force-reinstall huggingface-hub"


def _report(_machine: Machine) -> str:
    return "report what was found, with the output of `dflash-gguf doctor --json`"


PROBES: Final = (
    Probe("Python", packages.python, _report),
    Probe("dflash-gguf", packages.package, _report),
    Probe("llama-cpp-python", packages.llama_cpp_python, Machine.reinstall),
    Probe("libllama", packages.libllama, Machine.mend),
    Probe("ABI", packages.abi, Machine.mend_both),
    Probe("libllama mapped", packages.mapped, Machine.mend),
    Probe("exported functions", packages.exports, Machine.mend),
    Probe("devices", devices.devices, Machine.mend),
    Probe("GPU", devices.gpu, Machine.mend),
    Probe("processor", devices.processor, Machine.mend),
    Probe("kernels", devices.kernels, Machine.mend_both),
    Probe("memory", devices.memory, _report),
    Probe("hub cache", services.hub_cache, _hub_remedy),
    Probe("hub token", services.hub_token, _hub_remedy),
    Probe("ollama", services.ollama, _report),
)


def examine(machine: Machine | None = None, probes: Iterable[Probe] = PROBES) -> tuple[Check, ...]:
    """The answer of every probe, in the table's order."""
    place = this_machine(gather()) if machine is None else machine
    return tuple(_answer(probe, place) for probe in probes)


def _answer(probe: Probe, machine: Machine) -> Check:
    try:
        return probe.run(machine)
    except ProbeError as error:
        return Check(probe.name, "problem", str(error), probe.remedy(machine))
    except Exception as error:  # noqa: BLE001  whatever fails is a finding
        return Check(probe.name, "problem", f"{type(error).__name__}: {error}", probe.remedy(machine))


def remedies(checks: Iterable[Check], status: str) -> tuple[str, ...]:
    """What mends the checks of that status, each once, in their order."""
    return tuple(dict.fromkeys(check.remedy for check in checks if check.status == status and check.remedy))


def healthy(checks: Iterable[Check]) -> bool:
    """Whether no check is a problem; warnings are none."""
    return all(check.status != "problem" for check in checks)


def as_dict(checks: Iterable[Check]) -> dict[str, Any]:
    """The checks as plain JSON values."""
    found = tuple(checks)
    return {"ok": healthy(found), "checks": [asdict(check) for check in found]}
