"""Compares what the C++ core was compiled with to llama_cpp's own view of the same library.

Comes in: the facts that ``_core`` states while it is imported. Goes out: nothing, or an ImportError naming both views.
Source: llama.cpp include/llama.h; llama-cpp-python llama_cpp/llama_cpp.py.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REMEDY = (
    "reinstall both: pip install --no-cache-dir --force-reinstall llama-cpp-python==0.3.36, "
    "then, in the checkout of dflash-gguf, pip install --no-cache-dir --force-reinstall --no-deps ."
)


def python_facts() -> dict[str, Any]:
    """What llama_cpp's ctypes declarations say, in the shape of ``_core``'s facts."""
    import llama_cpp

    structs = {
        "llama_context_params": (llama_cpp.llama_context_params, llama_cpp.llama_context_default_params()),
        "llama_model_params": (llama_cpp.llama_model_params, llama_cpp.llama_model_default_params()),
    }
    facts: dict[str, Any] = {
        "llama_cpp_python": llama_cpp.__version__,
        "llama_version": llama_cpp.llama_version().decode(),
        "address_of_llama_version": ctypes.cast(llama_cpp.llama_version, ctypes.c_void_p).value,
    }
    for name, (struct, default) in structs.items():
        facts[f"sizeof_{name}"] = ctypes.sizeof(struct)
        facts[name] = {field[0]: getattr(default, field[0]) for field in struct._fields_}
    return facts


def check(core: Mapping[str, Any], python: Mapping[str, Any] | None = None) -> None:
    """Raises ImportError when ``core`` (C++) and ``python`` (llama_cpp; read now when None) differ.

    The llama-cpp-python version, the library version, a function's address (two addresses are two libraries in one
    process), two struct sizes and the default values that ``core`` names are compared: a struct that grew in one view
    shifts every field behind it.
    """
    differences = list(_differences(core, python_facts() if python is None else python))
    if differences:
        raise ImportError("dflash_gguf._core does not fit this llama-cpp-python: " + "; ".join([*differences, _REMEDY]))


def _differences(core: Mapping[str, Any], python: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, ours in core.items():
        theirs = python.get(key)
        if isinstance(ours, dict):
            yield from _differences(ours, theirs if isinstance(theirs, dict) else {}, f"{path}{key}.")
        elif ours != theirs:
            yield f"`{path}{key}` is {ours!r} in dflash-gguf and {theirs!r} in llama-cpp-python"
