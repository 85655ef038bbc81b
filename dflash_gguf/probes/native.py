"""Facts about libllama, gathered in a process of its own: one that dies of a signal then tells us so.

Comes in: the installed packages. Goes out: plain JSON values, each fact beside its error. Judges nothing.
Source: llama.cpp ggml/include/ggml-backend.h (0.5.0).
"""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT: Final = 60.0
"""Seconds; a driver that starts up can take several."""

EXPORTS: Final[dict[str, str]] = {
    "llama_ftype_get_default_type": "11llama_ftype",
    "llama_quant_model_from_metadata": "PK22llama_quant_model_desc",
    "llama_quant_init": "PK11llama_modelPK27llama_model_quantize_params",
    "llama_quant_free": "P19quantize_state_impl",
    "llama_quant_tensor_allows_quantization": "PK19quantize_state_implPK11ggml_tensor",
    "llama_quant_compute_types": "P19quantize_state_impl11llama_ftypePP11ggml_tensorP9ggml_typem",
    "llama_set_embeddings_nextn": "P13llama_contextbb",
    "llama_get_embeddings_nextn": "P13llama_context",
    "llama_set_embeddings_layer_inp": "P13llama_contextjb",
    "llama_get_embeddings_layer_inp": "P13llama_contextj",
    "llama_model_dflash_selector_top_k": "PK11llama_model",
    "llama_model_target_layer_ids": "PK11llama_model",
    "llama_model_target_layer_ids_n": "PK11llama_model",
    "llama_get_memory_breakdown": "PK13llama_context",
}
"""What cpp/llama_abi.hpp declares: name -> its arguments as the Itanium C++ ABI mangles them."""
SYMBOLS: Final[dict[str, str]] = {
    **{name: f"_Z{len(name)}{name}{arguments}" for name, arguments in EXPORTS.items()},
    "llama_context::sched_reserve": "_ZN13llama_context13sched_reserveEv",
}
"""These and the one member function -> their mangled names."""

_DEVICE_TYPES: Final = ("CPU", "GPU", "IGPU", "ACCEL", "META")


def gather() -> dict[str, dict[str, Any]]:
    """Every fact of the table, from a child process; each is ``{"value": ...}`` or ``{"error": ...}``."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from dflash_gguf.probes.native import tell; tell()"
    try:
        done = subprocess.run(  # noqa: S603  our own interpreter
            [sys.executable, "-c", code], capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return _all_failed(f"a Python process that loads libllama did not end: {error}")
    if done.returncode != 0:
        return _all_failed(_end(done.returncode, done.stderr))
    try:
        found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return _all_failed("a Python process that loads libllama said nothing of use")
    return found


def tell() -> None:
    """Writes the facts as the last line of stdout; for the child."""
    sys.stdout.write(f"\n{json.dumps({name: _attempt(fact) for name, fact in FACTS.items()})}\n")


def _attempt(fact: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": fact()}
    except Exception as error:  # noqa: BLE001  whatever fails is a finding
        return {"error": f"{type(error).__name__}: {error}"}


def _all_failed(reason: str) -> dict[str, dict[str, Any]]:
    return {name: {"error": reason} for name in FACTS}


def _end(code: int, errors: bytes) -> str:
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    what = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"loading libllama ended the process with {what}{f': {lines[-1]}' if lines else ''}"


def _library() -> Any:
    import llama_cpp

    return llama_cpp.llama_cpp._lib  # noqa: SLF001  the handle that all of llama_cpp's functions come from


def _function(name: str, restype: Any, *argtypes: Any) -> Any:
    function = getattr(_library(), name)
    function.restype, function.argtypes = restype, argtypes
    return function


def _string(name: str) -> str:
    found: bytes | None = _function(name, ctypes.c_char_p)()
    return (found or b"").decode("utf-8", "replace")


def _named(name: str, owner: int) -> str:
    found: bytes | None = _function(name, ctypes.c_char_p, ctypes.c_void_p)(owner)
    return (found or b"").decode("utf-8", "replace")


def _path() -> str:
    return str(_library()._name)  # noqa: SLF001  ctypes has no public name for it


def _core() -> str:
    from dflash_gguf import _core

    return str(_core.__file__)


def _mapped() -> list[str] | None:
    """Paths of every libllama that this process maps; None where the system does not say."""
    _library()
    _attempt(_core)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    paths = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if "libllama." in line}
    return sorted(paths)


def _missing_exports() -> list[str]:
    library = _library()
    return [name for name, symbol in SYMBOLS.items() if not hasattr(library, symbol)]


def _backends() -> list[str]:
    count = _function("ggml_backend_reg_count", ctypes.c_size_t)()
    get = _function("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)
    return [_named("ggml_backend_reg_name", get(index)) for index in range(count)]


def devices() -> list[dict[str, Any]]:
    """What libllama computes on: name, description, type, and bytes free and in total."""
    count = _function("ggml_backend_dev_count", ctypes.c_size_t)()
    get = _function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    return [_device(get(index)) for index in range(count)]


def _device(device: int) -> dict[str, Any]:
    size = ctypes.POINTER(ctypes.c_size_t)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _function("ggml_backend_dev_memory", None, ctypes.c_void_p, size, size)(
        device, ctypes.byref(free), ctypes.byref(total)
    )
    kind = _function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)(device)
    return {
        "name": _named("ggml_backend_dev_name", device),
        "description": _named("ggml_backend_dev_description", device).strip(),
        "type": _DEVICE_TYPES[kind] if 0 <= kind < len(_DEVICE_TYPES) else f"type {kind}",
        "free": free.value,
        "total": total.value,
    }


def _kernels() -> dict[str, Any]:
    """The kernels' lanes, and whether each type's bytes are ggml's, with importance and without."""
    from dflash_gguf import _core
    from dflash_gguf.ggml_types import type_name
    from dflash_gguf.quantize.kernels import kernel_lanes

    lanes = kernel_lanes()
    types = {
        type_name(kind): all(_core.kernel_is_exact(kind, weighted, lanes) for weighted in (False, True))
        for kind in _core.kernel_types()
    }
    return {"lanes": lanes, "types": types}


FACTS: Final[dict[str, Callable[[], Any]]] = {
    "path": _path,
    "llama_version": lambda: _string("llama_version"),
    "ggml_version": lambda: f"{_string('ggml_version')} ({_string('ggml_commit')})",
    "system_info": lambda: _string("llama_print_system_info"),
    "core": _core,
    "mapped": _mapped,
    "missing_exports": _missing_exports,
    "gpu_offload": lambda: bool(_function("llama_supports_gpu_offload", ctypes.c_bool)()),
    "backends": _backends,
    "devices": devices,
    "kernels": _kernels,
}
"""Fact -> how it is found."""
