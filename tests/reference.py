"""The DFlash 2 drafter in NumPy: slow, short, and independent of libllama.

Comes in: a checkpoint's arrays under z-lab's names, its config, the target's embedding and head.
Goes out: hidden rows, candidate lattice and the greedy walk of one block. Knows nothing of files.
Source: the forward pass of PyPI ``dflash`` 0.1.0 (``dflash/model.py``), with llama.cpp's one-sided window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Rows = np.ndarray


@dataclass(frozen=True, slots=True)
class Lattice:
    """What the drafter knows about positions 1 .. n-1 of a block.

    ``candidates``: int [n-1, top_k], best first; ``unary``: [n-1, top_k]; ``scores``: [n-1, top_k, top_k],
    indexed by predecessor, then successor (at the first position every predecessor is the anchor).
    """

    candidates: np.ndarray
    unary: np.ndarray
    scores: np.ndarray


class Drafter:
    """One drafter with its context. State: per layer the K and V rows of positions 0 .. ``length`` - 1."""

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        config: Mapping[str, Any],
        embedding: np.ndarray,
        head: np.ndarray,
        *,
        dtype: type = np.float64,
    ) -> None:
        self.arrays = {name: array.astype(dtype) for name, array in arrays.items()}
        self.embedding, self.head = embedding.astype(dtype), head.astype(dtype)
        self.config = {**config, **config.get("dflash_config", {})}
        self.head_dim: int = config["head_dim"]
        self.n_layers: int = config["num_hidden_layers"]
        self.keys: list[Rows] = []
        self.values: list[Rows] = []
        self.truncate(0)

    @property
    def length(self) -> int:
        """Number of context rows held."""
        return len(self.keys[0])

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` context rows."""
        if not self.keys:
            empty = np.zeros((0, self.config["num_key_value_heads"], self.head_dim), self.embedding.dtype)
            self.keys = [empty] * self.n_layers
            self.values = [empty] * self.n_layers
        self.keys = [rows[:length] for rows in self.keys]
        self.values = [rows[:length] for rows in self.values]

    def inject(self, features: Rows) -> None:
        """Append context rows. ``features``: [n, taps * hidden], the target's layer inputs side by side."""
        fused = self._norm(features @ self.arrays["fc.weight"].T, "hidden_norm.weight")
        positions = self.length + np.arange(len(features))
        for i in range(self.n_layers):
            key, value = self._key_value(fused, i, positions)
            self.keys[i] = np.concatenate([self.keys[i], key])
            self.values[i] = np.concatenate([self.values[i], value])

    def hidden(self, last: int, size: int | None = None) -> Rows:
        """Final hidden rows [size, hidden] of the block ``[last, MASK, ...]`` right after the context."""
        size = size or self.config["block_size"]
        x = self.embedding[[last] + [self.config["mask_token_id"]] * (size - 1)]
        x = x * self.config.get("input_embedding_scale", 1.0)
        for i in range(self.n_layers):
            x = x + self._convolved(x, i, "input_layernorm", "attention_conv", self._attention)
            x = x + self._convolved(x, i, "post_attention_layernorm", "mlp_conv", self._mlp)
        return self._norm(x, "norm.weight")

    def logits(self, hidden: Rows) -> Rows:
        """The target's head on hidden rows, with the checkpoint's scale and soft cap."""
        logits = hidden @ self.head.T * self.config.get("output_multiplier", 1.0)
        cap = self.config.get("final_logit_softcapping") or 0.0
        return np.tanh(logits / cap) * cap if cap > 0 else logits

    def lattice(self, last: int, size: int | None = None) -> Lattice:
        """Candidates and pairwise scores of every drafted position."""
        hidden = self.hidden(last, size)[1:]
        logits = self.logits(hidden)
        top_k = self.config["selector_top_k"]
        candidates = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
        unary = np.take_along_axis(logits, candidates, axis=1)
        gate = hidden @ self.arrays["candidate_selector.hidden_projection.weight"].T
        before = np.concatenate([np.full((1, top_k), last), candidates[:-1]])
        predecessor = self.arrays["candidate_selector.predecessor_codebook"][before] * gate[:, None]
        successor = self.arrays["candidate_selector.successor_codebook"][candidates]
        pairs = np.einsum("npr,nsr->nps", predecessor, successor)
        return Lattice(candidates, unary, unary[:, None] + pairs)

    def propose(self, last: int, size: int | None = None) -> list[int]:
        """The greedy walk: drafted ids of positions 1 .. size - 1."""
        return walk(self.lattice(last, size))

    def _convolved(self, x: Rows, layer: int, norm: str, conv: str, sublayer: Any) -> Rows:
        """Norm, input-side convolution, sublayer, output-side convolution."""
        x = self._norm(x, f"layers.{layer}.{norm}.weight")
        base = self.arrays.get(f"layers.{layer}.{conv}.base_kernel")
        if base is None:
            return sublayer(x, layer)
        _, taps, width = base.shape
        projected = x @ self.arrays[f"layers.{layer}.{conv}.kernel_projection.weight"].T
        dynamic = projected.reshape(len(x), 2, taps, -1)
        kernel = base + np.repeat(dynamic, width // dynamic.shape[-1], axis=-1)
        return _convolve(sublayer(_convolve(x, kernel[:, 0]), layer), kernel[:, 1])

    def _attention(self, x: Rows, layer: int) -> Rows:
        positions = self.length + np.arange(len(x))
        query = self._heads(x, layer, "q")
        query = self._rope(self._norm(query, f"layers.{layer}.self_attn.q_norm.weight"), positions)
        key, value = self._key_value(x, layer, positions)
        key = np.concatenate([self.keys[layer], key])
        value = np.concatenate([self.values[layer], value])
        group = query.shape[1] // key.shape[1]
        key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", query, key) / self.head_dim**0.5
        scores = np.where(self._visible(positions, len(key), layer), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, value).reshape(len(x), -1)
        return mixed @ self.arrays[f"layers.{layer}.self_attn.o_proj.weight"].T

    def _visible(self, positions: np.ndarray, n_keys: int, layer: int) -> np.ndarray:
        """Which keys a query sees: all of them, or those with query - key < window on a sliding layer."""
        distance = positions[:, None] - np.arange(n_keys)[None]
        types: Sequence[str] = self.config.get("layer_types") or ["full_attention"] * self.n_layers
        sliding = types[layer] == "sliding_attention"
        visible = distance < self.config["sliding_window"] if sliding else np.ones_like(distance, bool)
        return visible & (distance >= 0) if self.config.get("is_causal") else visible

    def _mlp(self, x: Rows, layer: int) -> Rows:
        gate, up, down = (self.arrays[f"layers.{layer}.mlp.{name}_proj.weight"].T for name in ("gate", "up", "down"))
        gated = x @ gate
        return (gated / (1 + np.exp(-gated)) * (x @ up)) @ down

    def _key_value(self, x: Rows, layer: int, positions: np.ndarray) -> tuple[Rows, Rows]:
        key = self._norm(self._heads(x, layer, "k"), f"layers.{layer}.self_attn.k_norm.weight")
        return self._rope(key, positions), self._heads(x, layer, "v")

    def _heads(self, x: Rows, layer: int, name: str) -> Rows:
        projected = x @ self.arrays[f"layers.{layer}.self_attn.{name}_proj.weight"].T
        return projected.reshape(len(x), -1, self.head_dim)

    def _norm(self, x: Rows, name: str) -> Rows:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean_square + self.config["rms_norm_eps"]) * self.arrays[name]

    def _rope(self, x: Rows, positions: np.ndarray) -> Rows:
        """Rotate halves. ``x``: [n, heads, head_dim]."""
        half = self.head_dim // 2
        base = self.config.get("rope_theta") or self.config["rope_parameters"]["rope_theta"]
        angle = positions[:, None, None] * base ** (-np.arange(half) / half)
        cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def walk(lattice: Lattice) -> list[int]:
    """At each position the best successor of the candidate chosen before it."""
    chosen, path = 0, []
    for candidates, scores in zip(lattice.candidates, lattice.scores, strict=True):
        chosen = int(scores[chosen].argmax())
        path.append(int(candidates[chosen]))
    return path


def _convolve(x: Rows, kernel: Rows) -> Rows:
    """Causal convolution of rows. ``kernel``: [n, taps, width], tap 0 for the row itself."""
    out = np.zeros_like(x)
    for tap in range(min(kernel.shape[1], len(x))):
        out[tap:] += kernel[tap:, tap] * x[: len(x) - tap]
    return out
