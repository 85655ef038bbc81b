"""What the graphs of the architectures that take a drafter demand, each beyond what all do.

Comes in: a reader of a target's header, its architecture and sizes. Goes out: findings in the reader. An assertion in a
graph ends the process, and so does a division by a key that is 0.
Source: llama.cpp src/models, a file for each architecture (0.5.0); docs/native-preconditions.md names the lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.hparams import LAYERS, LENGTH, WINDOW, Sizes, check_windows_heads
from dflash_gguf.contract.reader import Bounds
from dflash_gguf.contract.streams import check_streams
from dflash_gguf.file_text import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_gguf.contract.reader import Reader

    Rule = Callable[[Reader, str, Sizes], None]

GATINGS: Final = Bounds(1, 4)
LOOPS_LIMIT: Final = 512
SECTIONS: Final = Bounds(1, 4)
COMPRESSIONS: Final = (0, 4, 128)
DEEPSEEK4_GATING: Final = 4
HADAMARD: Final = 64
INTERVAL: Final = 8
"""MiniMax-01's, where its file names none."""


@dataclass(frozen=True, slots=True)
class Demands:
    """``equal``: heads are as long for keys as for values; ``whole``: every value of a head is turned; ``uniform``: all
    layers have as many heads; ``windows``: heads of layers that slide have a shape of their own. ``rules`` are those of
    the architecture alone.
    """

    equal: bool = True
    whole: bool = False
    uniform: bool = True
    windows: bool = False
    rules: tuple[Rule, ...] = ()


