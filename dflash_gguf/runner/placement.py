"""Where a model's weights lie, and how they get there.

Comes in: names as `dflash-gguf doctor` shows them, and numbers. Goes out: libllama's model parameters. Knows nothing of
what the models are for.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import SessionError, brief
from dflash_gguf.limits import checked

if TYPE_CHECKING:
    from collections.abc import Sequence

SPLIT_MODES: Final[dict[str, int]] = {"none": 0, "layer": 1, "row": 2}
"""Option -> llama_split_mode."""
TENSOR_SPLIT: Final = "tensor"
"""The split mode that libllama asserts against: pull request 27858 and the issues beside it."""
CPU_ONLY: Final = "none"
"""Instead of devices: none of them."""
WITH_RPC: Final = 'build llama-cpp-python anew with CMAKE_ARGS="-DGGML_RPC=on"'
_added: Final[set[str]] = set()

LOAD_MODES: Final[dict[bool | None, int]] = {None: -1, False: 0, True: 1}
"""``use_mmap`` -> llama_load_mode; None: as libllama finds best."""


@dataclass(frozen=True, slots=True)
class Placement:
    """``n_gpu_layers`` below 0: all. ``device``: names of devices; None: all that there are; ``("none",)``: the CPU.

    ``split_mode`` is how several GPUs share a model, ``tensor_split`` the share of each, ``main_gpu`` the one of mode
    ``none``. ``rpc`` are servers, ``host:port``, whose devices are added to those of this machine. ``use_extra_bufts``:
    weights may be repacked for the CPU.
    """

    n_gpu_layers: int = -1
    device: tuple[str, ...] | None = None
    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] | None = None
    use_mmap: bool | None = None
    rpc: tuple[str, ...] = ()
    use_extra_bufts: bool = True

    @property
    def on_cpu(self) -> bool:
        """Whether libllama gives nothing of a model to a GPU or a server."""
        import llama_cpp

        alone = self.n_gpu_layers == 0 or self.device == (CPU_ONLY,) or not llama_cpp.llama_supports_gpu_offload()
        return alone and not self.rpc

    def apply(self, params: Any) -> list[Any]:
        """Sets the fields of ``llama_model_params``; the returned arrays must live until the model is loaded."""
        checked("n_gpu_layers", self.n_gpu_layers)
        params.n_gpu_layers = self.n_gpu_layers
        params.split_mode = _split_mode(self.split_mode)
        params.main_gpu = checked("main_gpu", self.main_gpu)
        params.load_mode = _load_mode(self.use_mmap)
        params.use_extra_bufts = self.use_extra_bufts
        kept = []
        add_servers(self.rpc)
        if self.tensor_split is not None:
            shares = _shares(self.tensor_split)
            params.tensor_split = ctypes.cast(shares, type(params.tensor_split))
            kept.append(shares)
        if self.device is not None:
            devices = _devices(self.device)
            params.devices = ctypes.cast(devices, ctypes.c_void_p)
            kept.append(devices)
        return kept


EVERYWHERE: Final = Placement()
"""As libllama places a model by itself."""


def _load_mode(use_mmap: object) -> int:
    if use_mmap is not None and not isinstance(use_mmap, bool):
        raise SessionError("`use_mmap`", value=brief(use_mmap), expected="true, false or None")
    return LOAD_MODES[use_mmap]


def add_servers(addresses: Sequence[str]) -> None:
    """Adds the devices of llama.cpp's rpc-server at each of ``addresses``, once in a process.

    Raises SessionError when libllama was built without RPC, or a server does not answer.
    Source: llama.cpp ggml/include/ggml-rpc.h, common/arg.cpp (0.5.0).
    """
    for address in addresses:
        if address not in _added:
            if not re.fullmatch(r"[^\s:]+:\d{1,5}", address):
                raise SessionError("an RPC server", value=address, expected="host:port")
            if not _function("llama_supports_rpc", ctypes.c_bool)():
                raise SessionError(f"libllama was built without RPC, which `{address}` needs", remedy=WITH_RPC)
            _add_server(address)
            _added.add(address)


def _add_server(address: str) -> None:
    registry = _function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)(b"RPC")
    look_up = _function("ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    found = look_up(registry, b"ggml_backend_rpc_add_server")
    add = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(found)
    server = add(address.encode())
    if not server:
        raise SessionError(f"no RPC server answers at `{address}`", remedy="start `rpc-server` there")
    _function("ggml_backend_register", None, ctypes.c_void_p)(server)


def _function(name: str, restype: Any, *argtypes: Any) -> Any:
    import llama_cpp

    library = llama_cpp.llama_cpp._lib  # noqa: SLF001  the handle that all of llama_cpp's functions come from
    function = getattr(library, name)
    function.restype, function.argtypes = restype, argtypes
    return function


def _split_mode(name: str) -> int:
    if name == TENSOR_SPLIT:
        raise SessionError("split mode `tensor` ends the process with most drafters", remedy="use split mode `layer`")
    if not isinstance(name, str) or name not in SPLIT_MODES:
        raise SessionError("`split_mode`", value=brief(name), expected=f"one of {', '.join(SPLIT_MODES)}")
    return SPLIT_MODES[name]


def _shares(values: tuple[float, ...]) -> Any:
    import llama_cpp

    most = int(llama_cpp.llama_max_devices())
    if not all(isinstance(value, int | float) and abs(value) < 1e30 for value in values):
        raise SessionError("`tensor_split`", value=brief(values), expected="numbers")
    if len(values) > most or not all(0 <= value < float("inf") for value in values) or not any(values):
        raise SessionError("`tensor_split`", value=values, expected=f"up to {most} shares, of which one is above 0")
    return (ctypes.c_float * most)(*values)


def _devices(names: tuple[str, ...]) -> Any:
    """A list that ends with a null pointer."""
    by_name = _function("ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)
    found = []
    for name in () if names == (CPU_ONLY,) else names:
        if not isinstance(name, str):
            raise SessionError("a device", value=brief(name), expected="a name")
        device = by_name(name.encode("utf-8", "replace"))
        if not device:
            raise SessionError("a device", value=name, remedy="`dflash-gguf doctor` lists those that there are")
        found.append(device)
    return (ctypes.c_void_p * (len(found) + 1))(*found, None)
