"""Drafters in NumPy: slow, short, and independent of libllama.

Comes in: a checkpoint's arrays under z-lab's names, its config, the target's embedding and head.
Goes out: hidden rows, and what one block proposes: rows of logits (DFlash, DSpark) or a lattice (DFlash 2).
Knows nothing of files.
Source: the forward pass of PyPI ``dflash`` 0.1.0 (``dflash/model.py``), with llama.cpp's one-sided window; for DSpark's
chain, reduced vocabularies and Gemma's block: llama.cpp src/models/dflash.cpp; for YaRN and llama3 scaling:
transformers modeling_rope_utils.py.
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
            gemma = f"layers.{i}.pre_feedforward_layernorm.weight" in self.arrays
            before_mlp = "pre_feedforward_layernorm" if gemma else "post_attention_layernorm"
            mixed = self._convolved(x, i, "input_layernorm", "attention_conv", self._attention)
            x = x + (self._norm(mixed, f"layers.{i}.post_attention_layernorm.weight") if gemma else mixed)
            fed = self._convolved(x, i, before_mlp, "mlp_conv", self._mlp)
            x = x + (self._norm(fed, f"layers.{i}.post_feedforward_layernorm.weight") if gemma else fed)
            x = x * self.arrays.get(f"layers.{i}.layer_scalar", 1.0)
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

    def rows(self, last: int, n: int, *, anchor_first: bool = False) -> Rows:
        """Logits [n, n_vocab] of the proposals; DSpark's are biased by the best token of the row before."""
        hidden = self.hidden(last, n if anchor_first else n + 1)[0 if anchor_first else 1 :]
        logits = self._scattered(self.logits(hidden), -np.inf)
        if "markov_head.markov_w1.weight" not in self.arrays:
            return logits
        before = last
        for i in range(n):
            bias = self.arrays["markov_head.markov_w1.weight"][before] @ self.arrays["markov_head.markov_w2.weight"].T
            logits[i] += self._scattered(bias[None], 0.0)[0]
            before = int(logits[i].argmax())
        return logits

    def _scattered(self, rows: Rows, rest: float) -> Rows:
        """Rows over a reduced vocabulary, put at their whole ids. ``d2t``: offsets from a row's own number."""
        if "d2t" not in self.arrays:
            return rows
        full = np.full((len(rows), len(self.embedding)), rest, rows.dtype)
        full[:, self.arrays["d2t"].astype(int) + np.arange(rows.shape[1])] = rows
        return full

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
        scores = np.einsum("qhd,khd->hqk", query, key) * self.config.get("attention_scale", self.head_dim**-0.5)
        scores = np.where(self._visible(positions, len(key), layer), scores, -np.inf)
        sinks = self.arrays.get(f"layers.{layer}.self_attn.attention_sink_bias")
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks[:, None, None] - top)
        mixed = np.einsum("hqk,khd->qhd", weights / total, value).reshape(len(x), -1)
        mixed = mixed * self.config.get("attention_value_scale", 1.0)
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
        if self.config.get("hidden_activation") == "gelu_pytorch_tanh":
            active = 0.5 * gated * (1 + np.tanh((2 / np.pi) ** 0.5 * (gated + 0.044715 * gated**3)))
        else:
            active = gated / (1 + np.exp(-gated))
        return (active * (x @ up)) @ down

    def _key_value(self, x: Rows, layer: int, positions: np.ndarray) -> tuple[Rows, Rows]:
        key = self._heads(x, layer, "k")
        if f"layers.{layer}.self_attn.v_proj.weight" in self.arrays:
            value = self._heads(x, layer, "v")
        else:  # Gemma 4: the keys serve as values, normed without a weight
            value = key / np.sqrt(np.mean(key * key, axis=-1, keepdims=True) + self.config["rms_norm_eps"])
        return self._rope(self._norm(key, f"layers.{layer}.self_attn.k_norm.weight"), positions), value

    def _heads(self, x: Rows, layer: int, name: str) -> Rows:
        projected = x @ self.arrays[f"layers.{layer}.self_attn.{name}_proj.weight"].T
        return projected.reshape(len(x), -1, self.head_dim)

    def _norm(self, x: Rows, name: str) -> Rows:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean_square + self.config["rms_norm_eps"]) * self.arrays[name]

    def _rope(self, x: Rows, positions: np.ndarray) -> Rows:
        """Rotate pairs: halves of a head, or neighbours. ``x``: [n, heads, head_dim]."""
        frequencies, scale = rope_frequencies(self.config, self.head_dim)
        n_rot = 2 * len(frequencies)
        angle = positions[:, None, None] * frequencies
        cos, sin = (np.cos(angle) * scale).astype(x.dtype), (np.sin(angle) * scale).astype(x.dtype)
        pairs = x[..., :n_rot]
        neighbours = not self.config.get("rope_is_neox_style", True)
        first, second = (pairs[..., 0::2], pairs[..., 1::2]) if neighbours else np.split(pairs, 2, axis=-1)
        turned = first * cos - second * sin, second * cos + first * sin
        rotated = np.stack(turned, axis=-1).reshape(pairs.shape) if neighbours else np.concatenate(turned, axis=-1)
        return np.concatenate([rotated, x[..., n_rot:]], axis=-1)


def rope_frequencies(config: Mapping[str, Any], head_dim: int) -> tuple[np.ndarray, float]:
    """(radians a position for each pair, scale of cosine and sine)."""
    rope = {**config, **(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    n_rot = int(head_dim * (rope.get("partial_rotary_factor") or 1.0))
    if rope.get("rope_type") == "proportional":  # Gemma 4: pairs of the whole head, only the first of them turn
        pairs = np.arange(head_dim // 2)
        return np.where(pairs < n_rot // 2, rope["rope_theta"] ** (-2.0 * pairs / head_dim), 0.0), 1.0
    plain = rope["rope_theta"] ** (-np.arange(n_rot // 2) * 2.0 / n_rot)
    kind = rope.get("rope_type") or rope.get("type")
    if kind == "linear":
        return plain / rope["factor"], 1.0
    if kind == "llama3":
        return _llama3(plain, rope), 1.0
    return _yarn(plain, rope, n_rot) if kind == "yarn" else (plain, 1.0)


def _llama3(plain: np.ndarray, rope: Mapping[str, Any]) -> np.ndarray:
    wavelength = 2 * np.pi / plain
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    smooth = np.clip((old / wavelength - low) / (high - low), 0, 1)
    return (1 - smooth) * plain / rope["factor"] + smooth * plain


def _yarn(plain: np.ndarray, rope: Mapping[str, Any], n_rot: int) -> tuple[np.ndarray, float]:
    def dimension(rotations: float) -> float:
        turns = rope["original_max_position_embeddings"] / (rotations * 2 * np.pi)
        return n_rot * np.log(turns) / (2 * np.log(rope["rope_theta"]))

    low = max(np.floor(dimension(rope.get("beta_fast") or 32)), 0)
    high = min(np.ceil(dimension(rope.get("beta_slow") or 1)), n_rot - 1)
    ramp = np.clip((np.arange(n_rot // 2) - low) / max(high - low, 0.001), 0, 1)
    scale = rope.get("attention_factor") or 0.1 * np.log(rope["factor"]) + 1.0
    return plain * (1 - ramp) + plain / rope["factor"] * ramp, float(scale)


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
