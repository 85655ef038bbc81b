"""The normal form of a drafter: every fact that its GGUF must state, each resolved once.

Comes in: a config, its family and dialect, what its tensors show, what its target offers. Goes out: a frozen
`DrafterSpec`. Knows nothing of files or GGUF keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.attention import Window, resolve_causal, resolve_window
from dflash_gguf.convert.overrides import TABLE
from dflash_gguf.errors import CheckpointError
from dflash_gguf.facts import DFLASH, DFLASH2, DSPARK
from dflash_gguf.schema import BLOCK_LIMIT

if TYPE_CHECKING:
    from dflash_gguf.convert.config import Config
    from dflash_gguf.convert.families.dialects import Dialect
    from dflash_gguf.convert.families.rules import Family, Seen, Stages
    from dflash_gguf.convert.rope import Rope
    from dflash_gguf.facts import TargetFacts

HEAD_DIM_LIMIT: Final = 4096
"""Far above every published head; the tables of rotary factors are as long."""
LAYER_LIMIT: Final = 512
"""llama.cpp's LLAMA_MAX_LAYERS."""
GEMMA: Final = "gemma"


@dataclass(frozen=True, slots=True)
class Selector:
    """What DFlash 2 adds: the convolutions' taps and channels a group, the lattice's rank and width."""

    conv_kernel: int
    conv_group: int
    rank: int
    top_k: int


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A drafter in normal form; ``taps`` number the target's layers as Hugging Face does, from 0.

    ``confidence``: whether DSpark's confidence head is one that llama.cpp knows (None: there is none).
    ``anchor_first`` is None where nobody asks. ``never_causal``: the config itself says ``is_causal`` false.
    ``draft_vocab``: rows of a head that knows only a part of the vocabulary. ``keeps_types``: an unquantized file
    holds the types of the checkpoint.
    """

    kind: str
    hidden_size: int
    feed_forward: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    rms_eps: float
    rope: Rope
    block_size: int
    mask_token_id: int
    taps: tuple[int, ...]
    causal: bool = False
    never_causal: bool = False
    window: Window | None = None
    sinks: bool = False
    value_scale: float | None = None
    attention_scale: float | None = None
    activation: str | None = None
    stages: Stages | None = None
    keeps_types: bool = False
    selector: Selector | None = None
    markov_rank: int | None = None
    confidence: bool | None = None
    anchor_first: bool | None = None
    draft_vocab: int | None = None
    logit_scale: float | None = None
    softcap: float | None = None
    embedding_scale: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def target_layers(self) -> tuple[int, ...]:
        """The taps in GGUF's numbering: inputs of layers, one more than the outputs' numbers."""
        return tuple(tap + 1 for tap in self.taps)


def resolve_spec(config: Config, family: Family, dialect: Dialect, seen: Seen, target: TargetFacts) -> DrafterSpec:
    """Resolve a config; ``seen`` is what its tensors show, ``target`` gives the vocabulary where the config has none.

    Raises `CheckpointError` on a value that is absent, contradictory, or that llama.cpp cannot hold.
    """
    _refuse_unsupported(config, family)
    spec = _sized(config, family, dialect, seen, target)
    spec = _with_attention(spec, config, family, dialect, seen)
    spec = _with_heads(spec, config, family, dialect, seen)
    spec = _with_scales(spec, config, family, seen, target)
    _check_shapes(spec)
    return replace(spec, notes=(*spec.notes, *_overridden(config), *_unheld(spec), *_anchor_note(spec)))


def _sized(config: Config, family: Family, dialect: Dialect, seen: Seen, target: TargetFacts) -> DrafterSpec:
    """The sizes, the positions, the block and the taps."""
    layout = family.layout
    head_dim = _head_dim(config, seen)
    rope, notes = layout.rope(config, head_dim, copies_target=dialect.copies_target)
    vocab_size = config.optional_integer("vocab_size") or target.vocab_size
    if vocab_size is None:
        raise config.absent("vocab_size")
    return DrafterSpec(
        kind=family.kind,
        hidden_size=config.integer("hidden_size"),
        feed_forward=config.integer("intermediate_size"),
        n_layers=seen.n_layers if layout.counts_layers else config.integer("num_hidden_layers", most=LAYER_LIMIT),
        n_heads=config.integer("num_attention_heads"),
        n_kv_heads=config.integer("num_key_value_heads"),
        head_dim=head_dim,
        vocab_size=vocab_size,
        context_length=config.integer("max_position_embeddings"),
        rms_eps=config.number("rms_norm_eps"),
        rope=rope,
        block_size=config.integer("block_size", 2, BLOCK_LIMIT),
        mask_token_id=config.integer("mask_token_id", 0, vocab_size - 1),
        taps=config.integers("target_layer_ids", -1, LAYER_LIMIT - 1, LAYER_LIMIT),
        notes=notes,
    )


def _with_attention(spec: DrafterSpec, config: Config, family: Family, dialect: Dialect, seen: Seen) -> DrafterSpec:
    layout = family.layout
    window, window_notes = resolve_window(config, spec.n_layers, dialect)
    causal, causal_notes = resolve_causal(config, spec.n_layers, dialect)
    return replace(
        spec,
        causal=causal,
        never_causal=config.values.get("is_causal") is False and not causal,
        window=window,
        sinks=seen.sinks or config.boolean("attention_sink_bias") is True,
        value_scale=config.optional_number("attention_value_scale"),
        attention_scale=layout.attention_scale,
        activation=layout.activation if layout.states_activation else None,
        stages=layout.stages(config) if layout.stages is not None else None,
        keeps_types=layout.keeps_types,
        notes=window_notes + causal_notes + spec.notes,
    )


def _with_heads(spec: DrafterSpec, config: Config, family: Family, dialect: Dialect, seen: Seen) -> DrafterSpec:
    return replace(
        spec,
        selector=_selector(config) if family.kind == DFLASH2 else None,
        markov_rank=_markov_rank(config, family, seen),
        confidence=_confidence(config, family, seen, spec.hidden_size),
        anchor_first=anchor_first(config, family.kind, dialect),
        draft_vocab=_draft_vocab(config, family, seen, spec.vocab_size),
    )


def _with_scales(spec: DrafterSpec, config: Config, family: Family, seen: Seen, target: TargetFacts) -> DrafterSpec:
    embedding_scale, notes = _embedding_scale(config, family, seen, target, spec.hidden_size)
    return replace(
        spec,
        logit_scale=config.optional_number("output_multiplier"),
        softcap=config.optional_number("final_logit_softcapping", zero=True) or None,
        embedding_scale=embedding_scale,
        notes=spec.notes + notes,
    )


def _refuse_unsupported(config: Config, family: Family) -> None:
    layout = family.layout
    activation = config.string("hidden_act")
    if activation not in (None, layout.activation):
        raise CheckpointError(
            "`hidden_act` in the config", value=ascii(activation)[1:-1][:80], expected=layout.activation
        )
    if config.boolean("attention_bias"):
        raise CheckpointError("`attention_bias` is true, which llama.cpp's dflash loader cannot hold")
    for name, other in (("target_hidden_size", "hidden_size"), ("v_head_dim", "head_dim")):
        sizes = config.optional_integer(name), config.optional_integer(other)
        if None not in sizes and sizes[0] != sizes[1]:
            raise CheckpointError(f"`{name}` in the config", value=sizes[0], expected=f"`{other}` {sizes[1]}")
    head = config.string("markov_head_type")
    if head not in (None, "vanilla"):
        raise CheckpointError("`markov_head_type`", value=head, expected="vanilla, the only one that llama.cpp knows")
    layout.refuse(config)


def _head_dim(config: Config, seen: Seen) -> int:
    stated = config.optional_integer("head_dim")
    if stated not in (None, seen.head_dim):
        raise CheckpointError(
            "`head_dim` in the config", value=stated, expected=f"{seen.head_dim}, the width of q_norm"
        )
    if not 2 <= seen.head_dim <= HEAD_DIM_LIMIT or seen.head_dim % 2:
        raise CheckpointError("`head_dim`", value=seen.head_dim, expected=f"an even number up to {HEAD_DIM_LIMIT}")
    return seen.head_dim


def _check_shapes(spec: DrafterSpec) -> None:
    if not 1 <= spec.n_layers <= LAYER_LIMIT:
        raise CheckpointError("layers of the drafter", value=spec.n_layers, expected=f"1 to {LAYER_LIMIT}")
    if spec.n_heads % spec.n_kv_heads:
        raise CheckpointError(
            "`num_attention_heads`",
            value=spec.n_heads,
            expected=f"a multiple of {spec.n_kv_heads} key-value heads",
        )
    if spec.selector is not None:
        _check_selector(spec, spec.selector)


def _check_selector(spec: DrafterSpec, selector: Selector) -> None:
    # llama.cpp src/models/dflash.cpp, load_arch_tensors.
    if spec.hidden_size % selector.conv_group:
        raise CheckpointError(
            "`conv_group_size`",
            value=selector.conv_group,
            expected=f"a divisor of hidden_size {spec.hidden_size}",
        )
    if spec.hidden_size < selector.top_k * (selector.top_k + 1):
        raise CheckpointError(
            "`selector_top_k` does not fit a row of the hidden size", value=selector.top_k,
            expected=f"top_k * (top_k + 1) <= {spec.hidden_size}",
        )  # fmt: skip
    if selector.top_k > spec.vocab_size:
        raise CheckpointError(
            "`selector_top_k`", value=selector.top_k, expected=f"at most vocab_size {spec.vocab_size}"
        )


def _selector(config: Config) -> Selector:
    return Selector(
        conv_kernel=config.integer("conv_kernel_size"),
        conv_group=config.integer("conv_group_size"),
        rank=config.integer("selector_rank"),
        top_k=config.integer("selector_top_k", most=1 << 15),
    )


def _draft_vocab(config: Config, family: Family, seen: Seen, vocab_size: int) -> int | None:
    """Rows of a reduced head, None for a whole one; the table that maps them must be there."""
    stated = config.optional_integer("draft_vocab_size")
    if stated is not None and stated > vocab_size:
        raise CheckpointError("`draft_vocab_size`", value=stated, expected=f"at most vocab_size {vocab_size}")
    if seen.draft_vocab is None:
        if stated not in (None, vocab_size):
            raise CheckpointError(
                f"`draft_vocab_size` {stated} is less than `vocab_size` {vocab_size}, but there is no tensor `d2t`"
            )
        return None
    if seen.draft_vocab == 0 or stated not in (None, seen.draft_vocab):
        raise CheckpointError("`draft_vocab_size`", value=stated, expected=f"{seen.draft_vocab}, the length of `d2t`")
    if family.kind == DFLASH2:
        raise CheckpointError(
            "a DFlash 2 drafter with a reduced vocabulary (`d2t`): its code books are indexed by whole token ids"
        )
    return seen.draft_vocab


def _markov_rank(config: Config, family: Family, seen: Seen) -> int | None:
    if family.kind != DSPARK:
        return None
    stated = config.optional_integer("markov_rank", 0)
    if seen.markov_rank == 0:
        raise CheckpointError("the Markov head has no columns")
    if stated is not None and stated != seen.markov_rank:
        raise CheckpointError(
            "`markov_rank` in the config", value=stated, expected=f"{seen.markov_rank}, as its tensors"
        )
    return seen.markov_rank


def _confidence(config: Config, family: Family, seen: Seen, hidden_size: int) -> bool | None:
    if family.kind != DSPARK:
        return None
    if seen.confidence_width is None:
        promised = config.find("confidence_head")
        if promised is not None and promised[1] is True:
            raise CheckpointError(f"the config promises a confidence head (`{promised[0]}`), but no tensor is of one")
        return None
    return seen.confidence_width != hidden_size


def anchor_first(config: Config, kind: str, dialect: Dialect) -> bool | None:
    """Whether the anchor's own row is the first proposal; None where llama.cpp never asks."""
    if kind == DFLASH2:
        return None
    stated = config.boolean("sample_from_anchor")
    if stated is None and kind == DSPARK:
        stated = _by_proposals(config)
    if stated is None:
        stated = dialect.anchor_first.get(kind, False)
    return stated if kind == DSPARK or stated else None


