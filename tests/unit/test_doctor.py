"""The probes of `doctor` on made-up machines: what each finds, and the command that it ends with."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

import dflash_gguf
from dflash_gguf.doctor import PROBES, Probe, as_dict, examine, healthy, remedies
from dflash_gguf.environment import VARIABLES
from dflash_gguf.probes import devices, native, packages, services
from dflash_gguf.probes.checks import Check, Machine, ProbeError, this_machine, tool_answer

CPU = {"name": "CPU", "description": "a CPU", "type": "CPU", "free": 3 * 10**9, "total": 4 * 10**9}
CUDA = {"name": "CUDA0", "description": "a GPU", "type": "GPU", "free": 1, "total": 2}
REINSTALL = "pip install --no-cache-dir --force-reinstall llama-cpp-python==0.3.36"
OUR_OWN = "pip install --no-cache-dir --force-reinstall --no-deps dflash-gguf"
FACTS = {
    "path": "/lib/libllama.so",
    "llama_version": "0.5.0-dev",
    "ggml_version": "0.25.3 (0c1e570)",
    "system_info": "CPU : AVX2 = 1 | FMA = 1 | AMX = 0 | ",
    "core": "/lib/_core.so",
    "mapped": ["/lib/libllama.so"],
    "missing_exports": [],
    "gpu_offload": False,
    "backends": ["CPU"],
    "devices": [CPU],
}


def machine(root="/nowhere", errors=None, facts=None, **fields):
    """A Linux machine without a GPU or ollama on which all is well, and what is different about it."""
    found = {name: {"value": value} for name, value in (FACTS | (facts or {})).items()}
    found |= {name: {"error": text} for name, text in (errors or {}).items()}
    base = Machine(
        native=found,
        versions={"dflash-gguf": dflash_gguf.__version__, "llama-cpp-python": "0.3.36"},
        requires_python=">=3.11",
        pin="0.3.36",
        python="3.11.7",
        system="Linux",
        processor="x86_64",
        root=Path(root),
        which=lambda _: None,
        answer=lambda *_: pytest.fail("nothing should be run"),
    )
    return replace(base, **fields)


def answers(**said):
    """Tools on PATH and what each says; an exception is raised."""

    def answer(command, _environment):
        text = said[Path(command[0]).name.replace("-", "_")]
        if isinstance(text, Exception):
            raise text
        return text

    names = {name.replace("_", "-") for name in said}
    return {"which": lambda name: f"/bin/{name}" if name in names else None, "answer": answer}


def put(root, *paths, text=""):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


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
        (packages.exports, "13 of 13"),
        (devices.devices, "CPU (a CPU, 3.0 of 4.0 GB free); backends: CPU; offload to a GPU: no"),
        (devices.gpu, "none found"),
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
            "python3.11 -m venv .venv && .venv/bin/pip install dflash-gguf",
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
            "pip install --no-cache-dir --force-reinstall dflash-gguf",
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
            "11 of 13, missing: llama_quant_free, llama_quant_init",
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


# ---------------------------------------------------------------- GPU

CMAKE = 'CMAKE_ARGS="{}" ' + REINSTALL


@pytest.mark.parametrize(
    ("path", "text", "seen", "flag"),
    [
        ("dev/nvidia0", "", "NVIDIA (seen by /dev/nvidia0)", "-DGGML_CUDA=on"),
        ("proc/driver/nvidia/version", "", "NVIDIA (seen by /proc/driver/nvidia/version)", "-DGGML_CUDA=on"),
        ("dev/kfd", "", "AMD (seen by /dev/kfd)", "-DGGML_HIP=on"),
        ("sys/class/drm/card1/device/vendor", "0x1002\n", "AMD (seen by /sys/class/drm/card1)", "-DGGML_HIP=on"),
    ],
)
def test_a_gpu_without_a_backend(path, text, seen, flag, tmp_path):
    put(tmp_path, path, text=text)
    check = devices.gpu(machine(tmp_path))
    assert check.status == "problem"
    assert check.found == f"{seen}, but libllama has no backend for it: it would compute on the CPU"
    assert check.remedy == CMAKE.format(flag)


def test_what_is_no_gpu_to_compute_on(tmp_path):
    put(tmp_path, "sys/class/drm/card0/device/vendor", text="0x8086\n")
    put(tmp_path, "dev/nvidiactl")
    assert devices.gpu(machine(tmp_path)).found == "none found"


def test_apple_silicon_without_metal():
    check = devices.gpu(machine(system="Darwin", processor="arm64"))
    assert (check.status, check.remedy) == ("problem", CMAKE.format("-DGGML_METAL=on"))


def test_nvidia_is_also_seen_by_its_tool():
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n"
    assert devices.gpu(machine(**answers(nvidia_smi=listed))).remedy == CMAKE.format("-DGGML_CUDA=on")
    assert devices.gpu(machine(**answers(nvidia_smi="No devices were found"))).found == "none found"
    assert devices.gpu(machine(**answers(nvidia_smi=ProbeError("it failed")))).found == "none found"


def test_a_gpu_that_is_used(tmp_path):
    put(tmp_path, "dev/nvidia0", "dev/kfd")
    used = machine(tmp_path, facts={"backends": ["CUDA", "CPU"], "devices": [CUDA, CPU]})
    check = devices.gpu(used)
    assert check.status == "ok"
    assert check.found == "NVIDIA (seen by /dev/nvidia0), AMD (seen by /dev/kfd), and libllama uses one"


def test_a_backend_that_finds_no_device(tmp_path):
    put(tmp_path, "dev/nvidia0")
    check = devices.gpu(machine(tmp_path, facts={"backends": ["CUDA", "CPU"]}))
    assert (check.status, check.remedy) == ("warning", "nvidia-smi")


def test_cores_and_memory(tmp_path):
    put(tmp_path, "proc/meminfo", text="MemTotal:  8000000 kB\nMemFree: 1 kB\nMemAvailable:  5000000 kB\n")
    assert devices.memory(machine(tmp_path)).found == "5.1 of 8.2 GB free"
    assert devices.memory(machine()).found == "not known on Linux"
    assert devices.processor(machine()).found.endswith("hardware threads; libllama uses AVX2, FMA")


# ---------------------------------------------------------------- the hub


def test_the_hubs_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", "https://huggingface.co")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert services.hub_cache(machine()).found == f"{tmp_path / 'hub'}, not made yet"
    (tmp_path / "hub" / "models--a--b").mkdir(parents=True)
    (tmp_path / "hub" / "datasets--a--b").mkdir()
    assert services.hub_cache(machine()).found == f"{tmp_path / 'hub'}, models: 1"
    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.example")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert services.hub_cache(machine()).found.endswith(
        "models: 1, HF_ENDPOINT is https://mirror.example, HF_HUB_OFFLINE is set: nothing is downloaded"
    )


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    from huggingface_hub import constants

    put(tmp_path, "file")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    check = services.hub_cache(machine())
    assert (check.status, check.remedy) == ("warning", "export HF_HOME=~/huggingface")


def test_the_token_is_never_shown(monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_secret")
    assert services.hub_token(machine()) == Check("hub token", "ok", "present")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert services.hub_token(machine()).found.startswith("none: ")


# ---------------------------------------------------------------- ollama


@contextmanager
def server(body, status=200):
    """An HTTP server on this machine that gives one answer to all; yields its place."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/api/version" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        yield f"127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


