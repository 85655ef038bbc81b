"""The tensors that every Qwen3-shaped drafter shares.

Comes in: a specification. Goes out: its rules.
Source: llama.cpp gguf-py/gguf/tensor_mapping.py, src/models/dflash.cpp (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_gguf.convert.families.rules import TensorRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.convert.spec import DrafterSpec

FIRST_QUERY_NORM = "layers.0.self_attn.q_norm.weight"
EMBEDDINGS = "embed_tokens.weight"
HEAD = "lm_head.weight"


def backbone_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """Rules of the encoder, the norms, the layers, and the optional embeddings and head."""
    hidden, vocab = spec.hidden_size, spec.vocab_size
    yield TensorRule("fc.weight", "fc.weight", (hidden, len(spec.taps) * hidden))
    yield TensorRule("hidden_norm.weight", "enc.output_norm.weight", (hidden,))
    yield TensorRule("norm.weight", "output_norm.weight", (hidden,))
    yield TensorRule(EMBEDDINGS, "token_embd.weight", (vocab, hidden), optional=True)
    yield TensorRule(HEAD, "output.weight", (vocab, hidden), optional=True)
    for i in range(spec.n_layers):
        for rule in _layer_rules(spec):
            yield layer_rule(i, rule)


def layer_rule(index: int, rule: TensorRule) -> TensorRule:
    """A rule with its names placed in layer ``index``."""
    return TensorRule(
        f"layers.{index}.{rule.source}", f"blk.{index}.{rule.name}", rule.shape, rule.optional, rule.rotary
    )


def _layer_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    hidden, ffn, head = spec.hidden_size, spec.feed_forward, spec.head_dim
    query, key = spec.n_heads * head, spec.n_kv_heads * head
    yield TensorRule("input_layernorm.weight", "attn_norm.weight", (hidden,))
    yield TensorRule("self_attn.q_proj.weight", "attn_q.weight", (query, hidden), rotary=True)
    yield TensorRule("self_attn.k_proj.weight", "attn_k.weight", (key, hidden), rotary=True)
    yield TensorRule("self_attn.v_proj.weight", "attn_v.weight", (key, hidden))
    yield TensorRule("self_attn.o_proj.weight", "attn_output.weight", (hidden, query))
    yield TensorRule("self_attn.q_norm.weight", "attn_q_norm.weight", (head,), rotary=True)
    yield TensorRule("self_attn.k_norm.weight", "attn_k_norm.weight", (head,), rotary=True)
    yield TensorRule("post_attention_layernorm.weight", "ffn_norm.weight", (hidden,))
    yield TensorRule("mlp.gate_proj.weight", "ffn_gate.weight", (ffn, hidden))
    yield TensorRule("mlp.up_proj.weight", "ffn_up.weight", (ffn, hidden))
    yield TensorRule("mlp.down_proj.weight", "ffn_down.weight", (hidden, ffn))