def check_architecture(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Judges what `DEMANDS` has for ``arch``; an architecture that is not in it has no demands here."""
    demands = DEMANDS.get(arch)
    if demands is None:
        return
    if demands.equal and sizes.key_length != sizes.value_length:
        what = f"heads are not as long for keys ({sizes.key_length}) as for values"
        reader.fault(what, sizes.value_length)
    key = f"{arch}.rope.dimension_count"
    turned = reader.integer(key)
    if demands.whole and turned is not None and turned != sizes.key_length:
        reader.fault(f"`{key}` is not the length of a head, {sizes.key_length}", turned)
    if demands.uniform:
        _uniform(reader, sizes)
    if not demands.windows:
        check_windows_heads(reader, arch, sizes)
    for rule in demands.rules:
        rule(reader, arch, sizes)


def _uniform(reader: Reader, sizes: Sizes) -> None:
    for name, heads in (("heads", sizes.n_heads), ("key heads", sizes.n_kv_heads)):
        if heads is not None and (len(set(heads)) > 1 or not heads[0]):
            reader.fault(f"layers do not all have as many {name}", listed(sorted(set(heads))))


def _window(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Some layers must slide."""
    reader.integer(f"{arch}.attention.sliding_window", WINDOW)
    key = f"{arch}.attention.sliding_window_pattern"
    value = reader.header.keys.get(key)
    if value is None or sizes.n_layers is None:
        return
    if value.type_text.startswith("array"):
        layers = reader.booleans(key, sizes.n_layers)
        if layers is not None and not any(layers):
            reader.fault(f"`{key}` names no layer", "none of them")
        return
    period = reader.integer(key)
    if period == 1 or (period and sizes.n_layers < 2):
        reader.fault(f"`{key}` leaves no layer that slides", period)


def _gating(reader: Reader, arch: str, sizes: Sizes) -> None:
    if sizes.n_experts:
        reader.integer(f"{arch}.expert_gating_func", GATINGS, required=True)


def _expert_width(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Where it is missing, the feed-forward width is divided by the experts in use."""
    reader.a_layer(f"{arch}.expert_feed_forward_length", sizes.n_layers or 1, LENGTH)


def _routed(reader: Reader, arch: str, sizes: Sizes) -> None:
    """LFM2: the layers behind the first dense ones route to experts."""
    key = f"{arch}.leading_dense_block_count"
    dense = reader.integer(key) or 0
    if sizes.n_layers and not sizes.n_experts and dense < sizes.n_layers:
        reader.fault(f"`{arch}.expert_count` is missing or 0, but only the first {dense} layers are dense", 0)


def _used_experts(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Nemotron-H: a layer with a feed-forward width, where the model has experts, routes to them."""
    if not sizes.n_experts or not sizes.n_layers:
        return
    key = f"{arch}.expert_used_count"
    used = reader.a_layer(key, sizes.n_layers, Bounds(0, LENGTH.most))
    widths = reader.a_layer(f"{arch}.feed_forward_length", sizes.n_layers, Bounds(0, LENGTH.most))
    if used and widths and any(width and not count for count, width in zip(used, widths, strict=True)):
        reader.fault(f"`{key}` is 0 in a layer of experts", 0)


def _shared_caches(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Gemma 4: the layers behind the first ``n`` reuse the caches of the last two of these, one of each kind."""
    key = f"{arch}.attention.shared_kv_layers"
    shared = reader.integer(key)
    if not shared or sizes.n_layers is None:
        return
    first = sizes.n_layers - shared
    pattern = reader.booleans(f"{arch}.attention.sliding_window_pattern", sizes.n_layers, required=True)
    if first < 2 or (pattern is not None and pattern[first - 2 : first] != [True, False]):
        reader.fault(f"`{key}` does not leave a sliding layer and a full one to share", shared)


def _sections(reader: Reader, arch: str, sizes: Sizes) -> None:
    key = f"{arch}.rope.dimension_sections"
    sections = reader.integers(key, SECTIONS, Bounds(0, LENGTH.most))
    if sections is None:
        return
    turned = reader.integer(f"{arch}.rope.dimension_count") or sizes.key_length
    if not any(sections[:3]) or (turned and sum(sections) > turned // 2):
        reader.fault(f"`{key}` is not 3 or 4 numbers, of at most {(turned or 0) // 2} in all", sections)


def _delta_net(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Qwen3.5's and Qwen3-Next's recurrent layers."""
    _positive(reader, f"{arch}.full_attention_interval")
    state, groups, heads, inner = (
        _positive(reader, f"{arch}.ssm.{name}")
        for name in ("state_size", "group_count", "time_step_rank", "inner_size")
    )
    reader.integer(f"{arch}.ssm.conv_kernel", Bounds(2, LENGTH.most))
    if groups and heads and heads % groups:
        reader.fault(f"`{arch}.ssm.group_count` does not divide the {heads} heads of the state", groups)
    if state and heads and inner and inner != heads * state:
        reader.fault(f"`{arch}.ssm.inner_size` is not {heads} heads of {state}", inner)
    _halves(reader, sizes, ("attn_q.weight",), ("attn_qkv.weight", "attn_gate.weight"))


def _mamba2(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Nemotron-H's recurrent layers."""
    groups, heads, inner = (
        _positive(reader, f"{arch}.ssm.{name}") for name in ("group_count", "time_step_rank", "inner_size")
    )
    _positive(reader, f"{arch}.ssm.state_size")
    reader.integer(f"{arch}.ssm.conv_kernel", Bounds(2, LENGTH.most))
    if groups and heads and heads % groups:
        reader.fault(f"`{arch}.ssm.group_count` does not divide the {heads} heads of the state", groups)
    for name, count in (("group_count", groups), ("time_step_rank", heads)):
        if inner and count and inner % count:
            reader.fault(f"`{arch}.ssm.{name}` does not divide the state's {inner}", count)
    for i in _built(reader, sizes):
        stem = f"blk.{i}.ssm_"
        if f"{stem}in.weight" in reader.tensors and f"{stem}conv1d.bias" not in reader.tensors:
            reader.fault(f"tensor `{stem}conv1d.bias` is missing", "none")
            return


def _built(reader: Reader, sizes: Sizes) -> range:
    """Layers that the graph is built of; none where a shard is missing, which libllama tells itself."""
    return range((sizes.n_layers or 0) - sizes.n_predicting if reader.whole else 0)


def _halves(reader: Reader, sizes: Sizes, full: tuple[str, ...], recurrent: tuple[str, ...]) -> None:
    """Each layer has the tensors of one kind whole: the loader asks for some of them in vain, and goes on."""
    tensors = reader.tensors
    for i in _built(reader, sizes):
        if not any(all(f"blk.{i}.{name}" in tensors for name in names) for names in (full, recurrent)):
            names = " and ".join(f"`blk.{i}.{name}`" for name in recurrent)
            reader.fault(f"layer {i} lacks {names}", "none")
            return


def _interval(reader: Reader, arch: str, sizes: Sizes) -> None:
    """MiniMax-01: a layer of each kind."""
    named, key = f"{arch}.attention.recurrent_layers", f"{arch}.full_attention_interval"
    if sizes.n_layers is None:
        return
    if named in reader.header.keys:
        layers = reader.booleans(named, sizes.n_layers)
        if layers is not None and len(set(layers)) == 1:
            reader.fault(f"`{named}` does not leave a layer of each kind", "all the same")
        return
    interval = reader.integer(key, LENGTH) if key in reader.header.keys else INTERVAL
    if interval is not None and not 1 < interval <= sizes.n_layers:
        reader.fault(f"`{key}` does not leave a layer of each kind", interval)


def _short_convolution(reader: Reader, arch: str, sizes: Sizes) -> None:
    if sizes.n_kv_heads and 0 in sizes.n_kv_heads:
        reader.integer(f"{arch}.shortconv.l_cache", Bounds(2, LENGTH.most))
    heads = max(sizes.n_heads or [0])
    if heads and sizes.key_length and sizes.n_embd and heads * sizes.key_length != sizes.n_embd:
        reader.fault(f"{heads} heads of {sizes.key_length} are not its hidden size", sizes.n_embd)


def _loops(reader: Reader, arch: str, sizes: Sizes) -> None:
    loops = _positive(reader, f"{arch}.num_loops")
    if loops and sizes.n_layers and loops * sizes.n_layers > LOOPS_LIMIT:
        reader.fault(f"`{arch}.num_loops` makes more than {LOOPS_LIMIT} layers", loops)


def _lightning(reader: Reader, arch: str, sizes: Sizes) -> None:
    """Ling 3: latent attention, and recurrent layers with a bounded gate."""
    if reader.flag(f"{arch}.kda.safe_gate") is False:
        reader.fault(f"`{arch}.kda.safe_gate` is false, for which libllama has no graph", "false")
    reader.number(f"{arch}.kda.gate_lower_bound", Bounds(-3.4e38, -1e-38))
    _positive(reader, f"{arch}.kda.head_dim")
    reader.integer(f"{arch}.ssm.conv_kernel", Bounds(2, LENGTH.most))
    for name in ("key_length_mla", "value_length_mla"):
        reader.integer(f"{arch}.attention.{name}", LENGTH, required=True)
    rank = reader.integer(f"{arch}.attention.kv_lora_rank", LENGTH)
    turned = reader.integer(f"{arch}.rope.dimension_count")
    if rank and turned and sizes.key_length != rank + turned:  # the values are a part of the keys
        what = f"heads are not as long as a rank of {rank} and {turned} turned values make them"
        reader.fault(what, sizes.key_length)


def _deepseek4(reader: Reader, arch: str, sizes: Sizes) -> None:
    check_streams(reader, arch, sizes)
    reader.integer(f"{arch}.expert_gating_func", Bounds(DEEPSEEK4_GATING, DEEPSEEK4_GATING), required=True)
    key = f"{arch}.attention.compress_ratios"
    ratios = reader.integers(key, LAYERS, Bounds(0, LENGTH.most))
    wrong = [ratio for ratio in (ratios or [])[: sizes.n_layers] if ratio not in COMPRESSIONS]
    if wrong:
        reader.fault(f"`{key}` knows {', '.join(map(str, COMPRESSIONS))}", wrong[0])
    if ratios is not None and sizes.n_layers and len(ratios) < sizes.n_layers:
        reader.fault(f"`{key}` does not have an entry for each of the {sizes.n_layers} layers", len(ratios))
    _indexer(reader, arch, sizes)


def _indexer(reader: Reader, arch: str, sizes: Sizes) -> None:
    for name in ("head_count", "top_k"):
        _positive(reader, f"{arch}.attention.indexer.{name}")
    key = f"{arch}.attention.indexer.key_length"
    length = reader.integer(key)
    turned = reader.integer(f"{arch}.rope.dimension_count") or sizes.key_length or 0
    if length is not None and (not length or length % HADAMARD or length < turned):
        reader.fault(f"`{key}` is no multiple of {HADAMARD} that holds the {turned} turned values", length)


def _positive(reader: Reader, key: str) -> int | None:
    """Missing ones are libllama's own to refuse."""
    return reader.integer(key, LENGTH)


DEMANDS: Final[dict[str, Demands]] = {
    "llama": Demands(whole=True),
    "llama-embed": Demands(whole=True),
    "qwen3": Demands(whole=True),
    "qwen3moe": Demands(whole=True, rules=(_expert_width,)),
    "qwen3next": Demands(rules=(_delta_net, _expert_width)),
    "qwen35": Demands(rules=(_delta_net, _sections)),
    "qwen35moe": Demands(rules=(_delta_net, _sections, _expert_width)),
    "gpt-oss": Demands(whole=True, rules=(_window, _expert_width)),
    "gemma4": Demands(uniform=False, windows=True, rules=(_window, _shared_caches)),
    "minimax-01": Demands(rules=(_interval,)),
    "minimax-m2": Demands(rules=(_gating,)),
    "mimo2": Demands(equal=False, uniform=False, rules=(_window,)),
    "nemotron_h": Demands(uniform=False, rules=(_mamba2,)),
    "nemotron_h_moe": Demands(uniform=False, rules=(_mamba2, _used_experts)),
    "deepseek4": Demands(uniform=False, rules=(_deepseek4,)),
    "lfm2": Demands(uniform=False, rules=(_short_convolution,)),
    "lfm2moe": Demands(uniform=False, rules=(_short_convolution, _gating, _routed)),
    "hunyuan_vl": Demands(whole=True, rules=(_sections,)),
    "hunyuan-dense": Demands(whole=True),
    "bailingmoe3": Demands(equal=False, uniform=False, rules=(_lightning, _gating)),
    "nanbeige": Demands(rules=(_loops,)),
    "muse-glimmer": Demands(rules=(_window,)),
}
"""Architecture, by llama.cpp's name -> its demands. The architectures are those of ``schema.TAP_TARGETS``."""
