"""`doctor` as a whole, and its probes of packages and of libllama: what each finds, and the command it ends with."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_machine import FACTS, OUR_OWN, REINSTALL, machine

import dflash_gguf
from dflash_gguf.doctor import PROBES, Probe, as_dict, examine, healthy, remedies
from dflash_gguf.probes import devices, native, packages
from dflash_gguf.probes.checks import Check, Machine, ProbeError, this_machine, tool_answer

# ---------------------------------------------------------------- packages


@pytest.mark.parametrize(
    ("probe", "found"),
    [
        (packages.python, "3.11.7 on Linux x86_64"),
        (packages.package, dflash_gguf.__version__),
        (packages.llama_cpp_python, "0.3.36"),
        (packages.libllama, "0.5.0-dev, ggml 0.25.3 (0c1e570), /lib/libllama.so"),
        (packages.abi, "the native core and llama-cpp-python agree"),
        (packages.mapped, "once"),
        (packages.exports, "15 of 15"),
        (devices.devices, "CPU (a CPU, 3.0 of 4.0 GB free); backends: CPU; offload to a GPU: no"),
        (devices.gpu, "none found"),
        (devices.kernels, "16 lanes for Q4_K, Q6_K"),
    ],
)
def test_a_sound_machine(probe, found):
    check = probe(machine())
    assert (check.status, check.found, check.remedy) == ("ok", found, "")


@pytest.mark.parametrize(
    ("probe", "fields", "found", "remedy"),
    [
        (
            packages.python,
            {"python": "3.10.2"},
            "3.10.2, needs 3.11 or newer",
            "python3.11 -m venv .venv && .venv/bin/pip install .  # in the checkout of dflash-gguf",
        ),
        (
            packages.package,
            {"versions": {"dflash-gguf": "0.0.9"}},
            f"{dflash_gguf.__version__} is imported, 0.0.9 is installed",
            OUR_OWN,
        ),
        (
            packages.llama_cpp_python,
            {"versions": {"llama-cpp-python": "0.3.35"}},
            "0.3.35, needs 0.3.36",
            REINSTALL,
        ),
        (
            packages.llama_cpp_python,
            {"versions": {"llama-cpp-python": None}},
            "not installed, needs 0.3.36",
            REINSTALL,
        ),
        (
            packages.llama_cpp_python,
            {"pin": "", "versions": {"llama-cpp-python": "0.3.36"}},
            "0.3.36, dflash-gguf is not installed, so its pin is unknown",
            "pip install --no-cache-dir --force-reinstall .  # in the checkout of dflash-gguf",
        ),
        (
            packages.mapped,
            {"facts": {"mapped": ["/a/libllama.so", "/b/libllama.so.0"]}},
            "2 times: /a/libllama.so, /b/libllama.so.0",
            f"{REINSTALL} && {OUR_OWN}",
        ),
        (
            packages.exports,
            {"facts": {"missing_exports": ["llama_quant_free", "llama_quant_init"]}},
            "13 of 15, missing: llama_quant_free, llama_quant_init",
            REINSTALL,
        ),
        (devices.devices, {"facts": {"devices": []}}, "libllama has none", REINSTALL),
        (
            packages.abi,
            {"errors": {"core": "ImportError: `llama_version` is 'a' and 'b'; reinstall both: pip install ..."}},
            "ImportError: `llama_version` is 'a' and 'b'",
            f"{REINSTALL} && {OUR_OWN}",
        ),
    ],
)
def test_each_problem_ends_with_its_command(probe, fields, found, remedy):
    check = probe(machine(**fields))
    assert (check.status, check.found, check.remedy) == ("problem", found, remedy)


def test_python_of_two_digits_is_compared_as_numbers():
    assert packages.python(machine(python="3.9.18")).status == "problem"
    assert packages.python(machine(python="3.13.0rc1")).status == "ok"


# ---------------------------------------------------------------- the whole


def test_a_library_from_elsewhere_is_named_before_any_reinstallation():
    errors = dict.fromkeys(FACTS, "RuntimeError: no such library")
    other = machine(errors=errors, library_path="/opt/other")
    checks = {check.name: check for check in examine(other)}
    told = "unset LLAMA_CPP_LIB_PATH, by which libllama comes from `/opt/other`; if that does not help: "
    for name in ("libllama", "libllama mapped", "exported functions", "devices"):
        assert checks[name].remedy == f"{told}{REINSTALL}"
    assert checks["ABI"].remedy == f"{told}{REINSTALL} && {OUR_OWN}"


def test_the_library_path_is_the_environments(monkeypatch):
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", "/opt/other")
    assert this_machine({}).library_path == "/opt/other"


def test_a_probe_that_fails_stops_no_other():
    def broken(_machine):
        raise ImportError("no such symbol")

    probes = [Probe("broken", broken, Machine.reinstall), Probe("GPU", devices.gpu, Machine.reinstall)]
    failed, after = examine(machine(), probes)
    assert failed == Check("broken", "problem", "ImportError: no such symbol", REINSTALL)
    assert after.status == "ok"


def test_without_llama_cpp_every_probe_answers(tmp_path):
    errors = dict.fromkeys(FACTS, "ModuleNotFoundError: No module named 'llama_cpp'")
    gone = machine(tmp_path, errors=errors, versions={"dflash-gguf": dflash_gguf.__version__, "llama-cpp-python": None})
    checks = {check.name: check for check in examine(gone)}
    assert list(checks) == [probe.name for probe in PROBES]
    for name in ("libllama", "ABI", "exported functions", "devices"):
        assert checks[name].status == "problem"
        assert checks[name].found == "ModuleNotFoundError: No module named 'llama_cpp'"
    assert checks["Python"].status == "ok"
    assert remedies(checks.values(), "problem") == (REINSTALL, f"{REINSTALL} && {OUR_OWN}")


def test_warnings_are_no_problem():
    warned = [Check("a", "ok", "x"), Check("b", "warning", "y", "do it")]
    assert healthy(warned)
    assert not healthy([*warned, Check("c", "problem", "z", "now")])
    assert as_dict(warned) == {
        "ok": True,
        "checks": [
            {"name": "a", "status": "ok", "found": "x", "remedy": ""},
            {"name": "b", "status": "warning", "found": "y", "remedy": "do it"},
        ],
    }


def test_this_machine_states_what_our_metadata_asks_for():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    found = this_machine({})
    assert found.requires_python == re.search(r'requires-python = "(.*)"', text)[1]
    assert f'"llama-cpp-python=={found.pin}"' in text
    assert found.versions == {"dflash-gguf": dflash_gguf.__version__, "llama-cpp-python": found.pin}


def test_tools_that_fail_are_a_probe_error():
    assert "here" in tool_answer([sys.executable, "-c", "print('here')"])
    for command in (["/no/such/tool"], [sys.executable, "-c", "raise SystemExit(1)"]):
        with pytest.raises(ProbeError, match="did not answer"):
            tool_answer(command)


# ---------------------------------------------------------------- libllama


def test_the_exports_are_those_that_the_header_declares():
    header = (Path(__file__).parents[2] / "cpp" / "llama_abi.hpp").read_text(encoding="utf-8")
    assert set(native.EXPORTS) == set(re.findall(r"^LLAMA_API .*?(\w+)\(", header, re.MULTILINE))


def test_the_real_library_answers():
    found = native.gather()
    assert {name for name, fact in found.items() if "error" in fact} == set()
    facts = {name: fact["value"] for name, fact in found.items()}
    assert facts["missing_exports"] == []
    assert facts["llama_version"] == "0.5.0-dev"
    assert "CPU" in facts["backends"]
    assert {"CPU"} <= {device["type"] for device in facts["devices"]}
    assert all(device["total"] > 0 for device in facts["devices"] if device["type"] == "CPU")
    assert facts["mapped"] is None or len(facts["mapped"]) == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "ended the process with signal SIGILL"),
        ("raise SystemExit(7)", "ended the process with exit code 7"),
        ("import os; os._exit(0)", "said nothing of use"),
        ("raise OSError('libgomp.so.1 is missing')", "OSError: libgomp.so.1 is missing"),
    ],
)
def test_a_library_that_does_not_load_is_a_finding(code, reason, tmp_path, monkeypatch):
    (tmp_path / "llama_cpp.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = native.gather()
    assert set(found) == set(native.FACTS)
    assert all(reason in fact["error"] for name, fact in found.items() if name not in {"core", "kernels"})
    assert "error" in found["core"]
    assert "error" in found["kernels"]
    broken = replace(machine(), native=found)
    check = next(check for check in examine(broken) if check.name == "libllama")
    assert (check.status, check.remedy) == ("problem", REINSTALL)
    assert reason in check.found
