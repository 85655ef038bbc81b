"""Where training starts from: the target's own last layers; and its embeddings and head, which stay as they are.

Comes in: the header of a target's GGUF. Goes out: float32 arrays under z-lab's names, in PyTorch's order of axes.
Quantized types are widened by gguf-py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dflash_gguf.errors import TrainError
from dflash_gguf.facts import EMBEDDINGS, HEAD, architecture
from dflash_gguf.shards import shards_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.train.shape import Shape

    Arrays = dict[str, NDArray[np.float32]]

LAYER_NAMES: Final = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
"""Tensor of a drafter's layer -> that of a target's."""
NORM: Final = "output_norm.weight"

NEIGHBOURS: Final = frozenset({"llama", "llama-embed", "nanbeige", "muse-glimmer"})
"""Targets whose heads turn neighbouring values; a drafter's turn the halves of a head.

Source: llama.cpp src/llama-model.cpp, ``llama_model_rope_type`` (0.5.0)."""
TURNED: Final = {"self_attn.q_proj.weight": "heads", "self_attn.k_proj.weight": "kv_heads"}


class Weights:
    """The tensors of a target's GGUF, all its shards together; values are read when they are asked for."""

    def __init__(self, path: Path, header: GGUFHeader) -> None:
        self._places = {
            info.name: (file, part.data_offset + info.offset, info)
            for file, part in shards_of(path, header)
            for info in part.tensors.values()
        }

    def shape(self, name: str) -> tuple[int, ...] | None:
        """In PyTorch's order; None when there is no such tensor."""
        place = self._places.get(name)
        return None if place is None else place[2].shape[::-1]

    def values(self, name: str) -> NDArray[np.float32]:
        """Widened; raises TrainError when the tensor is missing or gguf-py cannot widen its type."""
        if name not in self._places:
            raise TrainError(f"the target has no tensor `{name}`", remedy="give its whole GGUF, or its first shard")
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        file, offset, info = self._places[name]
        data = np.memmap(file, np.uint8, "r", offset, (info.nbytes,))
        kind = GGMLQuantizationType(info.type)
        rows: Any = data.reshape(*info.shape[:0:-1], -1)
        try:
            wide = dequantize(rows, kind)
        except NotImplementedError:
            raise TrainError(f"`{name}` cannot be widened", value=kind.name, expected="a type of gguf-py") from None
        return np.array(wide, np.float32).reshape(info.shape[::-1])


def tables(weights: Weights) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Embeddings and head, float32 [vocab, hidden]; a target without a head of its own uses its embeddings."""
    embeddings = weights.values(EMBEDDINGS)
    return embeddings, embeddings if weights.shape(HEAD) is None else weights.values(HEAD)


def first_values(weights: Weights, header: GGUFHeader, shape: Shape) -> Arrays:
    """The tensors to start from, as far as the target has them.

    Its last layers with attention and a feed-forward part of the drafter's sizes are taken; without enough of them
    the drafter's layers start at random.
    """
    found: Arrays = {"norm.weight": weights.values(NORM)} if weights.shape(NORM) == (shape.hidden,) else {}
    wanted = _layer_shapes(shape)
    fitting = [n for n in range(shape.target_layers) if _fits(weights, n, wanted)][-shape.layers :]
    if len(fitting) < shape.layers:
        return found
    for i, n in enumerate(fitting):
        for name, gguf_name in LAYER_NAMES.items():
            values = weights.values(f"blk.{n}.{gguf_name}")
            if name in TURNED and architecture(header) in NEIGHBOURS:
                values = halves(values, getattr(shape, TURNED[name]))
            found[f"layers.{i}.{name}"] = values
    return found


def _layer_shapes(shape: Shape) -> Mapping[str, tuple[int, ...]]:
    """Of a layer's tensors that a target has too."""
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "input_layernorm.weight": (shape.hidden,),
        "self_attn.q_proj.weight": (query, shape.hidden),
        "self_attn.k_proj.weight": (key, shape.hidden),
        "self_attn.v_proj.weight": (key, shape.hidden),
        "self_attn.o_proj.weight": (shape.hidden, query),
        "post_attention_layernorm.weight": (shape.hidden,),
        "mlp.gate_proj.weight": (shape.ffn, shape.hidden),
        "mlp.up_proj.weight": (shape.ffn, shape.hidden),
        "mlp.down_proj.weight": (shape.hidden, shape.ffn),
    }


def first_layer(shape: Shape) -> Mapping[str, tuple[int, ...]]:
    """Names and shapes of what the drafter's first layer can start from."""
    return {f"layers.0.{name}": size for name, size in _layer_shapes(shape).items()}


def _fits(weights: Weights, layer: int, wanted: Mapping[str, tuple[int, ...]]) -> bool:
    return all(weights.shape(f"blk.{layer}.{LAYER_NAMES[name]}") == size for name, size in wanted.items())


def halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a projection whose heads turn neighbours (0, 1), (2, 3), ... as one whose heads turn halves."""
    _, columns = rows.shape
    return rows.reshape(heads, -1, 2, columns).swapaxes(1, 2).reshape(rows.shape)
