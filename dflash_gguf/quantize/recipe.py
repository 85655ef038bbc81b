"""What a user asks of a quantized file: its type, and llama-quantize's options about single tensors.

Comes in: names, patterns and an importance matrix as they were given. Goes out: one frozen value. Knows nothing of
models.
Source: llama.cpp tools/quantize/quantize.cpp (0.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypedDict, Unpack

from dflash_gguf.errors import QuantizeError, brief
from dflash_gguf.ggml_types import BY_NAME
from dflash_gguf.quantize.mixes import mix_named
from dflash_gguf.quantize.quants import COPY, DEFAULT_QUANT, Quant, resolve_quant

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from dflash_gguf.quantize.imatrix import Matrix

NOT_MADE: Final = frozenset({"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"})
"""Types of ggml that hold no weights, or that it makes none of."""
TENSOR_TYPES: Final = tuple(name for name in BY_NAME if name not in NOT_MADE)
"""What a single tensor may be given."""


class QuantizeOptions(TypedDict, total=False):
    """Keywords of `convert` and `quantize`, with llama-quantize's meaning.

    ``pure``: every tensor gets the file's type, and none another for its place. ``tensor_types``: (pattern, type)
    pairs; the first pattern that is found in a tensor's name (a regular expression of C++, in lower case) gives its
    type. ``output_tensor_type``, ``token_embedding_type``: those tensors' types. ``leave_output_tensor``:
    ``output.weight`` stays as it is. ``imatrix``: a file with an importance matrix. ``mix``: a named assignment in the
    place of a type, see `mixes`.
    """

    mix: str | None
    imatrix: str | os.PathLike[str] | None
    pure: bool
    tensor_types: Iterable[tuple[str, str]] | Mapping[str, str]
    output_tensor_type: str | None
    token_embedding_type: str | None
    leave_output_tensor: bool


@dataclass(frozen=True, slots=True)
class Recipe:
    """The type of a file, and what decides before its mixture does; types by ggml's numbers.

    ``name`` is the file type's, or the mix's.
    """

    name: str
    quant: Quant
    pure: bool = False
    tensor_types: tuple[tuple[str, int], ...] = ()
    output_tensor_type: int | None = None
    token_embedding_type: int | None = None
    leave_output_tensor: bool = False
    imatrix: Matrix | None = None

    @property
    def files(self) -> frozenset[Path]:
        """What is read for it."""
        return frozenset() if self.imatrix is None else frozenset({self.imatrix.path})

    @property
    def chooses(self) -> bool:
        """Whether a checkpoint's types are llama-quantize's choice, and not the converter's for a float type."""
        asked = (self.output_tensor_type, self.token_embedding_type) != (None, None) or self.leave_output_tensor
        return self.quant.mixed or asked

    @property
    def asked_patterns(self) -> tuple[tuple[str, int], ...]:
        """The patterns that the user wrote; a mix has its own, for all kinds of drafters."""
        return self.tensor_types if self.name == self.quant.name else ()

    @classmethod
    def of(cls, quant: str | None, **options: Unpack[QuantizeOptions]) -> Self:
        """Reads the importance matrix, too.

        Raises `QuantizeError` for a name or a type that is none, a matrix that is broken, and options that would mean
        nothing.
        """
        mix = options.get("mix")
        if mix is not None:
            return cls._of_mix(mix, quant, options)
        kind = resolve_quant(DEFAULT_QUANT if quant is None else quant)
        recipe = cls(
            kind.name,
            kind,
            options.get("pure", False),
            _pairs(options.get("tensor_types", ())),
            _optional(options.get("output_tensor_type")),
            _optional(options.get("token_embedding_type")),
            options.get("leave_output_tensor", False),
            _matrix(options.get("imatrix")),
        )
        _check(recipe)
        return recipe

    @classmethod
    def _of_mix(cls, name: str, quant: str | None, options: QuantizeOptions) -> Self:
        mix = mix_named(name)
        given = [option for option, value in options.items() if value and option not in ("mix", "imatrix")]
        if quant is not None or given:
            what = f"the mix `{mix.name}` says the type of every tensor"
            raise QuantizeError(what, value=", ".join(given) or quant, expected="no other type beside it")
        return cls(
            mix.name,
            resolve_quant(mix.quant),
            pure=True,
            tensor_types=_pairs(mix.tensor_types),
            imatrix=_matrix(options.get("imatrix")),
        )


def tensor_type(name: str) -> int:
    """Ggml's number of a type that a tensor may be given, in any case; raises `QuantizeError`."""
    if name.upper() not in TENSOR_TYPES:
        raise QuantizeError("the type of a tensor", value=brief(name), expected=f"one of {', '.join(TENSOR_TYPES)}")
    return BY_NAME[name.upper()].id


def _matrix(file: str | os.PathLike[str] | None) -> Matrix | None:
    if file is None:
        return None
    from dflash_gguf.quantize.imatrix import read_imatrix

    return read_imatrix(file)


def _optional(name: str | None) -> int | None:
    return None if name is None else tensor_type(name)


def _pairs(given: Iterable[tuple[str, str]] | Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Patterns in lower case, as llama-quantize compares them."""
    pairs = given.items() if hasattr(given, "items") else given
    found = tuple((pattern.lower(), tensor_type(name)) for pattern, name in pairs)
    if any(not pattern or "\0" in pattern for pattern, _ in found):
        raise QuantizeError("a pattern of tensors' names is empty", expected="PATTERN=TYPE")
    return found


def _check(recipe: Recipe) -> None:
    """Libllama ignores what needs a quantized type; whoever asks for it means something else."""
    if recipe.quant.mixed:
        return
    ignored = {"pure": recipe.pure, "tensor_types": recipe.tensor_types, "imatrix": recipe.imatrix is not None}
    if recipe.quant == COPY:
        names = ("output_tensor_type", "token_embedding_type", "leave_output_tensor")
        ignored |= {name: getattr(recipe, name) not in (None, False) for name in names}
    for name, given in ignored.items():
        if given:
            raise QuantizeError(
                f"`{name}` has no effect on a file of {recipe.name}", remedy="choose a quantized type for the file"
            )