def _by_proposals(config: Config) -> bool | None:
    """speculators: a block that proposes as many tokens as it has rows starts at the anchor; no flag changes that."""
    found = config.stated("block_size")
    block_size = found[1] if found is not None else config.integer("block_size")
    stated = config.values.get("speculators_config")
    methods: Any = stated.get("proposal_methods") if isinstance(stated, dict) else None
    counts = [m.get("speculative_tokens") for m in methods if isinstance(m, dict)] if isinstance(methods, list) else []
    if block_size in counts:
        return True
    return False if block_size - 1 in counts else None


def _embedding_scale(
    config: Config, family: Family, seen: Seen, target: TargetFacts, hidden_size: int
) -> tuple[float | None, tuple[str, ...]]:
    stated = config.optional_number("input_embedding_scale")
    if stated is not None:
        return stated, ()
    if family.layout.scales_embeddings:
        return sqrt(hidden_size), ()
    own = seen.embeddings and config.boolean("has_embed_tokens") is not False
    if target.architecture.startswith(GEMMA) and not own:
        # z-lab's code embeds with the target's own module, which for Gemma multiplies by this; llama.cpp reads
        # bare rows of the table.
        scale = sqrt(hidden_size)
        what = f"the target's embeddings are multiplied by {scale:g}, as Gemma's own are"
        return scale, (f"{what}; `--embedding-scale` decides otherwise",)
    return None, ()


