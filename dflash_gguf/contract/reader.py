"""Reads the keys of one header by libllama's own rules, and notes what is wrong instead of raising.

Comes in: a header, and for each key what is allowed. Goes out: values (None: absent or wrong) and findings.
Knows nothing of what the keys mean. libllama takes a key only in the exact type that it reads it as.
Source: llama.cpp src/llama-model-loader.cpp, ``get_key``, ``get_arr`` and ``get_key_or_arr`` (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from dflash_gguf.errors import GGUFError
from dflash_gguf.file_text import quoted
from dflash_gguf.findings import Finding, Level
from dflash_gguf.shards import SPLIT_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dflash_gguf.gguf_header import GGUFHeader

Side = Literal["target", "drafter"]
_T = TypeVar("_T")

I32_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers that are taken, both ends included."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.least:.9g} to {self.most:.10g}"


COUNT: Final = Bounds(1, I32_MAX)
ANY_COUNT: Final = Bounds(0, I32_MAX)
FINITE: Final = Bounds(-3.4e38, 3.4e38)
NOT_NEGATIVE: Final = Bounds(0, 3.4e38)
POSITIVE: Final = Bounds(1e-38, 3.4e38)


class Reader:
    """State: the findings so far. ``remedy`` helps against a fault, ``remedies`` against one of a key.

    ``parts`` are ``header`` and its other shards, ``tensors`` those of all; ``whole``: none of the parts is missing.
    """

    def __init__(self, header: GGUFHeader, side: Side, remedy: str, shards: Sequence[GGUFHeader] = ()) -> None:
        self.remedies: Mapping[str, str] = {}
        self.header = header
        self.parts = (header, *shards)
        self.tensors = {name: info for part in self.parts for name, info in part.tensors.items()}
        count = header.keys.get(SPLIT_COUNT)
        self.whole = count is None or count.type_text != "uint16" or header.integer(SPLIT_COUNT) <= 1 + len(shards)
        self.side = side
        self.remedy = remedy
        self.findings: list[Finding] = []

    def fault(self, what: str, value: object, *, warning: bool = False, remedy: str = "", key: str = "") -> None:
        """Notes one fault, of ``key`` if of any, with the value that this file has."""
        ours, theirs = (value, None) if self.side == "target" else (None, value)
        level: Level = "warning" if warning else "error"
        finding = Finding(
            level, f"the {self.side}'s {what}", ours, theirs, remedy or self.remedies.get(key, self.remedy)
        )
        if finding not in self.findings:  # two rules may read one key
            self.findings.append(finding)

    def integer(self, key: str, allowed: Bounds = ANY_COUNT, *, required: bool = False) -> int | None:
        """A uint32."""
        value = self._scalar(key, "uint32", self.header.integer, required=required)
        return value if value is None or self._within(key, value, allowed) else None

    def number(self, key: str, allowed: Bounds = FINITE, *, required: bool = False) -> float | None:
        """A finite float32."""
        value = self._scalar(key, "float32", self.header.number, required=required)
        return value if value is None or self._within(key, value, allowed) else None

    def flag(self, key: str) -> bool | None:
        """A bool."""
        return self._scalar(key, "bool", self.header.boolean)

    def text(self, key: str, allowed: Sequence[str] = (), *, required: bool = False) -> str | None:
        """A string, one of ``allowed`` when there are any."""
        value = self._scalar(key, "string", self.header.string, required=required)
        if value is not None and allowed and value not in allowed:
            self.fault(f"`{key}` is none of {', '.join(allowed)}", quoted(value), key=key)
            return None
        return value

    def integers(self, key: str, length: int | Bounds, allowed: Bounds, *, required: bool = False) -> list[int] | None:
        """An array of int32 or uint32, of so many entries; no other is decoded."""
        if not self._is_array(key, ("int32", "uint32"), length, required=required):
            return None
        values = self.header.integers(key)
        wrong = next((value for value in values if not allowed.least <= value <= allowed.most), None)
        if wrong is not None:
            self.fault(f"`{key}` is not within {allowed}", wrong, key=key)
            return None
        return values

    def booleans(self, key: str, length: int, *, required: bool = False) -> list[bool] | None:
        """An array of ``length`` flags; libllama takes integers for them too."""
        if not self._is_array(key, ("bool", "int32", "uint32"), length, required=required):
            return None
        flags = self.header.keys[key].type_text == "array[bool]"
        return self.header.booleans(key) if flags else [value != 0 for value in self.header.integers(key)]

    def a_layer(self, key: str, n_layers: int, allowed: Bounds, *, required: bool = False) -> list[int] | None:
        """A uint32 that stands for every layer, or one for each of ``n_layers``."""
        value = self.header.keys.get(key)
        if value is not None and value.type_text.startswith("array"):
            return self.integers(key, n_layers, allowed, required=required)
        one = self.integer(key, allowed, required=required)
        return None if one is None else [one] * n_layers

    def count(self, key: str, item: str, *, required: bool = False) -> int | None:
        """Length of an array of ``item`` that is not empty; not decoded."""
        if not self._is_array(key, (item,), COUNT, required=required):
            return None
        return self.header.count(key)

    def _scalar(self, key: str, kind: str, read: Callable[[str], _T], *, required: bool = False) -> _T | None:
        value = self.header.keys.get(key)
        if value is None:
            if required:
                self.fault(f"`{key}` is missing", "none", key=key)
            return None
        if value.type_text != kind:
            self.fault(f"`{key}` is not of the type that libllama reads, {kind}", value.type_text, key=key)
            return None
        try:
            return read(key)
        except GGUFError:
            self.fault(f"`{key}` is not UTF-8 text", "bytes", key=key)
            return None

    def _within(self, key: str, value: float, allowed: Bounds) -> bool:
        good = allowed.least <= value <= allowed.most
        if not good:
            self.fault(f"`{key}` is not within {allowed}", value, key=key)
        return good

    def _is_array(self, key: str, items: Sequence[str], length: int | Bounds, *, required: bool) -> bool:
        value = self.header.keys.get(key)
        if value is None:
            if required:
                self.fault(f"`{key}` is missing", "none", key=key)
            return False
        if value.type_text not in {f"array[{item}]" for item in items}:
            what = f"`{key}` is not of the type that libllama reads, an array of {items[0]}"
            self.fault(what, value.type_text, key=key)
            return False
        lengths = Bounds(length, length) if isinstance(length, int) else length
        if not max(lengths.least, 1) <= value.count <= lengths.most:
            self.fault(f"`{key}` does not have {length} entries", value.count, key=key)
            return False
        return True
