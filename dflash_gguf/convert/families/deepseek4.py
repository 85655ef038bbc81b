"""DeepSeek-V4's DSpark: whole blocks of the target's kind (hyper-connections, latent attention, experts) as stages.

They lie in the target's own folder, under ``mtp.``. Comes in: a specification. Goes out: its rules; experts merged
into one tensor a matrix. Source: llama.cpp conversion/deepseek.py, src/models/dflash.cpp (0.5.0).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.families.backbone import layer_rule, outer_rules
from dflash_gguf.convert.families.dspark import head_rules
from dflash_gguf.convert.families.rules import Family, Layout, Stages, TensorRule
from dflash_gguf.convert.rope import Rope, resolve_rope
from dflash_gguf.convert.sources import MXFP4_GROUP, Mxfp4, Tensor, both
from dflash_gguf.errors import CheckpointError
from dflash_gguf.facts import DSPARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dflash_gguf.convert.config import Config
    from dflash_gguf.convert.spec import DrafterSpec

EMBEDDED: Final = {"DeepseekV4ForCausalLM": "mtp.", "DeepseekV4DSparkModel": "mtp."}
"""Label of a target whose folder may hold its drafter too -> the prefix of the drafter's tensors."""
EXPERT: Final = re.compile(r"(layers\.\d+\.ffn\.experts)\.(0|[1-9]\d{0,5})\.(w[123])\.(weight|scale)")
EXPERT_LIMIT: Final = 512
"""llama.cpp's LLAMA_MAX_EXPERTS."""
PACKED: Final = ("I8", "U8")
ONLY_PICTURES: Final = "it routes pictures, which a drafter never sees"


def deepseek4_rules(spec: DrafterSpec) -> Iterator[TensorRule]:
    """Rules of the stages and of both heads."""
    stages = spec.stages
    if stages is None:
        raise CheckpointError("a DeepSeek-V4 drafter needs its target's config")
    hidden, streams = spec.hidden_size, stages.streams
    yield from outer_rules(spec)
    yield from head_rules(spec)
    yield TensorRule("hc_head_fn", "output_hc_fn.weight", (streams, streams * hidden))
    yield TensorRule("hc_head_base", "output_hc_base.weight", (streams,))
    yield TensorRule("hc_head_scale", "output_hc_scale.weight", (1,))
    for i in range(spec.n_layers):
        for rule in (*_attention(spec, stages), *_experts(spec, stages), *_connections(hidden, streams)):
            yield layer_rule(i, rule)


