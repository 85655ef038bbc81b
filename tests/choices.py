"""Native samplers by keyword, libllama's own chain beside them, and what chance makes of counts.

Comes in: settings by llama.cpp's names. Goes out: survivors and their probabilities.
`Chain` uses nothing of this package.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, Self

import llama_cpp
import numpy as np

from dflash_gguf import _core

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0, "temperature": 1.0}


def filters_of(**values: Any) -> _core.FilterSettings:
    settings = _core.FilterSettings()
    for name, value in values.items():
        setattr(settings, name, value)
    return settings


def penalties_of(**values: Any) -> _core.PenaltySettings:
    settings = _core.PenaltySettings()
    for name, value in values.items():
        setattr(settings, name, value)
    return settings


def survivors(row: np.ndarray, draw: float = 0.0, **values: Any) -> tuple[list[int], np.ndarray]:
    """Ids that the native filters leave, the best first, and their probabilities."""
    ids, temperature = _core.Filters(filters_of(**values)).apply(row, draw)
    return ids, softmax(row[ids].astype(np.float64), temperature)


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    if temperature == 0:
        return (np.arange(len(logits)) == 0).astype(np.float64)
    weights = np.exp((logits - logits.max()) / temperature)
    return weights / weights.sum()


class Chain:
    """libllama's samplers one behind the other, as llama.cpp's tools put them."""

    def __init__(self, samplers: list[Any]) -> None:
        self._chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        for sampler in samplers:
            llama_cpp.llama_sampler_chain_add(self._chain, sampler)

    @classmethod
    def of(cls, *, min_keep: int = 0, xtc: tuple[float, float] | None = None, **values: Any) -> Self:
        """The filters in llama.cpp's order; ``xtc``: probability and threshold."""
        s = {"dynatemp_range": 0.0, "dynatemp_exponent": 1.0} | OFF | values
        samplers = [
            llama_cpp.llama_sampler_init_top_n_sigma(s["top_n_sigma"]),
            llama_cpp.llama_sampler_init_top_k(s["top_k"]),
            llama_cpp.llama_sampler_init_typical(s["typical_p"], min_keep),
            llama_cpp.llama_sampler_init_top_p(s["top_p"], min_keep),
            llama_cpp.llama_sampler_init_min_p(s["min_p"], min_keep),
        ]
        if xtc is not None:
            samplers.append(llama_cpp.llama_sampler_init_xtc(*xtc, min_keep, 1))
        temperature = s["temperature"], s["dynatemp_range"], s["dynatemp_exponent"]
        return cls([*samplers, llama_cpp.llama_sampler_init_temp_ext(*temperature)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        llama_cpp.llama_sampler_free(self._chain)

    def accept(self, tokens: list[int]) -> None:
        for token in tokens:
            llama_cpp.llama_sampler_accept(self._chain, token)

    def apply(self, row: np.ndarray) -> dict[int, float]:
        """Candidate -> logit, of those that are not minus infinity."""
        data = (llama_cpp.llama_token_data * len(row))(*((i, logit, 0.0) for i, logit in enumerate(row.tolist())))
        array = llama_cpp.llama_token_data_array(data, len(row), -1, False)
        llama_cpp.llama_sampler_apply(self._chain, ctypes.byref(array))
        found = {array.data[i].id: array.data[i].logit for i in range(array.size)}
        return {token: logit for token, logit in found.items() if logit > -math.inf}


def p_value(counts: np.ndarray, expected: np.ndarray) -> float:
    """Of Pearson's chi-square, by Wilson and Hilferty's approximation; rare candidates count as one."""
    rare = expected < 8
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    kept = expected > 0
    assert counts[~kept].sum() == 0
    statistic = (((counts - expected)[kept]) ** 2 / expected[kept]).sum()
    freedom = int(kept.sum()) - 1
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))