SCRIPT = "curl -fsSL https://ollama.com/install.sh | sh"


@pytest.mark.parametrize(
    ("version", "status", "found"),
    [
        ("0.32.6", "problem", "DFlash needs 0.32.7 or newer"),
        ("0.32.7-rc1", "problem", "DFlash needs 0.32.7 or newer"),
        ("0.32.7", "warning", "DFlash: yes, DFlash 2: no, needs newer than 0.33.0-rc2"),
        ("0.33.0-rc2", "warning", "DFlash: yes, DFlash 2: no, needs newer than 0.33.0-rc2"),
        ("0.33.0-rc10", "ok", "DFlash: yes, DFlash 2: if its llama.cpp is b10665 or later"),
        ("0.33.0", "ok", "DFlash: yes, DFlash 2: if its llama.cpp is b10665 or later"),
        ("v1.0", "ok", "DFlash: yes, DFlash 2: if its llama.cpp is b10665 or later"),
    ],
)
def test_the_servers_version_is_judged(version, status, found):
    with server(json.dumps({"version": version}).encode()) as place:
        check = services.ollama(machine(ollama_host=place, **answers(ollama="version is 0.1.0")))
    assert (check.status, check.found) == (status, f"{version}, server at {place}; {found}")
    assert check.remedy == ("" if status == "ok" else SCRIPT)