def _overridden(config: Config) -> list[str]:
    """A note for each value that the user gave in the place of another."""
    notes = []
    for row in TABLE:
        given = config.overrides.value(row.field)
        if given is None:
            continue
        try:
            stated = config.stated(row.field)
        except CheckpointError as error:
            notes.append(f"`{row.usage}` decides what the config does not: {error}")
            continue
        if stated is not None and stated[1] != given[1]:
            notes.append(f"`{row.usage}` wins over `{stated[0]}` {ascii(stated[1])[:80]} in the config")
    return notes


def _unheld(spec: DrafterSpec) -> list[str]:
    """llama.cpp applies these two to DFlash 2's lattice alone (src/models/dflash.cpp)."""
    if spec.kind == DFLASH2:
        return []
    costs = {
        DFLASH: "the best token is the same, but `--spec-draft-p-min` measures other probabilities",
        DSPARK: "the Markov head is added on another scale, so fewer drafts may be accepted",
    }
    stated = (("output_multiplier", spec.logit_scale), ("final_logit_softcapping", spec.softcap))
    return [
        f"llama.cpp does not apply `{name}` {value:g} to the rows of such a drafter: {costs[spec.kind]}"
        for name, value in stated
        if value is not None
    ]


def _anchor_note(spec: DrafterSpec) -> list[str]:
    if spec.kind != DFLASH or not spec.anchor_first:
        return []
    # llama.cpp common/speculative.cpp: without a Markov head it detects `draft-dflash`, which skips row 0.
    what = "this drafter proposes from the anchor's row on, but has no Markov head by which llama.cpp would know"
    return [f"{what}: run it there with `--spec-type draft-dspark --spec-draft-p-min 0`"]
