"""The tensors that every Qwen3-shaped drafter shares.

Comes in: a specification. Goes out: its rules.
Source: llama.cpp gguf-py/gguf/tensor_mapping.py, src/models/dflash.cpp (0.5.0).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dflash_gguf.convert.families.rules import TensorRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dflash_gguf.convert.spec import DrafterSpec

EMBEDDINGS = "embed_tokens.weight"
HEAD = "lm_head.weight"
SINKS = "self_attn.attention_sink_bias"
DRAFT_TO_TARGET = "d2t"
TARGET_TO_DRAFT = "t2d"


def backbone_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """Rules of the encoder, the norms, the layers, and the optional embeddings and head."""
    yield from outer_rules(spec)
    for i in range(spec.n_layers):
        for rule in _layer_rules(spec):
            yield layer_rule(i, rule)


def outer_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """Rules of everything outside the layers."""
    hidden, vocab = spec.hidden_size, spec.vocab_size
    yield TensorRule("fc.weight", "fc.weight", (hidden, len(spec.taps) * hidden))
    yield TensorRule("hidden_norm.weight", "enc.output_norm.weight", (hidden,))
    yield TensorRule("norm.weight", "output_norm.weight", (hidden,))
    yield TensorRule(EMBEDDINGS, "token_embd.weight", (vocab, hidden), optional=True)
    yield TensorRule(HEAD, "output.weight", (spec.draft_vocab or vocab, hidden), optional=spec.draft_vocab is None)
    if spec.draft_vocab is not None:
        yield TensorRule(DRAFT_TO_TARGET, "d2t", (spec.draft_vocab,))
        reason = "it says the same as `d2t`, the other way round"
        yield TensorRule(TARGET_TO_DRAFT, "", (vocab,), optional=True, dropped=reason)


def layer_rule(index: int, rule: TensorRule) -> TensorRule:
    """A rule with its names placed in layer ``index``."""
    return replace(rule, source=f"layers.{index}.{rule.source}", name=f"blk.{index}.{rule.name}")


def _layer_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    yield from attention_rules(spec)
    key = spec.n_kv_heads * spec.head_dim
    yield TensorRule("self_attn.v_proj.weight", "attn_v.weight", (key, spec.hidden_size))
    yield TensorRule("post_attention_layernorm.weight", "ffn_norm.weight", (spec.hidden_size,))


def attention_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """Rules of one layer that do not depend on the layout."""
    hidden, ffn, head = spec.hidden_size, spec.feed_forward, spec.head_dim
    query, key = spec.n_heads * head, spec.n_kv_heads * head
    yield TensorRule("input_layernorm.weight", "attn_norm.weight", (hidden,))
    yield TensorRule("self_attn.q_proj.weight", "attn_q.weight", (query, hidden), rotary=True)
    yield TensorRule("self_attn.k_proj.weight", "attn_k.weight", (key, hidden), rotary=True)
    yield TensorRule("self_attn.o_proj.weight", "attn_output.weight", (hidden, query))
    yield TensorRule("self_attn.q_norm.weight", "attn_q_norm.weight", (head,), rotary=True)
    yield TensorRule("self_attn.k_norm.weight", "attn_k_norm.weight", (head,), rotary=True)
    yield TensorRule("mlp.gate_proj.weight", "ffn_gate.weight", (ffn, hidden))
    yield TensorRule("mlp.up_proj.weight", "ffn_up.weight", (ffn, hidden))
    yield TensorRule("mlp.down_proj.weight", "ffn_down.weight", (hidden, ffn))
    if spec.sinks:
        yield TensorRule(SINKS, "attn_sinks.weight", (spec.n_heads,))