def _attention(spec: DrafterSpec, stages: Stages) -> Iterator[TensorRule]:
    hidden, head, wide = spec.hidden_size, spec.head_dim, spec.n_heads * spec.head_dim
    output = stages.output_groups * stages.output_rank
    yield TensorRule("attn_norm.weight", "attn_norm.weight", (hidden,))
    yield TensorRule("attn.attn_sink", "attn_sinks.weight", (spec.n_heads,))
    yield TensorRule("attn.wq_a.weight", "attn_q_a.weight", (stages.query_rank, hidden))
    yield TensorRule("attn.q_norm.weight", "attn_q_a_norm.weight", (stages.query_rank,))
    yield TensorRule("attn.wq_b.weight", "attn_q_b.weight", (wide, stages.query_rank))
    yield TensorRule("attn.wkv.weight", "attn_kv.weight", (head, hidden))
    yield TensorRule("attn.kv_norm.weight", "attn_kv_a_norm.weight", (head,))
    yield TensorRule("attn.wo_a.weight", "attn_output_a.weight", (output, wide // stages.output_groups))
    yield TensorRule("attn.wo_b.weight", "attn_output_b.weight", (hidden, output))


def _experts(spec: DrafterSpec, stages: Stages) -> Iterator[TensorRule]:
    hidden, count, ffn = spec.hidden_size, stages.n_experts, spec.feed_forward
    shared = ffn * stages.n_shared
    yield TensorRule("ffn_norm.weight", "ffn_norm.weight", (hidden,))
    yield TensorRule("ffn.gate.weight", "ffn_gate_inp.weight", (count, hidden))
    yield TensorRule("ffn.gate.bias", "exp_probs_b.bias", (count,))
    yield TensorRule("ffn.gate.bias_vl", "", (count,), optional=True, dropped=ONLY_PICTURES)
    yield TensorRule("ffn.experts.w1", "ffn_gate_exps.weight", (count, ffn, hidden))
    yield TensorRule("ffn.experts.w2", "ffn_down_exps.weight", (count, hidden, ffn))
    yield TensorRule("ffn.experts.w3", "ffn_up_exps.weight", (count, ffn, hidden))
    yield TensorRule("ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight", (shared, hidden))
    yield TensorRule("ffn.shared_experts.w2.weight", "ffn_down_shexp.weight", (hidden, shared))
    yield TensorRule("ffn.shared_experts.w3.weight", "ffn_up_shexp.weight", (shared, hidden))


def _connections(hidden: int, streams: int) -> Iterator[TensorRule]:
    mixes = (2 + streams) * streams
    for part in ("attn", "ffn"):
        yield TensorRule(f"hc_{part}_fn", f"hc_{part}_fn.weight", (mixes, streams * hidden))
        yield TensorRule(f"hc_{part}_base", f"hc_{part}_base.weight", (mixes,))
        yield TensorRule(f"hc_{part}_scale", f"hc_{part}_scale.weight", (3,))


def merge_experts(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same with the experts of a matrix as one tensor, in the place of the first."""
    parts: dict[str, dict[int, dict[str, Tensor]]] = {}
    merged: dict[str, Tensor | None] = {}
    for name, tensor in tensors.items():
        found = EXPERT.fullmatch(name)
        if found is None:
            merged[name] = tensor
            continue
        whole = f"{found[1]}.{found[3]}"
        if whole in tensors:
            raise both(tensors[whole], tensor)
        parts.setdefault(whole, {}).setdefault(int(found[2]), {})[found[4]] = tensor
        merged[whole] = None
    return {name: tensor or _merged(name, parts[name]) for name, tensor in merged.items()}


def _merged(name: str, experts: Mapping[int, Mapping[str, Tensor]]) -> Tensor:
    pairs = [experts.get(i, {}) for i in range(len(experts))]
    if any(set(pair) != {"weight", "scale"} for pair in pairs):
        raise CheckpointError(f"experts of `{name}` are missing, or lack a weight or a scale", value=len(pairs))
    weights, scales = [pair["weight"] for pair in pairs], [pair["scale"] for pair in pairs]
    rows, half = weights[0].shape if len(weights[0].shape) == 2 else (0, 0)
    columns = 2 * half
    whole = rows > 0 and columns > 0 and columns % MXFP4_GROUP == 0
    fits = all(w.dtype in PACKED and w.shape == (rows, half) for w in weights)
    scaled = all(s.dtype == "F8_E8M0" and s.shape == (rows, columns // MXFP4_GROUP) for s in scales)
    if not (whole and fits and scaled):
        raise CheckpointError(
            f"the experts of `{name}` are not MXFP4",
            value=f"{weights[0].dtype} {list(weights[0].shape)} with {scales[0].dtype} {list(scales[0].shape)}",
            expected="two values a byte and an F8_E8M0 scale for each 32, alike for all experts",
        )
    source = Mxfp4(weights[0].name, tuple((w.span, s.span) for w, s in zip(weights, scales, strict=True)))
    return Tensor(weights[0].name, "MXFP4", (len(pairs), rows, columns), weights[0].span, source)


def _stages(config: Config) -> Stages:
    scoring = config.string("scoring_func")
    if scoring != "sqrtsoftplus":
        raise CheckpointError("`scoring_func` in the config", value=scoring, expected="sqrtsoftplus")
    n_experts = config.integer("n_routed_experts", most=EXPERT_LIMIT)
    heads, groups = config.integer("num_attention_heads"), config.integer("o_groups")
    if heads % groups:
        raise CheckpointError("`o_groups` in the config", value=groups, expected=f"a divisor of {heads} heads")
    return Stages(
        window=config.integer("sliding_window"),
        query_rank=config.integer("q_lora_rank"),
        output_groups=groups,
        output_rank=config.integer("o_lora_rank"),
        n_experts=n_experts,
        n_used=config.integer("num_experts_per_tok", most=n_experts),
        n_shared=config.integer("n_shared_experts"),
        weights_scale=config.number("routed_scaling_factor"),
        weights_norm=config.boolean("norm_topk_prob") is not False,
        clamp=config.number("swiglu_limit"),
        streams=config.integer("hc_mult", most=64),
        sinkhorn_iterations=config.integer("hc_sinkhorn_iters"),
        connection_eps=config.number("hc_eps"),
        indexer=tuple(config.integer(name) for name in ("index_n_heads", "index_head_dim", "index_topk")),
        compress_rope_base=config.number("compress_rope_theta"),
    )


def _rope(config: Config, head_dim: int, *, copies_target: bool) -> tuple[Rope, tuple[str, ...]]:
    rope, notes = resolve_rope(config, head_dim, copies_target=copies_target)
    turned = config.integer("qk_rope_head_dim", most=head_dim)
    if turned % 2:
        raise CheckpointError("`qk_rope_head_dim` in the config", value=turned, expected="an even number")
    return replace(rope, dimensions=turned), notes


_KEYS: Final = (
    "scoring_func", "n_routed_experts", "o_groups", "q_lora_rank", "o_lora_rank", "num_experts_per_tok",
    "n_shared_experts", "routed_scaling_factor", "norm_topk_prob", "swiglu_limit", "hc_mult", "hc_sinkhorn_iters",
    "hc_eps", "index_n_heads", "index_head_dim", "index_topk", "compress_rope_theta", "qk_rope_head_dim",
)  # fmt: skip
DEEPSEEK4: Final = Layout(
    places={
        **{name: (name,) for name in _KEYS},
        "intermediate_size": ("moe_intermediate_size",),
        "layer_types": (),  # of the target's layers
        "rope_theta": ("rope_parameters.main.rope_theta", "rope_parameters.rope_theta", "rope_theta"),
    },
    rope=_rope,
    head_mark="layers.0.attn.kv_norm.weight",
    counts_layers=True,
    keeps_types=True,
    stages=_stages,
    prepare=merge_experts,
)

FAMILY: Final = Family(DSPARK, "DeepSeek-V4 DSpark", (("layers.0.attn.wkv.", "fc.weight"),), deepseek4_rules, DEEPSEEK4)