@pytest.mark.parametrize("body", [b"not json", b"[]", b'{"version": 3}', b"\xff", b"", b"[" * 60000])
def test_another_server_is_not_ollama(body):
    with server(body) as place:
        check = services.ollama(machine(ollama_host=place))
    assert (check.status, check.remedy) == ("warning", SCRIPT)
    assert check.found == f"not found on PATH, no server at {place}; only needed for what `modelfile` writes"


@pytest.mark.parametrize(
    ("said", "status", "found"),
    [
        ("ollama version is 0.30.0\n", "problem", "0.30.0, /bin/ollama, no server at 127.0.0.1:9; DFlash needs 0.32.7"),
        (
            "Warning: could not connect to a running Ollama instance\nWarning: client version is 0.40.1\n",
            "ok",
            "0.40.1, /bin/ollama, no server at 127.0.0.1:9; DFlash: yes",
        ),
        ("ollama version is 0.0.0\n", "warning", "version 0.0.0, /bin/ollama, no server at 127.0.0.1:9; needs 0.32.7"),
        (ProbeError("it failed"), "warning", "version not told, /bin/ollama, no server at 127.0.0.1:9; needs 0.32.7"),
    ],
)
def test_without_a_server_the_program_is_asked(said, status, found):
    check = services.ollama(machine(ollama_host="127.0.0.1:9", **answers(ollama=said)))
    assert check.status == status
    assert check.found.startswith(found)


def test_a_server_elsewhere_is_not_asked():
    check = services.ollama(machine(ollama_host="http://example.org:1234"))
    assert "OLLAMA_HOST is example.org:1234, not this machine: not asked" in check.found
    assert machine(system="Darwin").which("ollama") is None
    assert services.ollama(machine(system="Darwin", ollama_host="example.org")).remedy == "brew install ollama"


def test_the_program_is_kept_from_asking_elsewhere():
    seen = []

    def answer(command, environment):
        seen.append((command, environment["OLLAMA_HOST"]))
        return "ollama version is 0.40.1"

    services.ollama(machine(ollama_host="example.org", which=lambda _: "/bin/ollama", answer=answer))
    assert seen == [(["/bin/ollama", "--version"], "127.0.0.1:9")]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("http", "127.0.0.1", 11434)),
        ("0.0.0.0:1", ("http", "127.0.0.1", 1)),
        (":8080", ("http", "127.0.0.1", 8080)),
        (' "localhost:1" ', ("http", "localhost", 1)),
        ("http://localhost", ("http", "localhost", 80)),
        ("https://localhost/path", ("https", "localhost", 443)),
        ("::1", ("http", "::1", 11434)),
        ("[::1]:5", ("http", "::1", 5)),
        ("localhost:many", ("http", "localhost", 11434)),
        ("localhost:99999", ("http", "localhost", 11434)),
    ],
)
def test_ollama_host_is_read_as_ollama_does(text, parts):
    assert services.address(text) == parts


def test_variables_are_in_the_table():
    assert "OLLAMA_HOST" in VARIABLES


# ---------------------------------------------------------------- the whole


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
    assert all(reason in fact["error"] for name, fact in found.items() if name != "core")
    assert "error" in found["core"]
    broken = replace(machine(), native=found)
    check = next(check for check in examine(broken) if check.name == "libllama")
    assert (check.status, check.remedy) == ("problem", REINSTALL)
    assert reason in check.found
