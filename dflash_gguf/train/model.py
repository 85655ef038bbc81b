"""DFlash and DFlash 2 in PyTorch: z-lab's names and layout, many blocks of many texts in one pass.

Comes in: a `Shape`, context rows, and blocks behind them. Goes out: hidden rows, pairwise scores of candidates. The
embeddings and the head are the target's, and no part of it. Knows nothing of losses nor of files.
Source: the forward pass of PyPI ``dflash`` 0.1.0 (``dflash/model.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from dflash_gguf.facts import DFLASH2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from dflash_gguf.train.shape import Shape


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of ``n_texts`` texts, ``n_anchors`` in each.

    ``features``: [n_texts, length, n_features], texts padded at their ends; ``anchors``: int64 [n_texts, n_anchors],
    positions, whose blocks see the rows before them; ``tokens``: int64 [n_texts, n_anchors], the ids at the anchors.
    """

    features: Tensor
    anchors: Tensor
    tokens: Tensor


class Norm(nn.Module):
    """Root mean square norm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """On a CPU the type of ``x`` is kept; autocast on CUDA and MPS makes it float32."""
        return functional.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Convolution(nn.Module):
    """A causal convolution along a block, its kernel in part a function of the row; before and behind a sublayer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.taps, self.groups = shape.conv_kernel, shape.hidden // shape.conv_group
        self.base_kernel = nn.Parameter(torch.zeros(2, self.taps, shape.hidden))
        self.kernel_projection = nn.Linear(shape.hidden, 2 * self.taps * self.groups, bias=False)
        nn.init.ones_(self.base_kernel[:, 0])
        nn.init.zeros_(self.kernel_projection.weight)

    def around(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """``sublayer`` between both convolutions. ``x``: [blocks, size, hidden]."""
        dynamic = self.kernel_projection(x).view(*x.shape[:-1], 2 * self.taps, self.groups, 1).unbind(2)
        before, behind = self.base_kernel.to(x.dtype).unbind(0)
        mixed = sublayer(self._convolve(x, before, dynamic[: self.taps]))
        return self._convolve(mixed, behind, dynamic[self.taps :])

    def _convolve(self, x: Tensor, base: Tensor, dynamic: Sequence[Tensor]) -> Tensor:
        """``base``: [taps, hidden]; ``dynamic``: a tap each, [blocks, size, groups, 1]."""
        grouped = x.view(*x.shape[:-1], self.groups, -1)
        out = torch.zeros_like(grouped)
        for tap, (fixed, own) in enumerate(zip(base.view(self.taps, self.groups, -1), dynamic, strict=True)):
            rows = functional.pad(grouped[:, : x.shape[1] - tap], (0, 0, 0, 0, tap, 0)) if tap else grouped
            out = torch.addcmul(torch.addcmul(out, rows, fixed), rows, own)
        return out.view(x.shape)


class Attention(nn.Module):
    """Rows of a block see the context before their anchor, and each other."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, query, bias=False)
        self.k_proj = nn.Linear(shape.hidden, key, bias=False)
        self.v_proj = nn.Linear(shape.hidden, key, bias=False)
        self.o_proj = nn.Linear(query, shape.hidden, bias=False)
        self.q_norm = Norm(shape.head_dim, shape.eps)
        self.k_norm = Norm(shape.head_dim, shape.eps)

    def forward(self, x: Tensor, context: Tensor, places: Places) -> Tensor:
        """``x``: [blocks, size, hidden]; ``context``: [texts, length, hidden], normed already."""
        texts, length, _ = context.shape
        size = x.shape[1]
        blocks = x.shape[0] // texts
        groups = self.heads // self.kv_heads
        query = self.q_norm(self.q_proj(x).view(*x.shape[:2], self.heads, -1))
        query = _turned(query, places.block) * self.head_dim**-0.5
        query = query.view(texts, blocks, size, self.kv_heads, groups, self.head_dim)
        near_key, near_value = self._key_value(x, places.block)
        far_key, far_value = self._key_value(context, places.context)
        # Two products, so that no block meets the rows of another.
        wide = query.permute(0, 3, 4, 1, 2, 5).reshape(texts, self.kv_heads, -1, self.head_dim)
        far = wide @ far_key.permute(0, 2, 3, 1)
        near_rows = query.permute(0, 1, 3, 4, 2, 5).reshape(texts * blocks, self.kv_heads, -1, self.head_dim)
        near = near_rows @ near_key.permute(0, 2, 3, 1)
        far = far.view(texts, self.kv_heads, groups, blocks, size, length).masked_fill(places.unseen, float("-inf"))
        near = near.view(texts, blocks, self.kv_heads, groups, size, size).permute(0, 2, 3, 1, 4, 5)
        weights = torch.cat([far, near], -1).softmax(-1).to(far_value.dtype)
        far, near = weights.split([length, size], -1)
        mixed = far.reshape(texts, self.kv_heads, -1, length) @ far_value.transpose(1, 2)
        mixed = mixed.view(texts, self.kv_heads, groups, blocks, size, -1).permute(0, 3, 4, 1, 2, 5)
        inner = near.permute(0, 3, 1, 2, 4, 5).reshape(texts * blocks, self.kv_heads, -1, size)
        inner = inner @ near_value.transpose(1, 2)
        inner = inner.view(texts, blocks, self.kv_heads, groups, size, -1).permute(0, 1, 4, 2, 3, 5)
        return self.o_proj((mixed + inner).reshape(*x.shape[:2], -1))

    def _key_value(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Each [..., rows, kv heads, length of a head]."""
        key = self.k_norm(self.k_proj(x).view(*x.shape[:2], self.kv_heads, -1))
        return _turned(key, angles), self.v_proj(x).view(*x.shape[:2], self.kv_heads, -1)


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows stand: cosines and sines of block rows and of context rows, and which of these a block does not see.

    ``unseen``: bool [texts, 1, 1, blocks, 1, length].
    """

    block: tuple[Tensor, Tensor]
    context: tuple[Tensor, Tensor]
    unseen: Tensor


class FeedForward(nn.Module):
    """The gated one of Qwen3."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x``: [..., hidden]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and a feed-forward part, in DFlash 2 each between two convolutions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape.hidden, shape.eps)
        self.mlp = FeedForward(shape)
        convolved = shape.kind == DFLASH2
        self.attention_conv = Convolution(shape) if convolved else None
        self.mlp_conv = Convolution(shape) if convolved else None

    def forward(self, x: Tensor, context: Tensor, places: Places) -> Tensor:
        """``x``: [blocks, size, hidden]; ``context``: [texts, length, hidden]."""
        normed = self.input_layernorm(x)
        x = x + _between(self.attention_conv, normed, lambda rows: self.self_attn(rows, context, places))
        return x + _between(self.mlp_conv, self.post_attention_layernorm(x), self.mlp)


class Selector(nn.Module):
    """How well a candidate follows another, at a place."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.top_k = shape.top_k
        self.predecessor_codebook = nn.Parameter(torch.randn(shape.vocab, shape.rank) * 0.02)
        self.successor_codebook = nn.Parameter(torch.zeros(shape.vocab, shape.rank))
        self.hidden_projection = nn.Linear(shape.hidden, shape.rank, bias=False)

    def forward(self, hidden: Tensor, before: Tensor, candidates: Tensor) -> Tensor:
        """Scores [..., top_k] of ``candidates``, int64 [..., top_k], behind ``before``, int64 [...]."""
        gate = self.hidden_projection(hidden).float()
        predecessor = functional.embedding(before, self.predecessor_codebook) * gate
        successor = functional.embedding(candidates, self.successor_codebook)
        return (successor * predecessor[..., None, :]).sum(-1)  # a product of so many small matrices is slow


class Drafter(nn.Module):
    """The drafter. ``feature_rms``, [n_features], divides the features while it learns; `folded` takes it into ``fc``.

    A target's features have dimensions that are thousands of times their median: divided, they are learnt from several
    times as fast.
    """

    feature_rms: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(shape.n_features, shape.hidden, bias=False)
        self.hidden_norm = Norm(shape.hidden, shape.eps)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.eps)
        self.candidate_selector = Selector(shape) if shape.kind == DFLASH2 else None
        self.register_buffer("feature_rms", torch.ones(shape.n_features), persistent=False)

    def forward(self, blocks: Blocks, embeddings: Tensor) -> Tensor:
        """Hidden rows [texts, anchors, block, hidden]; ``embeddings``: the target's, [vocab, hidden]."""
        shape = self.shape
        texts, anchors = blocks.anchors.shape
        context = self.hidden_norm(self.fc(blocks.features / self.feature_rms))
        ids = blocks.tokens.new_full((texts * anchors, shape.block), shape.mask_id)
        ids[:, 0] = blocks.tokens.flatten()
        x = functional.embedding(ids, embeddings).to(context.dtype) * shape.input_scale
        places = self._places(blocks)
        for layer in self.layers:
            x = layer(x, context, places)
        return self.norm(x).view(texts, anchors, shape.block, -1)

    def load(self, arrays: Mapping[str, Any]) -> None:
        """Takes ``arrays`` over, by name; the others stay as they are."""
        own = dict(self.named_parameters())
        with torch.no_grad():
            for name, values in arrays.items():
                own[name].copy_(torch.as_tensor(values))

    def folded(self) -> dict[str, Tensor]:
        """The weights as they are published, for features as they are."""
        state = {name: values.detach() for name, values in self.state_dict().items()}
        return state | {"fc.weight": state["fc.weight"] / self.feature_rms}

    def _places(self, blocks: Blocks) -> Places:
        device = blocks.features.device
        length = blocks.features.shape[1]
        rows = blocks.anchors[..., None] + torch.arange(self.shape.block, device=device)
        context = torch.arange(length, device=device)
        unseen = context >= blocks.anchors[..., None]
        return Places(
            _angles(self.shape, rows.flatten(0, 1)), _angles(self.shape, context[None]), unseen[:, None, None, :, None]
        )


def _between(conv: Convolution | None, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    return sublayer(x) if conv is None else conv.around(x, sublayer)


def _angles(shape: Shape, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each [..., 1, head_dim / 2], for ``positions`` [...]."""
    steps = torch.arange(0, shape.head_dim, 2, device=positions.device, dtype=torch.float32)
    angle = positions[..., None, None].float() * shape.rope_base ** (-steps / shape.head_dim)
    return angle.cos(), angle.sin()


def _turned(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """The halves of each head, turned. ``x``: [..., rows, heads, head_dim]."""
    cos, sin = (part.to(x.dtype) for part in angles)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
