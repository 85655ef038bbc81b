"""The probes of GPUs, cores and memory, on made-up machines."""

from __future__ import annotations

import pytest
from made_up_machine import CPU, CUDA, REINSTALL, answers, machine, put

from dflash_gguf.probes import devices
from dflash_gguf.probes.checks import ProbeError

CMAKE = 'CMAKE_ARGS="{}" ' + REINSTALL


@pytest.mark.parametrize(
    ("path", "text", "seen", "flag"),
    [
        ("dev/nvidia0", "", "NVIDIA (seen by /dev/nvidia0)", "-DGGML_CUDA=on"),
        ("proc/driver/nvidia/version", "", "NVIDIA (seen by /proc/driver/nvidia/version)", "-DGGML_CUDA=on"),
    ],
)
def test_a_gpu_without_a_backend(path, text, seen, flag, tmp_path):
    put(tmp_path, path, text=text)
    check = devices.gpu(machine(tmp_path))
    assert check.status == "problem"
    assert check.found == f"{seen}, but libllama has no backend for it: it would compute on the CPU"
    assert check.remedy == CMAKE.format(flag)


def amd(root, vram, card="card1"):
    """A card of AMD's with so many bytes of its own, as amdgpu tells them."""
    folder = f"sys/class/drm/{card}/device"
    put(root, "dev/kfd")
    put(root, f"{folder}/vendor", text="0x1002\n")
    put(root, f"{folder}/mem_info_vram_total", text=f"{vram}\n")


def test_a_card_of_amds_is_a_problem(tmp_path):
    amd(tmp_path, 512 << 20)
    amd(tmp_path, 16 << 30, "card2")
    check = devices.gpu(machine(tmp_path))
    assert (check.status, check.remedy) == ("problem", CMAKE.format("-DGGML_HIP=on"))
    assert check.found.startswith("AMD (seen by /sys/class/drm/card2), but libllama has no backend for it")


@pytest.mark.parametrize(
    ("paths", "vram"),
    [(["dev/kfd"], None), (["sys/class/drm/card1/device/vendor"], None), ([], 512 << 20), ([], "nonsense")],
)
def test_a_gpu_inside_amds_processor_is_a_warning(paths, vram, tmp_path):
    put(tmp_path, *paths, text="0x1002\n")
    if vram is not None:
        amd(tmp_path, vram)
    check = devices.gpu(machine(tmp_path))
    assert (check.status, check.remedy) == ("warning", CMAKE.format("-DGGML_HIP=on"))
    assert check.found.endswith("it would compute on the CPU, which may be as fast")


def test_a_card_beside_a_gpu_inside_the_processor(tmp_path):
    amd(tmp_path, 512 << 20)
    put(tmp_path, "dev/nvidia0")
    assert devices.gpu(machine(tmp_path)).remedy == CMAKE.format("-DGGML_CUDA=on")


def test_what_the_kernel_does_not_let_read_is_no_problem(tmp_path):
    for path in ("sys/class/drm/card0/device/vendor", "proc/meminfo"):
        (tmp_path / path).mkdir(parents=True)  # reading it is an OSError, for root too
    assert devices.gpu(machine(tmp_path)).found == "none found"
    assert devices.memory(machine(tmp_path)).found == "not known on Linux"


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


def test_kernels_whose_bytes_differ():
    check = devices.kernels(machine(facts={"kernels": {"lanes": 4, "types": {"Q4_K": True, "Q6_K": False}}}))
    assert (check.status, check.found) == ("warning", "4 lanes for Q4_K; other bytes than ggml's for Q6_K")
    assert "ggml's own code makes these types" in check.remedy
    check = devices.kernels(machine(facts={"kernels": {"lanes": 8, "types": {"Q6_K": False}}}))
    assert check.found == "8 lanes for no type; other bytes than ggml's for Q6_K"


def test_kernels_that_the_user_turned_off():
    check = devices.kernels(machine(facts={"kernels": {"lanes": 0, "types": {"Q4_K": False}}}))
    assert (check.status, check.found) == ("ok", "ggml's own code quantizes, by `DFLASH_GGUF_KERNELS`")


def test_kernels_that_are_not_here():
    text = "QuantizeError: environment variable `DFLASH_GGUF_KERNELS`: got '7'"
    check = devices.kernels(machine(errors={"kernels": text}))
    assert (check.status, check.found, check.remedy) == ("problem", text, "unset DFLASH_GGUF_KERNELS")
    with pytest.raises(ProbeError, match="no core"):
        devices.kernels(machine(errors={"kernels": "no core"}))
